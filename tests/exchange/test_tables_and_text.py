"""Parquet and jsonl exports, read by pandas and json."""

from __future__ import annotations

import json

import numpy as np
import pytest
from made_up import bigram

from ngramkit.basics.errors import ArtifactError
from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.exchange.parquet import export_parquet
from ngramkit.exchange.text import export_jsonl

DOCUMENTS = [[3, 4, 5, 3, 4, 5, 3, 4, 10, 1], [], [11, 11, 2, 1], [1], [6]]


@pytest.fixture
def words(token_store, word_tokenizer):
    """A token store of the tokenizer's own ids."""
    return token_store(DOCUMENTS, record=word_tokenizer.record)


def test_documents_are_json_strings_as_sglang_reads_them(tmp_path, words, word_tokenizer):
    store = build_datastore(words, tmp_path / "d")
    written = export_jsonl(store, word_tokenizer, tmp_path / "x.jsonl")
    lines = (tmp_path / "x.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [
        "one two three one two three one two é", '" " zero', "four",
    ]  # fmt: skip
    golden = '"one two three one two three one two é"\n"\\" \\" zero"\n"four"\n'.encode()
    assert (tmp_path / "x.jsonl").read_bytes() == golden
    assert written == {"documents": 3, "bytes": len(golden)}
    ids = [word_tokenizer.encode(json.loads(line)).tolist() for line in lines]
    assert ids == [[i for i in d if i != 1] for d in DOCUMENTS if set(d) - {1}]


@pytest.mark.parametrize("rows", [2, 1 << 17])
def test_the_rows_of_a_frozen_table(tmp_path, words, word_tokenizer, rows, monkeypatch):
    import pandas

    monkeypatch.setattr("ngramkit.exchange.parquet.ROWS_PER_GROUP", rows)
    table = build_frozen(words, tmp_path / "f", follower_len=2)
    written = export_parquet(table, word_tokenizer, tmp_path / "x.parquet")
    frame = pandas.read_parquet(tmp_path / "x.parquet")
    size = (tmp_path / "x.parquet").stat().st_size
    assert written == {"rows": len(frame), "bytes": size}
    assert [list(row) for row in frame.leader] == np.repeat(
        table.leaders, np.diff(table.follower_offsets.astype(int)), axis=0
    ).tolist()
    assert [list(row) for row in frame.follower] == table.followers.tolist()
    assert frame["count"].tolist() == table.follower_counts.tolist()
    first = frame.iloc[0]
    assert (first.leader_text, first.follower_text) == ("one", "two three")
    assert (first["count"], first.leader_count) == (2, 3)


def test_the_same_table_gives_the_same_bytes(tmp_path, words, word_tokenizer):
    table = build_frozen(words, tmp_path / "f", follower_len=2)
    for name in ("a", "b"):
        export_parquet(table, word_tokenizer, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_another_tokenizer_is_refused(tmp_path, token_store, word_tokenizer):
    store = build_datastore(token_store(DOCUMENTS, 12), tmp_path / "d")
    with pytest.raises(ArtifactError, match="was built for the tokenizer"):
        export_jsonl(store, word_tokenizer, tmp_path / "x")


def test_the_rows_of_a_model_bigram(tmp_path, word_tokenizer):
    import pandas

    made = bigram(tmp_path / "b", word_tokenizer.record)
    export_parquet(made, word_tokenizer, tmp_path / "x.parquet")
    frame = pandas.read_parquet(tmp_path / "x.parquet")
    assert len(frame) == 36
    row = frame.iloc[9]
    assert (row.token_text, row.next_text, row.extended_text) == ("one", "two", "two three four")
    assert (row.token, row.next, row.extended.tolist()) == (3, 4, [4, 5, 6])
    assert abs(row.log_prob - np.log(0.6)) < 1e-3
