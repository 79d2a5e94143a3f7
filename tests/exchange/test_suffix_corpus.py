"""ik_llama.cpp's suffix corpus: golden bytes, and no more tokens than it reads."""

from __future__ import annotations

import numpy as np
import pytest

import ngramkit
from ngramkit.basics.errors import UsageError
from ngramkit.builders.datastore import build_datastore
from ngramkit.exchange import ik_llama_cpp
from ngramkit.exchange.ik_llama_cpp import MAX_EXPORTED_TOKENS, export_corpus

DOCUMENTS = [[4, 5, 1], [], [6, 1], [7, 8, 9, 1], [3, 1]]


@pytest.fixture
def store(tmp_path, token_store):
    return build_datastore(token_store(DOCUMENTS, 12), tmp_path / "d")


def test_the_bytes_of_an_export(store, tmp_path):
    out = ngramkit.export(store, "ik_llama.cpp", tmp_path / "x.bin")
    golden = "04000000 05000000 01000000 06000000 01000000"
    raw = (tmp_path / "x.bin").read_bytes()
    assert raw.startswith(bytes.fromhex(golden))
    assert np.frombuffer(raw, "<i4").tolist() == [token for ids in DOCUMENTS for token in ids]
    assert out.counts == {"documents": 4, "tokens": 11, "bytes": 44, "left_out": 0}


@pytest.mark.parametrize(("most", "tokens"), [(3, 3), (4, 3), (5, 5), (8, 5), (9, 9), (11, 11)])
def test_the_documents_that_come_first_and_fit(store, tmp_path, most, tokens, monkeypatch):
    monkeypatch.setattr(ik_llama_cpp, "MAX_EXPORTED_TOKENS", most)
    written = export_corpus(store, tmp_path / "x.bin")
    assert written["tokens"] == tokens
    assert written["documents"] + written["left_out"] == 4
    assert (tmp_path / "x.bin").stat().st_size == 4 * tokens


def test_more_than_it_reads_is_refused(store, tmp_path, monkeypatch):
    assert MAX_EXPORTED_TOKENS * 64 == 1 << 28
    monkeypatch.setattr(ik_llama_cpp, "MAX_EXPORTED_TOKENS", 2)
    with pytest.raises(UsageError, match="no document of at most 2 tokens"):
        export_corpus(store, tmp_path / "x.bin")
    assert not (tmp_path / "x.bin").exists()


def test_only_an_export_is_replaced(store, tmp_path):
    path = tmp_path / "x.bin"
    export_corpus(store, path)
    export_corpus(store, path, force=True)
    for others in (b"a user's text...", b"\xff" * 8, b"\0" * 7):
        path.write_bytes(others)
        with pytest.raises(UsageError, match="cannot replace"):
            export_corpus(store, path, force=True)


@pytest.mark.parametrize("renamed", [True, False])
def test_what_a_killed_export_left_is_cleared_by_the_next(tmp_path, store, renamed):
    out = tmp_path / "out.bin"
    ngramkit.export(store, "ik_llama.cpp", out)
    whole = out.read_bytes()
    (tmp_path / "out.bin.partial.lock").touch()
    (tmp_path / "out.bin.partial").mkdir()
    if not renamed:  # as with --force
        (tmp_path / "out.bin.partial" / "out.bin").write_text("part")
    with pytest.raises(UsageError, match="exists"):
        ngramkit.export(store, "ik_llama.cpp", out)
    assert out.read_bytes() == whole
    assert [path.name for path in tmp_path.glob("out*")] == ["out.bin"]
