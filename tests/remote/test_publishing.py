"""Artifacts written to URLs: built locally, uploaded whole, resumed, never mixed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from faulty_proxy import CUT_UPLOAD, DROP, SLOW, Fault
from reporters import Notes
from uploads import OUT, build, puts, there

import ngramkit
from ngramkit.basics.errors import ArtifactError, InputError, NetworkError, UsageError
from ngramkit.formats.manifest import MANIFEST_FILE

SHARD = r"PUT /bucket/out/phrases/shard-00001"


def test_the_same_bytes_as_a_folder_and_the_manifest_last(s3, tokens, cache, tmp_path):
    local = build(tokens, tmp_path / "phrases")
    built = build(tokens)
    assert built.where == OUT
    assert built.manifest == local.manifest
    for file in local.path.iterdir():
        assert s3.storage.cat(f"bucket/out/phrases/{file.name}") == file.read_bytes()
    assert puts(s3, "")[-1] == f"PUT /bucket/out/phrases/{MANIFEST_FILE}"
    assert not list((cache / "work").rglob("*.safetensors"))  # they are the cache's blobs now
    s3.requests.clear()
    assert ngramkit.open_artifact(OUT).path == built.path
    assert not [each for each in s3.requests if "shard-" in each]


def test_private_texts_on_their_way_are_reported(s3, cache, tmp_path):
    (tmp_path / "mine.txt").write_text("a text of mine")
    notes = Notes()
    ngramkit.tokenize(tmp_path / "mine.txt", "demo", OUT, private=True, reporter=notes)
    assert f"uploading private texts to {OUT}" in notes.lines
    assert ngramkit.open_artifact(OUT).manifest.private


def test_an_equal_artifact_is_kept(s3, tokens, cache, tmp_path, monkeypatch):
    build(tokens)
    s3.requests.clear()
    notes = Notes()
    again = build(tokens, reporter=notes)
    assert not puts(s3, "")
    assert notes.lines == [f"{OUT} is up to date"]
    monkeypatch.setenv("NGRAMKIT_CACHE_DIR", str(tmp_path / "another machine"))
    assert build(tokens, reporter=notes).manifest == again.manifest
    assert not puts(s3, "")


def test_a_killed_processs_stand_in_is_removed(s3, tokens, cache):
    built = build(tokens)
    left = next((cache / "work").iterdir()) / "phrases"
    left.mkdir()
    shutil.copy(built.path / MANIFEST_FILE, left)
    assert build(tokens, f"{OUT}/").manifest == built.manifest  # with a slash it is the same place
    assert not left.exists()


def test_another_artifact_is_replaced_only_with_force(s3, tokens, cache):
    build(tokens)
    with pytest.raises(UsageError, match=f"^cannot write {OUT}: it exists\\n") as refused:
        build(tokens, shard_tokens=100)
    assert "force=True" in refused.value.hint
    assert ngramkit.open_artifact(OUT).manifest.counts
    fewer = build(tokens, shard_tokens=400, force=True)
    listed = {*fewer.manifest.files, MANIFEST_FILE, "README.md"}
    assert {*there(s3)} == listed  # the old one's third shard is gone
    assert ngramkit.verify(OUT).ok


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("fault", ["missing", "cut", "changed"])
def test_a_damaged_artifact_is_replaced_with_force(
    s3, tokens, cache, tmp_path, monkeypatch, fault, cached
):
    if cached and fault == "changed":
        return  # nobody reads the file
    built = build(tokens)
    name = f"bucket/out/phrases/{min(built.manifest.files)}"
    whole = s3.storage.cat(name)
    damaged = {"missing": None, "cut": whole[:-8], "changed": whole[:-8] + b"damaged!"}[fault]
    s3.storage.rm_file(name) if damaged is None else s3.storage.pipe_file(name, damaged)
    if not cached:
        monkeypatch.setenv("NGRAMKIT_CACHE_DIR", str(tmp_path / "another machine"))
    with pytest.raises(ArtifactError, match=r"does not hold it|differs from its manifest") as found:
        build(tokens)
    assert "force=True" in found.value.hint
    notes = Notes()
    assert build(tokens, force=True, reporter=notes).manifest == built.manifest
    assert f"building {OUT} again: " in notes
    assert s3.storage.cat(name) == whole


def test_a_damaged_manifest_is_not_replaced(s3, tokens, cache):
    build(tokens)
    s3.storage.pipe_file(f"bucket/out/phrases/{MANIFEST_FILE}", b"{")
    with pytest.raises(UsageError, match=f"cannot replace {OUT}: .*not JSON") as found:
        build(tokens, force=True)
    assert found.value.hint == "Choose another out."


def test_files_that_ngramkit_did_not_write_stay(s3, tokens, cache):
    for name in ("notes.txt", "README.md"):
        s3.storage.pipe(f"bucket/mine/{name}", b"mine")
        with pytest.raises(UsageError, match=rf"bucket/mine: it holds {name}, which ngramkit"):
            build(tokens, "s3://bucket/mine", force=True)
        assert s3.storage.cat(f"bucket/mine/{name}") == b"mine"
        s3.storage.rm(f"bucket/mine/{name}")


@pytest.mark.parametrize("kind", [DROP, CUT_UPLOAD, 503])
def test_an_upload_that_fails_once_is_tried_again(s3, tokens, cache, kind):
    s3.faults.append(Fault(SHARD, kind))
    build(tokens)
    assert s3.faults[0].times == 0
    assert ngramkit.verify(OUT).ok


@pytest.mark.parametrize(
    ("kind", "said"), [(503, "503 ServiceUnavailable"), (403, "403 AccessDenied")]
)
def test_an_upload_that_keeps_failing_leaves_no_artifact_and_resumes(
    s3, tokens, cache, impatient, kind, said
):
    code = "AccessDenied" if kind == 403 else "ServiceUnavailable"
    s3.faults.append(Fault(SHARD, kind, times=999, code=code))
    with pytest.raises(NetworkError, match=rf"shard-00001.*{said}"):
        build(tokens)
    assert MANIFEST_FILE not in there(s3)
    assert "shard-00001.safetensors" not in there(s3)
    with pytest.raises(ArtifactError, match="not an ngramkit artifact"):
        ngramkit.open_artifact(OUT)
    s3.faults.clear()
    s3.requests.clear()
    arrived = there(s3)
    notes = Notes()
    build(tokens, reporter=notes)
    assert notes.lines == [f"{OUT} is up to date"]  # built, and now uploaded
    assert len(puts(s3)) == 3 - len(arrived)
    assert ngramkit.verify(OUT).ok


def test_two_equal_writers_leave_one_whole_artifact(s3, tokens, tmp_path):
    def one(name):
        with ngramkit.using_cache(tmp_path / name):
            build(tokens)

    threads = [threading.Thread(target=one, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with ngramkit.using_cache(tmp_path / "c"):
        assert ngramkit.verify(OUT).ok


def test_the_last_of_two_different_writers_notices(s3, tokens, cache, tmp_path, token_store):
    alike = token_store([[2 + (i * j) % 50 for j in range(40)] for i in range(12)], vocabulary=64)

    def other():
        with ngramkit.using_cache(tmp_path / "other"):
            build(alike)

    s3.faults.append(Fault(rf"PUT /bucket/out/phrases/{MANIFEST_FILE}", SLOW, called=other))
    with pytest.raises(
        InputError, match=rf"^cannot write {OUT}: another process wrote there at the same time\n"
    ):
        build(tokens)
    with pytest.raises(ArtifactError, match="differs from its manifest"):
        ngramkit.open_artifact(OUT, cache_dir=tmp_path / "reader")
    build(tokens)
    assert ngramkit.verify(OUT).ok


def test_one_process_at_a_time_builds_for_a_url(s3, tokens, cache):
    said = []

    def second():
        try:
            build(tokens)
        except InputError as error:
            said.append(str(error))

    s3.faults.append(Fault(SHARD, SLOW, called=second))
    build(tokens)
    assert said == [f"another process is building {OUT}"]


def test_an_artifact_larger_than_the_cache_stays_in_its_work_folder(s3, tokens, cache, monkeypatch):
    monkeypatch.setenv("NGRAMKIT_CACHE_SIZE", "100")
    notes = Notes()
    built = build(tokens, reporter=notes)
    assert "keeping a copy in" in notes.lines[0]
    assert built.shards
    assert built.where == OUT
    again = build(tokens)
    assert again.manifest == built.manifest


CHILD = """
import sys, ngramkit
from ngramkit.formats.tokens import TokenStore
ngramkit.build_datastore(TokenStore.open(sys.argv[1]), sys.argv[2], shard_tokens=200)
"""


@pytest.mark.attack
def test_a_killed_upload_resumes(s3, tokens, cache):
    """It is killed while its second shard arrives; whole shards are not sent again."""
    child = None

    def uploads():
        found = list((cache / "work").glob("*/uploads.json"))
        return set(json.loads(found[0].read_text())["files"]) if found else set()

    def kill():
        while len(uploads()) < 2:
            time.sleep(0.01)
        child.kill()
        child.wait()

    s3.faults.append(Fault(SHARD, CUT_UPLOAD, called=kill))
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(tokens.path), OUT])
    assert child.wait(60) == -signal.SIGKILL
    assert MANIFEST_FILE not in there(s3)
    assert "shard-00001.safetensors" not in there(s3)
    assert uploads() == {"shard-00000.safetensors", "shard-00002.safetensors"}
    s3.requests.clear()
    build(tokens)
    assert puts(s3) == ["PUT /bucket/out/phrases/shard-00001.safetensors"]
    assert ngramkit.verify(OUT).ok
