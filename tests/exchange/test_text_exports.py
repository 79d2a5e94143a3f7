"""Documents as Parquet and as JSON objects, read by pyarrow, by datasets and as a corpus."""

from __future__ import annotations

import json

import pyarrow.parquet
import pytest
from made_up import unigram

import ngramkit
from ngramkit.basics.errors import UsageError
from ngramkit.builders.datastore import build_datastore
from ngramkit.exchange.parquet import export_parquet
from ngramkit.exchange.text import export_jsonl

DOCUMENTS = [[3, 4, 5, 1], [], [11, 11, 2, 1], [1], [6]]
TEXTS = ["one two three", '" " zero', "four"]


@pytest.fixture(params=["tokens", "datastore"])
def documents(request, tmp_path, token_store, word_tokenizer):
    store = token_store(DOCUMENTS, record=word_tokenizer.record)
    return store if request.param == "tokens" else build_datastore(store, tmp_path / "d")


@pytest.mark.parametrize("rows", [2, 1 << 17])
def test_documents_are_rows_with_a_text(documents, tmp_path, word_tokenizer, monkeypatch, rows):
    monkeypatch.setattr("ngramkit.exchange.parquet.ROWS_PER_GROUP", rows)
    path = tmp_path / "x.parquet"
    written = export_parquet(documents, word_tokenizer, path)
    table = pyarrow.parquet.read_table(path)
    assert table.to_pydict() == {"text": TEXTS}
    assert written == {"rows": 3, "bytes": path.stat().st_size}
    export_parquet(documents, word_tokenizer, path, force=True)


def test_documents_are_objects_with_a_text(documents, tmp_path, word_tokenizer):
    path = tmp_path / "x.jsonl"
    written = export_jsonl(documents, word_tokenizer, path, objects=True)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [{"text": text} for text in TEXTS]
    assert written == {"documents": 3, "bytes": path.stat().st_size}
    assert [each.text for each in ngramkit.open_corpus(path).documents()] == TEXTS
    export_jsonl(documents, word_tokenizer, path, objects=True, force=True)
    with pytest.raises(UsageError, match="not an export of this format"):
        export_jsonl(documents, word_tokenizer, path, force=True)


def test_datasets_reads_both(tmp_path, token_store, word_tokenizer, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    store = token_store(DOCUMENTS, record=word_tokenizer.record)
    export_parquet(store, word_tokenizer, tmp_path / "x.parquet")
    export_jsonl(store, word_tokenizer, tmp_path / "x.jsonl", objects=True)
    for kind, name in {"parquet": "x.parquet", "json": "x.jsonl"}.items():
        read = datasets.load_dataset(
            kind, data_files=str(tmp_path / name), split="train", cache_dir=str(tmp_path / "cache")
        )
        assert read.column_names == ["text"]
        assert list(read["text"]) == TEXTS


def test_a_foreign_parquet_is_not_replaced(documents, tmp_path, word_tokenizer):
    path = tmp_path / "mine.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": ["mine"]}), path)
    with pytest.raises(UsageError, match="not an export of this format"):
        export_parquet(documents, word_tokenizer, path, force=True)


def test_other_kinds_have_no_text(tmp_path, word_tokenizer):
    made = unigram(tmp_path / "u", word_tokenizer.record)
    for to in ("jsonl", "parquet"):
        with pytest.raises(UsageError, match=f"cannot export .* to {to}: it is a model-unigram"):
            ngramkit.export(made, to, tmp_path / "x")
    assert not (tmp_path / "x").exists()
