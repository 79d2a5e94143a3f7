"""Token stores of tasks that share no memory, each with a part of a corpus: the same bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from elsewhere import Elsewhere, contents
from hypothesis import given, strategies as st

from ngramkit.builders.token_parts import cuts
from ngramkit.builders.tokens import tokenize
from ngramkit.corpus import readers
from ngramkit.corpus.open import open_corpus
from ngramkit.errors import InputError

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
    assert list(there.check())


@pytest.mark.parametrize("options", CORPORA, ids=str)
@pytest.mark.parametrize("turns", [False, True])
def test_a_large_parquet_file_is_several_parts(tmp_path, monkeypatch, options, turns):
    monkeypatch.setattr(readers, "LARGE", 1)
    monkeypatch.setattr(readers, "STRETCH", 300)
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
    assert (pieces[0].source.counted() is None) == turns
    assert len(run.ran) > 3 or "limit" in options


def test_parts_behind_a_limit_are_not_read(texts, tmp_path):
    executor = Elsewhere(ahead=1)
    corpus = open_corpus(str(texts / "a"), limit=2)
    tokenize(corpus, "demo", tmp_path / "t", executor=executor)
    assert executor.ran == ["part-00000.safetensors", "shard-00000.safetensors"]


def test_a_corpus_without_documents_is_an_error(texts, tmp_path):
    corpus = open_corpus(str(texts / "a" / "*.jsonl"), licenses=["none"])
    with pytest.raises(InputError, match="gives no documents"):
        tokenize(corpus, "demo", tmp_path / "t", executor=Elsewhere())
    assert not (tmp_path / "t").exists()


@given(st.lists(st.lists(st.integers(0, 6), max_size=8), max_size=6), st.integers(1, 9))
def test_a_shard_ends_with_the_document_that_fills_it(parts, shard_tokens):
    expected, held = [], []
    for part, lengths in enumerate(parts):
        for document, length in enumerate(lengths):
            held.append((f"{part}", document, length))
            if sum(length for *_, length in held) >= shard_tokens:
                expected.append(held)
                held = []
    expected += [held] if held else []
    files = [(f"{part}", np.array(lengths, np.uint64)) for part, lengths in enumerate(parts)]
    found = list(cuts(files, shard_tokens))
    assert [
        [(cut.file, at, parts[int(cut.file)][at]) for cut in shard
         for at in range(cut.first, cut.last)] for shard in found
    ] == expected  # fmt: skip
    for cut in (cut for shard in found for cut in shard):
        lengths = parts[int(cut.file)]
        assert (cut.begin, cut.end) == (sum(lengths[: cut.first]), sum(lengths[: cut.last]))
