"""The writer: whole or not there, resumable, one at a time."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from ngramkit.basics.errors import UsageError
from ngramkit.basics.limits import LIMITS
from ngramkit.formats.evidence import EvidenceFolder
from ngramkit.formats.history import History
from ngramkit.formats.manifest import read_manifest
from ngramkit.formats.replacing import replace_text
from ngramkit.formats.resumable_writer import ArtifactWriter, already_built
from ngramkit.formats.tokenizer_record import TokenizerRecord

TOKENIZER = TokenizerRecord("demo", 4096, "f" * 64, 0)
PLAN = {"kind": "tokens", "shards": 3}


class KilledError(BaseException):
    """Stands for a killed process: nothing catches it."""


def build(path, plan=PLAN, *, stop_after=None, written=None, force=False):
    """Three shards; killed after `stop_after` of them."""
    with ArtifactWriter(path, "tokens", plan, force=force) as writer:
        for i in range(3):
            name = f"shard-{i:05}.safetensors"
            if writer.finished(name) is None:
                if written is not None:
                    written.append(i)
                writer.write(name, {"tokens": np.full(9, i, np.uint16)}, documents=i)
            assert writer.finished(name) == {"documents": i}
            if i + 1 == stop_after:
                raise KilledError
        return writer.commit(TOKENIZER, parameters={}, corpus={"id": "c"}, counts={"tokens": 27})


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def undisturbed(tmp_path):
    return contents(build(tmp_path / "undisturbed"))


def test_the_folder_holds_what_the_manifest_lists(tmp_path, undisturbed):
    listed = read_manifest(tmp_path / "undisturbed").files
    assert set(undisturbed) == {"README.md", "manifest.json", *listed}
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("stop", [1, 2])
def test_a_stopped_build_resumes_to_the_same_bytes(tmp_path, undisturbed, stop):
    path = tmp_path / "again"
    with pytest.raises(KilledError):
        build(path, stop_after=stop)
    assert not path.exists()
    written = []
    build(path, written=written)
    assert written == list(range(stop, 3))
    assert contents(path) == undisturbed


def test_a_build_of_many_facts_resumes(tmp_path):
    """The facts of thousands of parts may be larger than any other file of JSON."""
    plan, array = {"kind": "tokens"}, np.zeros(1, np.uint8)
    fact = "x" * (LIMITS.json_bytes // 2)
    with suppress(KilledError), ArtifactWriter(tmp_path / "a", "tokens", plan) as writer:
        for number in range(2):
            writer.write(f"part-{number:05d}.safetensors", {"a": array}, fact=fact)
        raise KilledError
    with ArtifactWriter(tmp_path / "a", "tokens", plan) as writer:
        assert writer.finished("part-00001.safetensors") == {"fact": fact}


def test_a_shard_damaged_while_nobody_looked_is_written_again(tmp_path, undisturbed):
    path = tmp_path / "again"
    with pytest.raises(KilledError):
        build(path, stop_after=2)
    shard = tmp_path / "again.partial" / "shard-00001.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1] + b"\xff")
    written = []
    build(path, written=written)
    assert written == [1, 2]
    assert contents(path) == undisturbed


def test_an_unrecorded_file_is_neither_trusted_nor_kept(tmp_path, undisturbed):
    partial = tmp_path / "again.partial"
    partial.mkdir()
    (partial / "shard-00000.safetensors").write_bytes(b"half")
    (partial / "progress.json.tmp").write_bytes(b"x")
    (partial / "progress.jsonl").write_text('\n{"build": "cut sho')
    assert contents(build(tmp_path / "again")) == undisturbed


def test_a_file_that_a_lost_task_writes_during_the_commit_is_not_kept(
    tmp_path, undisturbed, monkeypatch
):
    def late(file):
        (file.parent / "tokens-00007.safetensors").write_bytes(b"late")

    monkeypatch.setattr("ngramkit.formats.replacing.sync_file", late)
    path = tmp_path / "again"
    build(path)
    assert contents(path) == undisturbed


def test_another_plan_starts_over(tmp_path):
    path = tmp_path / "x"
    with pytest.raises(KilledError):
        build(path, stop_after=2)
    written = []
    build(path, {"kind": "tokens", "shards": 4}, written=written)
    assert written == [0, 1, 2]


def test_an_artifact_is_replaced_only_by_force(tmp_path):
    path = build(tmp_path / "x")
    with pytest.raises(UsageError, match="exists"):
        build(path, {"other": 1})
    assert already_built(path, PLAN)
    build(path, {"other": 1}, force=True)
    assert already_built(path, {"other": 1})
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_replacement_that_fails_leaves_the_old_one(tmp_path):
    path = build(tmp_path / "x")
    before = contents(path)
    with pytest.raises(KilledError):
        build(path, {"other": 1}, stop_after=2, force=True)
    assert contents(path) == before


def test_no_time_and_no_path_in_the_manifest(tmp_path):
    text = (build(tmp_path / "x") / "manifest.json").read_text()
    assert str(tmp_path) not in text
    assert set(json.loads(text)) == {
        "format", "version", "kind", "build", "tokenizer",
        "parameters", "corpus", "counts", "files", "checksum",
    }  # fmt: skip


MAKERS = {
    "text": lambda path: replace_text(path, "{}"),
    "history": lambda path: History.at(path, TOKENIZER),
    "evidence": lambda path: EvidenceFolder.at(path, {}, TOKENIZER),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_folder_is_on_the_disk_after_what_was_renamed_or_made_in_it(make, tmp_path, monkeypatch):
    """A power cut must not take the name of what is there whole."""
    done, sync, rename, make_folder = [], os.fsync, Path.replace, Path.mkdir

    def synced(descriptor):
        sync(descriptor)
        done.append(("synced", Path(f"/proc/self/fd/{descriptor}").readlink()))

    def named(name):
        done.append(("named", name))

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(
        Path, "replace", lambda path, to: (rename(path, to), named(Path(to).parent))
    )

    def made(path, *given, **options):
        if not path.exists():
            make_folder(path, *given, **options)
            named(path.parent)

    monkeypatch.setattr(Path, "mkdir", made)
    make(tmp_path / "out")
    for folder in {folder for what, folder in done if what == "named"}:
        assert ("synced", folder) in done[len(done) - done[::-1].index(("named", folder)) :]
