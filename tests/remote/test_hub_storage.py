"""The Hub as a storage, on loopback: files of datasets, and buckets that are read and written."""

from __future__ import annotations

import hub_buckets
import pytest
from hub_datasets import TEXT
from hub_standin import TOKEN, Fault

import ngramkit
from ngramkit.basics.errors import ArtifactError, InputError, NetworkError
from ngramkit.corpus.open import open_corpus

OUT = "hf://buckets/acme/ours/phrases"


@pytest.fixture
def bucket(hub, tmp_path, monkeypatch):
    """hub.buckets["acme/ours"], for a client that is logged in."""
    from huggingface_hub import HfFileSystem, constants

    for name, value in {**hub.environment(tmp_path / "home", TOKEN), **hub_buckets.XET}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
    url = hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url)
    HfFileSystem.clear_instance_cache()
    hub.buckets["acme/ours"] = {}
    hub.requests.clear()
    yield hub.buckets["acme/ours"]
    hub.faults.clear()
    HfFileSystem.clear_instance_cache()


def texts(name):
    return [document.text for document in open_corpus(name).documents()]


def test_files_of_a_dataset_and_of_a_bucket(hub, bucket):
    hub.add("dataset", "acme/files", {"a.txt": b"one", "deep/b.jsonl": b'{"text": "two"}\n'})
    assert texts("hf://datasets/acme/files/a.txt") == ["one"]
    assert texts("hf://datasets/acme/files/**/*.jsonl") == ["two"]
    assert texts("hf://datasets/acme/files") == ["one", "two"]
    before = open_corpus("hf://datasets/acme/files").record()
    hub.add("dataset", "acme/files", {"a.txt": b"ten", "deep/b.jsonl": b'{"text": "two"}\n'})
    assert open_corpus("hf://datasets/acme/files").record() != before
    bucket.update({"t/a.txt": TEXT.encode(), "t/deep/b.txt": b"below"})
    assert texts("hf://buckets/acme/ours/t") == [TEXT, "below"]
    assert texts("hf://buckets/acme/ours/t/*.txt") == [TEXT]


def test_missing_files(hub, bucket):
    with pytest.raises(InputError, match="does not exist"):
        texts("hf://datasets/acme/no-such/a.txt")
    with pytest.raises(InputError, match="does not exist"):
        texts("hf://buckets/acme/no-such/a.txt")
    with pytest.raises(ArtifactError, match=r"hf://buckets/acme/ours/x: it has no manifest\.json"):
        ngramkit.open_artifact("hf://buckets/acme/ours/x")


def test_an_artifact_in_a_bucket_written_and_opened(hub, bucket, tokens, cache, tmp_path):
    built = ngramkit.build_datastore(tokens, OUT, shard_tokens=200)
    assert built.where == OUT
    assert {path.rpartition("/")[2] for path in bucket} == {
        *built.manifest.files, "manifest.json", "README.md"
    }  # fmt: skip
    for name in built.manifest.files:
        assert bucket[f"phrases/{name}"] == (built.path / name).read_bytes()
    with ngramkit.using_cache(tmp_path / "another machine"):
        assert ngramkit.verify(OUT).ok
    hub.requests.clear()
    again = ngramkit.build_datastore(tokens, OUT, shard_tokens=200)
    assert again.manifest == built.manifest
    assert not [each for each in hub.requests if each.startswith("POST")]


def test_a_bucket_that_fails(hub, bucket, datastore, cache, monkeypatch):
    for file in datastore.path.iterdir():
        bucket[f"phrases/{file.name}"] = file.read_bytes()
    hub.faults.append(Fault(r"GET /buckets/.*shard-00001", 503))
    hub.faults.append(Fault(r"GET /buckets/.*shard-00002", -1))
    assert ngramkit.open_artifact(OUT).manifest == datastore.manifest
    assert not any(fault.times for fault in hub.faults)
    hub.faults[:] = [Fault(r"GET /buckets/.*manifest", 403, times=99)]
    with pytest.raises(NetworkError, match="no permission: 403") as refused:
        ngramkit.open_artifact(OUT)
    assert "HF_TOKEN" in refused.value.hint
