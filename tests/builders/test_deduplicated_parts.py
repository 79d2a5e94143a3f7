"""Duplicates and evaluation texts left out by tasks that share no memory: the same bytes."""

from __future__ import annotations

import json
import random
from functools import partial
from unittest import mock

import pytest
from elsewhere import Elsewhere, contents
from hypothesis import HealthCheck, given, settings, strategies as st

from ngramkit.basics.errors import InputError
from ngramkit.builders import corpus_parts
from ngramkit.builders.tokens import tokenize
from ngramkit.corpus.open import open_corpus

HELD = "what stands in an evaluation set must not be learnt"
OPTIONS = [
    {"dedup": "exact"},
    {"dedup": "exact", "limit": 7},
    {"dedup": "exact", "sample": 0.6, "seed": 2},
    {"exclude": True},
    {"exclude": True, "dedup": "exact", "limit": 20},
    {"dedup": "exact", "licenses": ["mit"]},
    {"licenses": ["mit"]},
    {"licenses": ["mit"], "limit": 7},
    {"dedup": "exact", "licenses": ["mit"], "limit": 4},
    {"dedup": "minhash"},
    {"dedup": "minhash", "exclude": True, "limit": 25},
]


@pytest.fixture(scope="module")
def repeats(tmp_path_factory):
    """Two folders whose files share documents, some of them nearly; and an evaluation set."""
    chosen, folder = random.Random(1), tmp_path_factory.mktemp("repeats")
    long = [[f"w{chosen.randrange(9)}" for _ in range(40)] for _ in range(4)]
    for corpus in ("a", "b"):
        (folder / corpus).mkdir()
        for file in range(3):
            lines = []
            for n in range(10):
                words = list(chosen.choice(long))
                words[chosen.randrange(40)] = chosen.choice(["w1", "other"])
                text = [f"{chosen.randrange(30)} ", " ".join(words), f"so: {HELD}, and more"][n % 3]
                lines.append({"text": text, "license": ["mit", None][n % 2]})
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (folder / corpus / f"{file}.jsonl").write_text(text)
    (folder / "questions.jsonl").write_text(json.dumps({"prompt": HELD}))
    return folder


def opened(folder, mixed, **options):
    if options.get("dedup") == "minhash":
        pytest.importorskip("rensa")
    if options.pop("exclude", False):
        options["exclude"] = [folder / "questions.jsonl"]
    a, b = str(folder / "a"), str(folder / "b")
    return open_corpus([a, (b, 0.6)] if mixed else a, **options)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("mixed", [False, True])
def test_the_same_documents_are_left(repeats, tmp_path, options, mixed):
    corpus = opened(repeats, mixed, **options)
    here = tokenize(corpus, "demo", tmp_path / "here", shard_tokens=60)
    there = tokenize(corpus, "demo", tmp_path / "there", shard_tokens=60, executor=Elsewhere(3))
    assert contents(there.path) == contents(here.path)
    assert sum(here.manifest.corpus["left_out"].values()) > 0


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.lists(st.sampled_from("abcd"), max_size=5), min_size=1, max_size=4),
    st.one_of(st.none(), st.integers(1, 5)),
    st.integers(0, 9),
)
def test_any_parts_and_limit(tmp_path_factory, files, limit, seed):
    folder, out = tmp_path_factory.mktemp("parts"), tmp_path_factory.mktemp("out")
    for number, letters in enumerate(files):
        lines = "".join(json.dumps({"text": letter}) + "\n" for letter in letters)
        (folder / f"{number}.jsonl").write_text(lines or '{"text": ""}\n')
    corpus = open_corpus(str(folder), dedup="exact", limit=limit)
    try:
        here = tokenize(corpus, "demo", out / "here")
    except InputError:
        with pytest.raises(InputError, match=r"no (documents|text)"):
            tokenize(corpus, "demo", out / "there", executor=Elsewhere(seed))
        return
    there = tokenize(corpus, "demo", out / "there", executor=Elsewhere(seed))
    assert contents(there.path) == contents(here.path)


def test_parts_behind_a_limit_are_not_read(repeats, tmp_path):
    executor = Elsewhere(ahead=1)
    corpus = opened(repeats, False, dedup="exact", limit=2)
    tokenize(corpus, "demo", tmp_path / "t", executor=executor)
    assert executor.ran == ["part-00000.safetensors"]


def test_a_resumed_build_reads_no_part_again(repeats, tmp_path):
    corpus = opened(repeats, True, dedup="exact", exclude=True)
    build = partial(tokenize, corpus, "demo", shard_tokens=60)
    whole = build(tmp_path / "whole", executor=(run := Elsewhere()))
    for after in range(len(run.ran)):
        killed, again = Elsewhere(1, dies_after=after), Elsewhere(2)
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path / f"{after}", executor=killed)
        gone_on = build(tmp_path / f"{after}", executor=again)
        assert contents(gone_on.path) == contents(whole.path)
        assert sorted(killed.ran + again.ran) == sorted(run.ran)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "other", executor=Elsewhere(dies_after=4))
    assert contents(build(tmp_path / "other").path) == contents(whole.path)


def test_other_texts_at_the_same_place_are_other_texts(repeats, tmp_path):
    for word in ("one", "two"):
        file = tmp_path / "set.jsonl"
        file.write_text(json.dumps({"prompt": " ".join([word] * 6)}))
        texts = tmp_path / "texts.jsonl"
        texts.write_text("".join(json.dumps({"text": f"{w} " * 7}) + "\n" for w in ("one", "two")))
        corpus = open_corpus(str(texts), exclude=file)
        here = tokenize(corpus, "demo", tmp_path / word)
        there = tokenize(corpus, "demo", tmp_path / "out", executor=Elsewhere(), force=True)
        assert contents(there.path) == contents(here.path)


def test_a_node_with_another_rensa_is_an_error(repeats, tmp_path):
    pytest.importorskip("rensa")
    corpus = opened(repeats, False, dedup="minhash")
    found = mock.Mock(side_effect=["1.2.3", "1.2.4"])
    with (
        mock.patch.object(corpus_parts, "version_of", found),
        pytest.raises(InputError, match=r"rensa must be 1\.2\.3 .*, got 1\.2\.4"),
    ):
        tokenize(corpus, "demo", tmp_path / "t", executor=Elsewhere())
