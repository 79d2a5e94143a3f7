"""Duplicates and texts of evaluation sets are left out, also after a resume."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given, settings, strategies as st
from reporters import Notes

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.builders.tokens import tokenize, tokens_plan
from ngramkit.corpus.decontamination import (
    MAX_GRAM_WORDS,
    MIN_GRAM_WORDS,
    EvaluationTexts,
    read_evaluation_texts,
)
from ngramkit.corpus.deduplication import Deduplicated, word_runs
from ngramkit.corpus.document import BEGINNING, Position
from ngramkit.corpus.open import open_corpus
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.formats.build_command import build_command
from ngramkit.formats.card import artifact_card
from ngramkit.recipe_files import read_recipe

LONG = " ".join(f"word{i}" for i in range(40))
SHORT = "Compose an engaging travel blog post!"


def corpus_of(tmp_path, texts, **options):
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return open_corpus(file, **options)


def questions(tmp_path, *bodies, name="questions.jsonl"):
    opened = gzip.open if name.endswith(".gz") else open
    with opened(tmp_path / name, "wt") as file:
        file.writelines(json.dumps(body) + "\n" for body in bodies)
    return tmp_path / name


def texts_of(corpus, start=BEGINNING):
    return [document.text for document in corpus.documents(start)]


def test_the_first_of_several_is_kept(tmp_path):
    corpus = corpus_of(tmp_path, ["a", "b", " a\n", "c", "b"], dedup="exact")
    assert texts_of(corpus) == ["a", "b", "c"]
    assert corpus.left_out == {"duplicates": 2}
    assert corpus.record()["dedup"] == "exact"


def test_a_limit_counts_kept_documents(tmp_path):
    corpus = corpus_of(tmp_path, ["a", "a", "b", "a", "c"], dedup="exact", limit=2)
    assert texts_of(corpus) == ["a", "b"]
    assert corpus.record()["limit"] == 2


def test_duplicates_across_the_corpora_of_a_mixture(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = corpus_of(tmp_path / "one", ["a", "b"]), corpus_of(tmp_path / "two", ["b", "c"])
    mixture = open_corpus([one, (two, 1.0)], dedup="exact")
    assert texts_of(mixture) == ["a", "b", "c"]
    assert len(mixture.record()["mixed"]) == 2
    with pytest.raises(UsageError, match="dedup or exclude"):
        open_corpus([mixture, one])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from("abcdef"), max_size=12), st.integers(0, 12))
def test_reading_resumes_anywhere_with_the_same_documents(tmp_path_factory, letters, cut):
    corpus = corpus_of(tmp_path_factory.mktemp("c"), letters, dedup="exact")
    whole = list(corpus.documents())
    counted = dict(corpus.left_out)
    cut = min(cut, len(whole))
    start = whole[cut - 1].end if cut else Position()
    assert [d.text for d in corpus.documents(start)] == [d.text for d in whole[cut:]]
    assert corpus.left_out == counted
    assert [d.end.kept for d in whole] == list(range(1, len(whole) + 1))


def test_near_duplicates(tmp_path):
    pytest.importorskip("rensa")
    nearly = LONG.replace("word39", "other")
    corpus = corpus_of(tmp_path, [LONG, nearly, LONG[::-1], LONG], dedup="minhash")
    assert texts_of(corpus) == [LONG, LONG[::-1]]
    assert "rensa" in corpus.record()


def test_documents_that_hold_a_prompt_or_an_answer(tmp_path):
    file = questions(
        tmp_path, {"question_id": 1, "turns": [SHORT, "Why?"], "choices": [{"turns": [LONG]}]}
    )
    half = " ".join(LONG.split()[:29])  # 17 of its 28 n-grams of 13 words
    less = " ".join(LONG.split()[:20])
    texts = [
        "- compose AN engaging travel-blog post, and: x", f"so {LONG.upper()}", half, less,
        "Why? Compose an engaging post.", "word1 word2",
    ]  # fmt: skip
    corpus = corpus_of(tmp_path, texts, exclude=[file])
    assert texts_of(corpus) == texts[3:]
    assert corpus.left_out == {"evaluation": 3}
    record = corpus.record()["evaluation"]
    assert (record["texts"], len(record["sha256"])) == (2, 64)


WORD = st.sampled_from(["a", "b", "c", "d"])


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(WORD, min_size=MIN_GRAM_WORDS, max_size=18), min_size=1, max_size=3),
    st.lists(WORD, max_size=40),
)
def test_contained_texts_are_those_of_a_naive_search(texts, document):
    joined = tuple(dict.fromkeys(" ".join(text) for text in texts))

    def grams(words, length):
        return {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}

    expected = False
    for text in joined:
        words = text.split()
        length = min(len(words), MAX_GRAM_WORDS)
        held = grams(words, length) & grams(document, length)
        expected |= 2 * len(held) >= len(grams(words, length))
    assert EvaluationTexts(joined).occur_in(" ".join(document)) == expected


def test_evaluation_sets_without_long_texts(tmp_path):
    with pytest.raises(InputError, match="fewer than 6 words"):
        read_evaluation_texts([questions(tmp_path, {"prompt": "Why?"})])
    (tmp_path / "broken.jsonl").write_text("{")
    with pytest.raises(InputError, match="line 1"):
        read_evaluation_texts([tmp_path / "broken.jsonl"])
    with pytest.raises(InputError, match="cannot read"):
        read_evaluation_texts([tmp_path / "none.jsonl"])
    packed = questions(tmp_path, {"prompt": LONG}, name="packed.jsonl.gz")
    assert read_evaluation_texts([packed]).texts == (LONG,)


UNSPACED = [
    "请解释一下为什么天空是蓝色的并且用简单的语言",
    "富士山の高さは何メートルですか。",
    "ทำไมท้องฟ้าจึงเป็นสีฟ้าในตอนกลางวัน",
]


def test_scripts_without_spaces(tmp_path):
    exclude = questions(tmp_path, *({"prompt": text, "answer": "四十二"} for text in UNSPACED))
    notes = Notes()
    held = [*(f"Q: {text} A." for text in UNSPACED), "天空是蓝色的", UNSPACED[0][::-1]]
    corpus = corpus_of(tmp_path, held, exclude=exclude, reporter=notes)
    assert texts_of(corpus) == held[3:]
    assert corpus.left_out == {"evaluation": 3}
    assert "ignoring 1 of its 4 texts" in notes
    assert "characters" in corpus.record()["evaluation"]


def test_near_duplicates_in_scripts_without_spaces(tmp_path):
    pytest.importorskip("rensa")
    text = "".join(chr(0x4E00 + 7 * i) for i in range(300))
    near = text[:150] + "一" + text[151:]
    corpus = corpus_of(tmp_path, [text, near, text[::-1]], dedup="minhash")
    assert texts_of(corpus) == [text, text[::-1]]
    assert word_runs("of a Latin text, é too") == ["of a Latin text, é", "a Latin text, é too"]


def test_an_unknown_method(tmp_path):
    with pytest.raises(UsageError, match="fuzzy") as error:
        corpus_of(tmp_path, ["a"], dedup="fuzzy")
    assert error.value.option == ("dedup",)


def test_a_token_store_records_and_reports_how_many_were_left_out(tmp_path):
    file = questions(tmp_path, {"prompt": SHORT})
    texts = ["one text", "one text", SHORT, "another"]
    corpus = corpus_of(tmp_path, texts, dedup="exact", exclude=file)
    notes = Notes()
    store = tokenize(corpus, "demo", tmp_path / "store", reporter=notes)
    assert store.manifest.counts["documents"] == 2
    assert store.manifest.corpus["left_out"] == {"duplicates": 1, "evaluation": 1}
    assert "left out 1 document (duplicates)" in notes
    assert "left out 1 document (they contain evaluation texts)" in notes
    text = artifact_card(store.manifest)
    assert "Duplicates were left out (exact): 1 documents." in text
    assert "hold texts of an evaluation set were left out: 1 " in text
    assert "--dedup exact --exclude FILE.jsonl" in build_command(store.manifest)
    plain = tokens_plan(corpus_of(tmp_path, texts), load_tokenizer("demo"))
    assert plain != tokens_plan(corpus, load_tokenizer("demo"))


def test_recipes_leave_out_duplicates_and_evaluation_sets(tmp_path):
    corpus_of(tmp_path, ["a", "a", SHORT])
    questions(tmp_path, {"prompt": SHORT})
    text = f"""
kind = "datastore"
model.id = "demo"
dedup = "exact"
exclude = ["questions.jsonl"]
corpus.name = "{tmp_path}/texts.jsonl"
"""
    file = tmp_path / "mine.toml"
    file.write_text(text)
    corpus = read_recipe(str(file)).open_corpus()
    assert isinstance(corpus, Deduplicated)
    assert texts_of(corpus) == ["a"]
    file.write_text(text.replace('["questions.jsonl"]', '["opt-outs.txt"]'))
    with pytest.raises(InputError, match="exclude must name"):
        read_recipe(str(file))
    file.write_text(text + 'corpus.exclude = "questions.jsonl"\n')
    with pytest.raises(InputError, match="opt-outs"):
        read_recipe(str(file)).open_corpus()
