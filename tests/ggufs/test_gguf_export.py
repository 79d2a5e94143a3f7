"""Exports to llama.cpp are checked against the GGUF file."""

from __future__ import annotations

import pytest
from gguf_files import demo_metadata, write_gguf

import ngramkit
from ngramkit.basics.errors import ArtifactError, InputError, UsageError

MORE = [*demo_metadata()["tokenizer.ggml.tokens"], "one more"]


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "a.txt").write_text("one two three one two four " * 9)
    store = ngramkit.tokenize(tmp_path / "a.txt", "demo", tmp_path / "tokens")
    return ngramkit.build_frozen(store, tmp_path / "frozen")


def test_the_file_of_the_same_tokenizer_is_taken(table, tmp_path, ngramkit_cli):
    file = write_gguf(tmp_path / "same.gguf", demo_metadata())
    done, refused = ngramkit_cli(
        ["export", "frozen", "--to", "llama.cpp", "--gguf", file, "--out", "x.bin"],
        ["export", "frozen", "--to", "parquet", "--gguf", file],
        env={"XDG_CACHE_HOME": str(tmp_path / "cache")},
    )
    assert done.code == 0, done.err
    assert (tmp_path / "x.bin").stat().st_size > 0
    assert refused.code == 2
    assert "cannot use --gguf with --to parquet" in refused.err


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tokenizer__ggml__pre": "smollm"}, "they encode '.*' differently"),
        (
            {"tokenizer__ggml__tokens": MORE, "tokenizer__ggml__token_type": None},
            "vocabularies differ",
        ),
    ],
)
def test_another_is_refused_with_the_text_that_differs(table, tmp_path, changed, said):
    file = write_gguf(tmp_path / "other.gguf", demo_metadata(**changed))
    with pytest.raises(ArtifactError, match=said):
        ngramkit.export(table, "llama.cpp", tmp_path / "x.bin", gguf=file)
    assert not (tmp_path / "x.bin").exists()


def test_other_files_are_refused(table, tmp_path):
    with pytest.raises(UsageError, match="must be a GGUF file"):
        ngramkit.export(table, "llama.cpp", tmp_path / "x.bin", gguf="demo")
    (tmp_path / "a.gguf").write_bytes(b"no")
    with pytest.raises(InputError, match="is not a GGUF file"):
        ngramkit.export(table, "llama.cpp", tmp_path / "x.bin", gguf=tmp_path / "a.gguf")
