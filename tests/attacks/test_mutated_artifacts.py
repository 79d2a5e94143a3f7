"""Thousands of mutations with true checksums; and those that once crashed, by name.

Longer: `make fuzz`, see fuzz.py.
"""

from __future__ import annotations

import shutil

import hub_standin
import numpy as np
import pytest
from command_lines import run_all

from attacks import tally
from attacks.crafted import craft, data_file, sign, write_bytes
from attacks.fuzz import fuzz, warmed
from attacks.victims import KINDS, VOCABULARY, use
from ngramkit.basics.errors import ArtifactError
from ngramkit.formats.opening import verify_artifact

TRIES = {"tokens": 400, "history": 150}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return warmed(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("kind", KINDS)
def test_mutations_are_refused_or_draft_inside_the_vocabulary(whole, kind):
    count = TRIES.get(kind, 500)
    report = fuzz(kind, whole[kind], range(1_000_000, 1_000_000 + count))
    assert not report.failures
    assert sum(report.outcomes.values()) == count
    for outcome, count in report.outcomes.items():
        tally(f"mutated {kind}, true checksums, opened and drafted from", outcome, count)


def spread(name, index, value):
    def change(arrays):
        arrays[name][index] = value

    return change


def shortened(name, keep):
    def change(arrays):
        arrays[name] = arrays[name][:keep]

    return change


CRAFTED = {
    "followers outside the vocabulary": ("frozen-table", spread("followers", ..., 9000)),
    "leaders outside the vocabulary": ("frozen-table", spread("leaders", -1, VOCABULARY)),
    "follower_offsets far outside": ("frozen-table", spread("follower_offsets", 1, 1 << 40)),
    "follower_offsets above int64": ("frozen-table", spread("follower_offsets", -1, 1 << 63)),
    "no follower": ("frozen-table", shortened("followers", 0)),
    "leader_counts of 2^64 - 1": (
        "frozen-table",
        lambda arrays: arrays.update(
            leader_counts=np.full(len(arrays["leader_counts"]), (1 << 64) - 1, np.uint64)
        ),
    ),
    "every suffix 2^31 - 1": ("datastore", spread("suffix_array", ..., (1 << 31) - 1)),
    "a suffix below 0": ("datastore", spread("suffix_array", 3, -5)),
    "suffixes out of order": ("datastore", lambda a: a["suffix_array"].sort()),
    "first_token far outside": ("datastore", spread("first_token", 7, 1 << 33)),
    "first_token above int64": ("datastore", spread("first_token", -1, 1 << 63)),
    "suffix_array shortened": ("datastore", shortened("suffix_array", 3)),
    "tokens shortened": ("datastore", shortened("tokens", 3)),
    "no separator at the end": ("datastore", spread("tokens", -1, 5)),
    "ids above the separator": ("datastore", spread("tokens", 2, 60000)),
    "extended outside the vocabulary": ("model-bigram", spread("extended", (0, 0, 1), 60000)),
    "next_tokens outside the vocabulary": ("model-bigram", spread("next_tokens", 3, VOCABULARY)),
    "NaN for a probability": ("model-bigram", spread("log_probs", 0, np.nan)),
    "a score of infinity": ("model-unigram", spread("scores", 0, np.inf)),
    "a token outside the vocabulary": ("model-unigram", spread("tokens", 0, VOCABULARY)),
    "documents beyond the tokens": ("tokens", spread("documents", 1, 1 << 50)),
    "a separator in the tokens": ("tokens", spread("tokens", 0, VOCABULARY)),
}


def refused(folder):
    for door in (use, lambda path: list(verify_artifact(path))):
        with pytest.raises(ArtifactError) as caught:
            door(folder)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_values(whole, tmp_path, name):
    kind, change = CRAFTED[name]
    folder = shutil.copytree(whole[kind], tmp_path / "crafted")
    craft(folder, change)
    refused(folder)
    tally("crafted values, true checksums", "refused")


@pytest.mark.parametrize("bit", range(0, 64 * (VOCABULARY + 2), 7))
def test_one_bit_of_first_token(whole, tmp_path, bit):
    folder = shutil.copytree(whole["datastore"], tmp_path / "flipped")

    def flip(arrays):
        arrays["first_token"][bit // 64] ^= np.uint64(1 << bit % 64)

    craft(folder, flip)
    refused(folder)
    tally("crafted values, true checksums", "refused")


MANIFESTS = {
    **{f"eos {eos!r}": ({"tokenizer": {"eos": eos}}) for eos in ([1], 1 << 70, -1, True, 24, 1.0)},
    **{f"version {v!r}": {"version": v} for v in (0, -1, True, None, 1.0)},
    **{f"vocabulary {v!r}": {"tokenizer": {"vocabulary": v}} for v in (0, -4, 1 << 40, True, "9")},
    **{
        f"{name} {value!r}": {"parameters": {name: value}}
        for name in ("followers", "leader_len", "follower_len")
        for value in (10**20, 0, -1, True, None, [3])
    },
    "counts of text": {"counts": {"leaders": "3"}},
    "a corpus without sense": {"corpus": {"id": ["x"]}},
    "a file outside": {"files": {"../x.safetensors": {"bytes": 0, "sha256": "0" * 64}}},
    "names that differ in case": {"files": {"TABLE.safetensors": {"bytes": 0, "sha256": "0" * 64}}},
    "bytes of no number": {"files": {"table.safetensors": {"bytes": "9"}}},
}  # fmt: skip


@pytest.mark.parametrize("name", MANIFESTS)
def test_crafted_manifests(whole, tmp_path, name):
    folder = shutil.copytree(whole["frozen-table"], tmp_path / "crafted")

    def change(body):
        for key, value in MANIFESTS[name].items():
            if isinstance(value, dict):
                for inner, wanted in value.items():
                    if isinstance(wanted, dict):
                        body[key].setdefault(inner, {}).update(wanted)
                    else:
                        body[key][inner] = wanted
            else:
                body[key] = value

    sign(folder, change)
    refused(folder)
    tally("crafted manifests, true checksums", "refused")


HEADERS = {
    "overlapping": {"a": ("U16", [4], [0, 8]), "b": ("U16", [4], [4, 12])},
    "with a hole": {"a": ("U16", [2], [0, 4]), "b": ("U16", [2], [8, 12])},
    "bytes that nobody reads": {"a": ("U16", [2], [0, 4])},
    "past the end": {"a": ("U16", [60], [0, 120])},
    "not aligned": {"a": ("U8", [1], [0, 1]), "b": ("U64", [1], [1, 9]), "c": ("U8", [3], [9, 12])},
    "numbers that are none": {"a": ("U16", [6.0], [0, 12])},
    "true for a number": {"a": ("U8", [12, True], [0, 12])},
}


@pytest.mark.parametrize("name", HEADERS)
def test_crafted_headers(whole, tmp_path, name):
    folder = shutil.copytree(whole["tokens"], tmp_path / "crafted")
    keys = ("dtype", "shape", "data_offsets")
    header = {n: dict(zip(keys, entry, strict=True)) for n, entry in HEADERS[name].items()}
    write_bytes(data_file(folder), header, bytes(12))
    sign(folder)
    refused(folder)
    tally("crafted headers, true checksums", "refused")


DEEP = b"[" * 100_000
TEXTS = [DEEP, b'{"a":' * 100_000, b"null", b"[]", b"3", b'"x"', b"NaN", b"\xff\xfe", b"", b"{",
         b'{"a": 1, "a": 2}', b'{"a": Infinity}', b'{"a": 1e999}', b'{"a": "\\ud800"}',
         b'{"a": ' + b"9" * 5000 + b"}"]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_malformed_json(whole, tmp_path, text):
    folder = shutil.copytree(whole["frozen-table"], tmp_path / "manifest")
    (folder / "manifest.json").write_bytes(text)
    refused(folder)
    folder = shutil.copytree(whole["frozen-table"], tmp_path / "header")
    write_bytes(data_file(folder), text, b"")
    sign(folder)
    refused(folder)
    tally("malformed JSON in manifests and headers", "refused", 2)


@pytest.mark.parametrize("name", ["manifest.json", "table.safetensors"])
@pytest.mark.parametrize("thing", ["folder", "pipe", "dangling", "loop"])
def test_links_folders_and_devices_in_place_of_files(whole, tmp_path, name, thing):
    import os

    folder = shutil.copytree(whole["frozen-table"], tmp_path / "crafted")
    path = folder / name
    path.unlink()
    if thing == "folder":
        path.mkdir()
    elif thing == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path if thing == "loop" else tmp_path / "nowhere")
    refused(folder)
    tally("a folder, a pipe or a broken link in place of a file", "refused")


def test_a_crafted_artifact_is_never_pulled_nor_opened_from_the_hub(whole, tmp_path):
    folder = shutil.copytree(whole["datastore"], tmp_path / "evil")
    craft(folder, spread("suffix_array", ..., (1 << 31) - 1))
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    with hub_standin.HubStandIn() as hub:
        hub.add("dataset", "acme/evil", files)
        environment = hub.environment(tmp_path / "home")
        found = run_all(
            [
                ["pull", "acme/evil", "--out", tmp_path / "pulled"],
                ["inspect", folder],
                ["push", folder, "acme/again"],
                ["export", "hf://acme/evil", "--to", "jsonl", "--out", tmp_path / "x.jsonl"],
            ],
            tmp_path,
            environment,
        )
    for result in found:
        assert (result.code, "out of order" in result.err) == (3, True), result.err
    assert not (tmp_path / "pulled").exists()
    tally("crafted artifacts on the Hub", "refused", len(found))
