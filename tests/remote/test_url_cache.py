"""Artifacts by URL: fetched when they are opened, proven, staged within a bound."""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from faulty_proxy import CHANGED, CUT, DROP, SLOW, Fault

import ngramkit
from ngramkit.basics.errors import ArtifactError, InputError, NetworkError, UsageError
from ngramkit.remote.url_cache import Cache

SHARD = r"GET /bucket/phrases/shard-00001"


def gets(s3, name):
    return [each for each in s3.requests if each.startswith("GET") and name in each]


def blobs(cache):
    return sorted(p for p in (cache / "blobs").iterdir() if len(p.name) == 64)


def test_an_artifact_is_fetched_once_and_opens_as_the_local_one(s3, uploaded, datastore, cache):
    opened = ngramkit.open_artifact(uploaded)
    assert opened.manifest == datastore.manifest
    for name in datastore.manifest.files:
        assert (opened.path / name).read_bytes() == (datastore.path / name).read_bytes()
    assert opened.path.is_relative_to(cache)
    assert len(gets(s3, "shard-")) == len(datastore.manifest.files) == 3
    again = ngramkit.open_artifact(Path(uploaded))  # pathlib takes a slash of it
    assert again.path == opened.path
    assert len(gets(s3, "shard-")) == 3
    assert len(gets(s3, "manifest.json")) == 2  # what is opened is what is there now
    assert ngramkit.verify(uploaded).ok


def test_verify_notices_what_is_missing_at_the_url_of_a_cached_artifact(s3, uploaded, cache):
    name = min(ngramkit.open_artifact(uploaded).manifest.files)
    s3.storage.rm_file(f"bucket/phrases/{name}")
    with pytest.raises(ArtifactError, match=f"it lists {name} but does not hold it"):
        ngramkit.verify(uploaded)


def test_several_at_once_fetch_each_shard_once(s3, uploaded, datastore, cache):
    with ThreadPoolExecutor(4) as pool:
        opened = list(pool.map(ngramkit.open_artifact, [uploaded] * 4))
    assert {each.path for each in opened} == {opened[0].path}
    assert len(gets(s3, "shard-")) == 3


def test_a_killed_processs_files_are_no_shards_and_are_deleted_after_a_day(s3, uploaded, cache):
    """It had fetched half of one shard, and linked one whose blob never came."""
    name, record = next(iter(ngramkit.open_artifact(uploaded).manifest.files.items()))
    (cache / "blobs" / record.sha256).unlink()
    left = cache / "incoming" / f"{record.sha256}.99999"
    left.write_bytes(b"half")
    s3.requests.clear()
    assert ngramkit.verify(uploaded).ok
    assert gets(s3, "shard-") == [f"GET /bucket/phrases/{name}"]
    assert left.exists()
    os.utime(left, (1000, 1000))
    (cache / "blobs" / record.sha256).unlink()
    assert ngramkit.open_artifact(uploaded)
    assert not left.exists()


def test_builders_and_drafters_take_urls(s3, token_store, tmp_path, cache):
    store = token_store([[1, 2, 3, 4]] * 20, vocabulary=16)
    for file in store.path.iterdir():
        s3.storage.put_file(str(file), f"bucket/tokens/{file.name}")
    built = ngramkit.build_datastore("s3://bucket/tokens", tmp_path / "a")
    assert built.manifest == ngramkit.build_datastore(store, tmp_path / "b").manifest
    for file in built.path.iterdir():
        s3.storage.put_file(str(file), f"bucket/a/{file.name}")
    choice = ngramkit.choose_drafter("rest", store.tokenizer, "s3://bucket/a")
    assert choice.load().draft is not None


def test_a_url_of_text_is_no_token_store(s3, tmp_path, cache, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the token store between goes to artifacts/
    s3.storage.pipe("bucket/texts/a.txt", b"some text for a corpus")
    built = ngramkit.build_datastore("s3://bucket/texts", tmp_path / "a", model="demo")
    assert built.manifest.corpus["id"] == "texts"


@pytest.mark.parametrize("kind", [CUT, DROP, SLOW, CHANGED, 503])
def test_a_transfer_that_fails_once_is_tried_again(s3, uploaded, datastore, cache, kind):
    s3.faults.append(Fault(SHARD, kind))
    assert ngramkit.open_artifact(uploaded).manifest == datastore.manifest
    assert s3.faults[0].times == 0


@pytest.mark.parametrize(
    ("kind", "error", "said"),
    [
        (503, NetworkError, "503 ServiceUnavailable"),
        (DROP, NetworkError, "the connection failed"),
        (CHANGED, NetworkError, "checksum differs"),
        (403, NetworkError, "no permission: 403"),
    ],
)
def test_a_transfer_that_keeps_failing_is_one_line_and_leaves_nothing_partial(
    s3, uploaded, cache, impatient, kind, error, said
):
    code = "AccessDenied" if kind == 403 else "ServiceUnavailable"
    s3.faults.append(Fault(SHARD, kind, times=999, code=code))
    with pytest.raises(error, match=said) as raised:
        ngramkit.open_artifact(uploaded)
    assert "shard-00001" in str(raised.value)
    assert raised.value.hint
    assert "\n" not in str(raised.value)
    assert not [p for p in (cache / "incoming").iterdir() if p.suffix != ".lock"]
    assert len(blobs(cache)) <= 2
    fetched = len(blobs(cache))
    s3.faults.clear()
    s3.requests.clear()
    assert ngramkit.open_artifact(uploaded)  # what had come is kept
    assert len(gets(s3, "shard-")) == 3 - fetched


def test_a_shard_that_is_missing_short_or_another(s3, uploaded, datastore, cache):
    whole = (datastore.path / "shard-00001.safetensors").read_bytes()
    s3.storage.pipe("bucket/phrases/shard-00001.safetensors", whole[:-1] + b"?")
    with pytest.raises(ArtifactError, match=r"differs from its manifest \(sha256\)"):
        ngramkit.open_artifact(uploaded)
    s3.storage.pipe("bucket/phrases/shard-00001.safetensors", whole[:-8])
    with pytest.raises(ArtifactError, match=r"\(size\)"):
        ngramkit.open_artifact(uploaded)
    s3.storage.rm("bucket/phrases/shard-00001.safetensors")
    with pytest.raises(ArtifactError, match=r"lists shard-00001\.safetensors but does not hold it"):
        ngramkit.open_artifact(uploaded)


def test_an_artifact_on_a_web_server_that_knows_no_ranges(datastore, cache, monkeypatch):
    pytest.importorskip("aiohttp", reason="what fsspec reads http with")
    monkeypatch.setattr("ngramkit.remote.urls.DOWNLOADED_BLOCK_BYTES", 1000)
    handler = partial(SimpleHTTPRequestHandler, directory=datastore.path.parent)
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://me:secret@127.0.0.1:{server.server_port}/phrases"
        opened = ngramkit.open_artifact(url)
        assert opened.manifest == datastore.manifest
        assert opened.where == f"http://127.0.0.1:{server.server_port}/phrases"
        choice = ngramkit.choose_drafter("rest", opened.tokenizer, url)
        assert choice.names == [opened.where]
        server.shutdown()


def test_urls_without_an_artifact(s3, datastore, cache):
    s3.storage.pipe("bucket/x/manifest.json", b"{}")
    with pytest.raises(ArtifactError, match=r"s3://bucket/x/manifest\.json: it is not an ngramkit"):
        ngramkit.open_artifact("s3://bucket/x")
    with pytest.raises(ArtifactError, match=r"s3://bucket/y: it has no manifest\.json"):
        ngramkit.open_artifact("s3://bucket/y")
    body = json.loads((datastore.path / "manifest.json").read_text())
    del body["checksum"]
    body["kind"] = "of tomorrow"
    s3.storage.pipe("bucket/z/manifest.json", json.dumps(body).encode())
    with pytest.raises(ArtifactError, match=r"'of tomorrow' of s3://bucket/z"):
        ngramkit.open_artifact("s3://bucket/z")
    assert not gets(s3, "shard-")  # before anything is fetched
    with pytest.raises(UsageError, match="unknown protocol nosuch://"):
        ngramkit.open_artifact("nosuch://bucket/y")


def test_names_in_a_manifest_cannot_leave_the_cache(s3, uploaded, datastore, cache):
    for name in ("../../escaped", "/etc/passwd", "a/b", "..", "README.md"):
        body = json.loads((datastore.path / "manifest.json").read_text())
        body["files"][name] = body["files"].pop("shard-00001.safetensors")
        del body["checksum"]
        s3.storage.pipe("bucket/phrases/manifest.json", json.dumps(body).encode())
        with pytest.raises(ArtifactError, match=r"not inside its folder|holds no arrays"):
            ngramkit.open_artifact(uploaded)
        assert not list(cache.rglob("*escaped*"))
        assert not gets(s3, "shard-")


def test_sizes_in_a_manifest_are_not_believed(s3, uploaded, datastore, cache):
    body = json.loads((datastore.path / "manifest.json").read_text())
    body["files"]["shard-00001.safetensors"]["bytes"] = 1 << 60
    del body["checksum"]
    s3.storage.pipe("bucket/phrases/manifest.json", json.dumps(body).encode())
    with pytest.raises(InputError, match=r"s3://bucket/phrases: it has 1,152,.* bytes, .* may"):
        ngramkit.open_artifact(uploaded)
    assert not gets(s3, "shard-")


def test_a_damaged_blob_is_fetched_again(s3, uploaded, datastore, cache):
    ngramkit.open_artifact(uploaded)
    blob = blobs(cache)[0]
    blob.chmod(0o600)
    raw = bytearray(blob.read_bytes())
    raw[-1] ^= 1
    blob.write_bytes(raw)
    opened = ngramkit.open_artifact(uploaded)
    for name in datastore.manifest.files:
        assert (opened.path / name).read_bytes() == (datastore.path / name).read_bytes()


def test_the_blob_unused_longest_is_deleted_first(s3, uploaded, datastore, cache, token_store):
    other = token_store([[1, 2, 3]] * 200, vocabulary=16)
    for file in other.path.iterdir():
        s3.storage.put_file(str(file), f"bucket/other/{file.name}")
    size = datastore.manifest.bytes
    opened = ngramkit.open_artifact(uploaded, cache_size=size)
    for at, blob in enumerate(sorted(blobs(cache))):
        os.utime(blob.with_name(f"{blob.name}.used"), (1000 + at, 1000 + at))
    oldest = min(blobs(cache))
    ngramkit.open_artifact("s3://bucket/other", cache_size=size)
    assert oldest not in blobs(cache)
    assert Cache(cache, size).total_bytes() <= size
    assert opened.shards[0].tokens.sum() > 0  # mapped, so it stays this process's
    s3.requests.clear()
    ngramkit.open_artifact(uploaded, cache_size=f"{size}")
    assert 1 <= len(gets(s3, "shard-")) < 3
    with pytest.raises(InputError, match=r"may hold 100\n") as raised:
        ngramkit.open_artifact(uploaded, cache_dir=cache / "new", cache_size=100)
    assert raised.value.option == ("cache_size", "cache_dir")


def test_an_unfinished_upload_is_not_opened(s3, uploaded, datastore, cache, token_store):
    """Somebody replaces the artifact between manifest and shards: the new one is opened."""
    other = token_store([[4, 5, 6]] * 100, vocabulary=16)

    def replace():
        for file in other.path.iterdir():
            s3.storage.put_file(str(file), f"bucket/phrases/{file.name}")

    name = "shard-00000.safetensors"
    s3.faults.append(Fault(rf"GET /bucket/phrases/{name}", SLOW, called=replace))
    assert ngramkit.open_artifact(uploaded).manifest == other.manifest
