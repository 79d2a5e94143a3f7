"""Manifests: canonical text, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ngramkit.basics.errors import ArtifactError
from ngramkit.formats.manifest import Manifest, build_id, read_manifest
from ngramkit.formats.safetensors import FileRecord
from ngramkit.formats.tokenizer_record import TokenizerRecord

TOKENIZER = TokenizerRecord("demo", 4096, "f" * 64, 0)
MANIFEST = Manifest(
    kind="tokens",
    build=build_id({"a": 1}),
    tokenizer=TOKENIZER,
    corpus={"id": "x", "licenses": {"mit": 3}},
    counts={"documents": 1, "tokens": 2},
    files={"shard-00000.safetensors": FileRecord(12, "0" * 64)},
)


def write(folder, **changes):
    body = {**json.loads(MANIFEST.to_json()), **changes}
    (folder / "manifest.json").write_text(json.dumps(body))


def test_a_manifest_survives_the_disk(tmp_path):
    (tmp_path / "manifest.json").write_text(MANIFEST.to_json())
    assert read_manifest(tmp_path) == MANIFEST


@pytest.mark.parametrize(
    ("corpus", "private"),
    [
        ({"id": "x"}, False),
        ({"id": "x", "private": False}, False),
        ({"id": "x", "private": True}, True),
        ({"id": "x + y", "mixed": [{"id": "x"}, {"id": "y", "private": True}]}, True),
        ({"merged": [{"id": "x"}, {"merged": [{"id": "y", "private": True}]}]}, True),
    ],
)
def test_private_texts_are_in_the_corpus_record(tmp_path, corpus, private):
    """Older versions accept other keys in the corpus record only."""
    marked = replace(MANIFEST, corpus=corpus)
    assert json.loads(marked.to_json()).keys() == json.loads(MANIFEST.to_json()).keys()
    (tmp_path / "manifest.json").write_text(marked.to_json())
    assert read_manifest(tmp_path).private is private


@pytest.mark.parametrize("value", ["yes", 1])
def test_a_mark_that_is_not_a_boolean_is_refused(tmp_path, value):
    (tmp_path / "manifest.json").write_text(replace(MANIFEST, corpus={"private": value}).to_json())
    with pytest.raises(ArtifactError, match="'private' of its corpus is invalid"):
        read_manifest(tmp_path)


def test_the_text_does_not_depend_on_insertion_order():
    corpus = {"licenses": {"mit": 3}, "id": "x"}
    other = replace(MANIFEST, corpus=corpus)
    assert other.to_json() == MANIFEST.to_json()


def test_build_id_depends_on_every_value_but_not_on_order():
    assert build_id({"a": 1, "b": 2}) == build_id({"b": 2, "a": 1})
    assert build_id({"a": 1}) != build_id({"a": 2})


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/b", ".hidden", "", "..", "a\nb"])
def test_a_file_outside_the_folder_is_refused(tmp_path, name):
    write(tmp_path, files={name: {"bytes": 1, "sha256": "0"}})
    with pytest.raises(ArtifactError, match="not inside its folder"):
        read_manifest(tmp_path)


def test_a_file_is_no_artifact(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a"}')
    with pytest.raises(ArtifactError, match="Not a directory") as caught:
        read_manifest(tmp_path / "a.jsonl")
    assert str(tmp_path / "a.jsonl") in caught.value.hint


def test_a_newer_format_asks_for_an_upgrade(tmp_path):
    write(tmp_path, version=2)
    with pytest.raises(ArtifactError, match="format version of at most 1, got 2") as caught:
        read_manifest(tmp_path)
    assert "Upgrade" in caught.value.hint


@pytest.mark.parametrize(
    "changes",
    [
        {"tokenizer": {"id": "x"}},
        {"tokenizer": 3},
        {"files": {"a": {"size": 3}}},
        {"files": []},
        {"counts": 1},
    ],
)
def test_a_manifest_without_sense_is_refused(tmp_path, changes):
    write(tmp_path, **changes)
    with pytest.raises(ArtifactError, match="damaged"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "other"}', "3"])
def test_other_files_are_refused(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ArtifactError):
        read_manifest(tmp_path)


def test_no_artifact_at_all(tmp_path):
    with pytest.raises(ArtifactError, match="no such artifact"):
        read_manifest(tmp_path / "nowhere")
    with pytest.raises(ArtifactError, match=r"has no manifest\.json"):
        read_manifest(tmp_path)


def test_another_tokenizer_is_refused_by_name():
    other = TokenizerRecord("llama", 32000, "e" * 64, 2)
    with pytest.raises(ArtifactError, match=r"cannot use the table with .*llama.*built for .*demo"):
        TOKENIZER.require(other, "the table")
    TOKENIZER.require(TokenizerRecord("same ids, other name", 4096, "f" * 64), "the table")


def test_reading_takes_the_memory_of_the_file(tmp_path):
    import tracemalloc

    from ngramkit.basics.untrusted import read_json

    (tmp_path / "x.json").write_text("[1]")
    tracemalloc.start()
    try:
        assert read_json(tmp_path / "x.json") == [1]
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
