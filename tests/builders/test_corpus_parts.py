"""Token stores of tasks that share no memory, each with a part of a corpus: the same bytes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from elsewhere import Elsewhere, contents

from ngramkit.basics.errors import InputError
from ngramkit.basics.models import embedded_model
from ngramkit.builders import corpus_parts
from ngramkit.builders.tokens import tokenize
from ngramkit.corpus import parquet_tables
from ngramkit.corpus.open import open_corpus
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.formats.artifact import verify_checksums_and_values

LICENSES = ["mit", "apache-2.0", None]
CORPORA = [
    {},
    {"limit": 1},
    {"limit": 17},
    {"sample": 0.4, "seed": 3},
    {"sample": 0.5, "limit": 9},
    {"licenses": ["mit"]},
    {"licenses": ["mit"], "limit": 5},
]


@pytest.mark.parametrize("options", CORPORA, ids=str)
@pytest.mark.parametrize("shard_tokens", [60, 1 << 24])
@pytest.mark.parametrize("mixed", [False, True])
def test_tokens_have_the_same_bytes(texts, tmp_path, options, shard_tokens, mixed):
    a, b = str(texts / "a"), str(texts / "b")
    corpus = open_corpus([a, (b, 0.6)] if mixed else a, **options)
    here = tokenize(corpus, "demo", tmp_path / "here", shard_tokens=shard_tokens)
    made = {"shard_tokens": shard_tokens, "executor": Elsewhere()}
    there = tokenize(corpus, "demo", tmp_path / "there", **made)
    assert contents(there.path) == contents(here.path)
    assert list(verify_checksums_and_values(there))


SESSIONS = Path(__file__).parents[1] / "logs/samples/sessions/claude-code"


@pytest.mark.parametrize("options", [{}, {"join_turns": True}, {"sample": 0.5}], ids=str)
@pytest.mark.parametrize("mixed", [False, True])
def test_sessions_of_a_relative_folder_go_to_tasks(tmp_path, monkeypatch, options, mixed):
    shutil.copytree(SESSIONS, tmp_path / "projects")
    monkeypatch.chdir(tmp_path)
    corpus = [("projects", 0.7)] if mixed else "projects"
    made = {"skip_bad": True, **options}
    here = tokenize(corpus, "demo", "here", **made)
    there = tokenize(corpus, "demo", "there", executor=Elsewhere(), **made)
    assert contents(there.path) == contents(here.path)


def test_special_tokens_in_texts_are_split_alike(tmp_path):
    shutil.copytree(embedded_model(), tmp_path / "model")
    config = json.loads((tmp_path / "model/tokenizer_config.json").read_text())
    config["split_special_tokens"] = True
    (tmp_path / "model/tokenizer_config.json").write_text(json.dumps(config))
    model = load_tokenizer(tmp_path / "model")
    texts = [f"a {model.eos_token} b", "c"]
    here = tokenize(iter(texts), model, tmp_path / "here")
    there = tokenize(iter(texts), model, tmp_path / "there", executor=Elsewhere())
    assert model.record.eos not in next(here.documents())[:-1]
    assert contents(there.path) == contents(here.path)


@pytest.mark.parametrize("options", CORPORA, ids=str)
@pytest.mark.parametrize("turns", [False, True])
def test_a_large_parquet_file_is_several_parts(tmp_path, monkeypatch, options, turns):
    monkeypatch.setattr(parquet_tables, "MIN_SPLIT_FILE_BYTES", 1)
    monkeypatch.setattr(parquet_tables, "SPLIT_BYTES", 300)
    texts = [["one turn", f"another {n}"][: n % 4] if turns else f"text {n}" for n in range(60)]
    rows = {"text": texts, "license": [LICENSES[n % 3] for n in range(60)]}
    pq.write_table(pa.table(rows), tmp_path / "large.parquet", row_group_size=4)
    corpus = open_corpus(str(tmp_path / "large.parquet"), **options)
    here = tokenize(corpus, "demo", tmp_path / "here", shard_tokens=60)
    there = tokenize(
        corpus, "demo", tmp_path / "there", shard_tokens=60, executor=(run := Elsewhere())
    )
    assert contents(there.path) == contents(here.path)
    pieces = list(corpus.pieces())
    assert len(pieces) > 3
    assert (pieces[0].source.count() is None) == turns
    assert len(run.ran) > 3 or "limit" in options


def test_rows_of_conversations_in_texts_are_not_counted_as_documents(tmp_path):
    chats = [json.dumps([{"role": "user", "content": f"{n}"}] * (n % 3 + 1)) for n in range(30)]
    for file in range(2):
        pq.write_table(pa.table({"messages": chats}), tmp_path / f"{file}.parquet")
    corpus = open_corpus(str(tmp_path / "*.parquet"), sample=0.5)
    here = tokenize(corpus, "demo", tmp_path / "here")
    there = tokenize(corpus, "demo", tmp_path / "there", executor=Elsewhere())
    assert contents(there.path) == contents(here.path)


def test_parts_behind_a_limit_are_not_read(texts, tmp_path):
    executor = Elsewhere(ahead=1)
    corpus = open_corpus(str(texts / "a"), limit=2)
    tokenize(corpus, "demo", tmp_path / "t", executor=executor)
    assert executor.ran == ["part-00000.safetensors"]


def test_a_corpus_without_documents_is_an_error(texts, tmp_path):
    corpus = open_corpus(str(texts / "a" / "*.jsonl"), licenses=["none"])
    with pytest.raises(InputError, match="has no documents"):
        tokenize(corpus, "demo", tmp_path / "t", executor=Elsewhere())
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("dedup", [None, "exact"])
def test_a_part_is_taken_apart_in_batches(texts, tmp_path, monkeypatch, dedup):
    corpus = open_corpus(str(texts), dedup=dedup, limit=23)
    here = tokenize(corpus, "demo", tmp_path / "here", shard_tokens=60)
    monkeypatch.setattr(corpus_parts, "BATCH_DOCUMENTS", 3)
    there = tokenize(
        corpus, "demo", tmp_path / "there", shard_tokens=60, executor=Elsewhere(ahead=1)
    )
    assert contents(there.path) == contents(here.path)


@pytest.mark.parametrize("options", [{}, {"limit": 3}, {"limit": 5}, {"sample": 0.5}], ids=str)
@pytest.mark.parametrize("mixed", [False, True])
def test_bad_records_are_counted_alike(tmp_path, options, mixed):
    good, bad = '{{"text": "text {}"}}\n', '{{"test": {}}}\n'
    for name, kinds in (("a", "bgbgg"), ("b", "gbbg"), ("c", "b")):
        lines = [(good if kind == "g" else bad).format(n) for n, kind in enumerate(kinds)]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    a, b = str(tmp_path / "[ac].jsonl"), str(tmp_path / "b.jsonl")
    whole = str(tmp_path / "*.jsonl")
    corpus = open_corpus([a, b] if mixed else whole, skip_bad=True, **options)
    here = tokenize(corpus, "demo", tmp_path / "here")
    there = tokenize(corpus, "demo", tmp_path / "there", executor=Elsewhere())
    assert contents(there.path) == contents(here.path)
    assert here.manifest.corpus["bad_records"] == {3: 2, 5: 4}.get(options.get("limit"), 5) + (
        mixed and options.get("limit") == 5
    )


@pytest.mark.parametrize("options", [{}, {"limit": 17}, {"sample": 0.4}], ids=str)
def test_texts_that_this_process_holds_go_to_tasks(tmp_path, monkeypatch, options):
    monkeypatch.setattr("ngramkit.corpus.texts.BATCH_ROWS", 7)
    corpus = open_corpus((f"text {n}" for n in range(60)), **options)
    here = tokenize(corpus, "demo", tmp_path / "here")
    run = Elsewhere()
    there = tokenize(corpus, "demo", tmp_path / "there", executor=run)
    assert contents(there.path) == contents(here.path)
    assert len(run.ran) > 2
