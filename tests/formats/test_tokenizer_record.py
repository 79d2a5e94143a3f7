"""Tokenizers compared by what they encode: whatever their files look like."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given, strategies as st

from ngramkit.basics.errors import ArtifactError
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.default_artifacts import select_default_artifacts
from ngramkit.formats.manifest import Manifest, read_manifest
from ngramkit.formats.outputs import Found
from ngramkit.formats.tokenizer_record import (
    FINGERPRINT_FORM,
    PROBE_TEXTS,
    TokenizerRecord,
    encode_probes,
    text_encoded_differently,
)

WORDS = {"a": 0, "b": 1, "ab": 2}


def spell(text):
    return [ord(c) for c in text]


def test_equal_tokenizers_write_the_same_and_others_do_not():
    one = encode_probes(WORDS, spell)
    assert one == encode_probes(dict(reversed(WORDS.items())), spell)
    assert FINGERPRINT_FORM.fullmatch(one)
    assert (
        text_encoded_differently(one, encode_probes({**WORDS, "c": 3}, spell))
        == "their vocabularies differ"
    )
    assert (
        text_encoded_differently(one, encode_probes({"a": 1, "b": 0, "ab": 2}, spell))
        == "their vocabularies differ"
    )


@given(st.sampled_from(PROBE_TEXTS))
def test_the_text_that_differs_is_named(text):
    def other(each):
        return [1, 2, 3] if each == text else spell(each)

    found = text_encoded_differently(encode_probes(WORDS, spell), encode_probes(WORDS, other))
    assert found == f"they encode {text!r} differently"


def same(one, other):
    """Compare tokenizers of other files that encode so."""
    records = (TokenizerRecord("t", 3, f * 64, encodes=e) for f, e in (("a", one), ("b", other)))
    return next(records).is_same_tokenizer(next(records))


def test_what_one_does_not_tell_is_not_believed():
    one = encode_probes(WORDS, spell)
    assert same(one, one)
    assert not same(None, one)
    assert not same(None, None)
    assert same(one, one + "0123"), "probes that only one knows are not compared"


def manifest(record):
    return Manifest("datastore", "0" * 64, record, counts={"tokens": 3, "documents": 1})


RECORD = TokenizerRecord("here", 3, "f" * 64, 0, encode_probes(WORDS, spell))
LIKE = dataclasses.replace(RECORD, id="there", fingerprint="e" * 64)
OTHER = dataclasses.replace(LIKE, encodes=encode_probes(WORDS, lambda text: [len(text)]))
SILENT = dataclasses.replace(LIKE, encodes=None)


def test_an_artifact_of_the_same_ids_is_taken_and_another_refused_with_the_text():
    RECORD.require(LIKE, "the table")
    with pytest.raises(ArtifactError, match="they encode 'Hello world' differently"):
        RECORD.require(OTHER, "the table")
    with pytest.raises(ArtifactError, match=r"ffffffffffff\)\n"):
        RECORD.require(SILENT, "the table")


def test_artifacts_that_lie_there_are_chosen_by_it(tmp_path):
    found = [
        Found(tmp_path / record.id, manifest(record))
        for record in (LIKE, dataclasses.replace(OTHER, id="else"))
    ]
    taken, left = select_default_artifacts(found, ["datastores"], RECORD)
    assert taken["datastores"] == [tmp_path / "there"]
    assert left == ["1 for other tokenizers (else)"]


def test_a_manifest_keeps_it_and_one_from_before_stays_what_it_was(tmp_path):
    (tmp_path / "manifest.json").write_text(manifest(RECORD).to_json())
    assert read_manifest(tmp_path).tokenizer == RECORD
    text = manifest(SILENT).to_json()
    assert "encodes" not in text
    (tmp_path / "manifest.json").write_text(text)
    assert read_manifest(tmp_path).tokenizer == SILENT


@pytest.mark.attack
@pytest.mark.parametrize("value", [3, "", "xyz", "0" * 5000, "\x1b[2J", ["0" * 40], {}])
def test_a_manifest_with_nonsense_in_its_place_is_damaged(tmp_path, value):
    body = json.loads(manifest(RECORD).to_json())
    body["tokenizer"]["encodes"] = value
    del body["checksum"]
    (tmp_path / "manifest.json").write_text(json.dumps(body))
    with pytest.raises(ArtifactError, match="hex digits"):
        read_manifest(tmp_path)


def test_the_embedded_tokenizer_tells():
    record = load_tokenizer("demo").record
    assert record.encodes is not None
    assert len(record.encodes) == 16 + 4 * len(PROBE_TEXTS)
