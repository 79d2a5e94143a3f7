"""A real S3 server on loopback, and a proxy before it that can fail."""

from __future__ import annotations

import fsspec
import pytest
from faulty_proxy import FaultyProxy

from ngramkit.builders.datastore import build_datastore

KEY = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}


@pytest.fixture(scope="session")
def s3_server():
    """Yield (host, port) of moto's S3."""
    pytest.importorskip("s3fs", reason="make cloud installs it")
    server = pytest.importorskip("moto.server", reason="make cloud installs it")
    thread = server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    thread.start()
    yield thread.get_host_and_port()
    thread.stop()


@pytest.fixture(scope="session")
def proxy(s3_server):
    """One session for all clients: a new one reads the descriptions of every service again."""
    with FaultyProxy(*s3_server) as proxy:
        yield proxy


@pytest.fixture
def s3(proxy, tmp_path, monkeypatch):
    """Yield the proxy before an empty bucket, s3://bucket/... in this process."""
    settings = {**KEY, "AWS_ENDPOINT_URL": proxy.endpoint, "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_CONFIG_FILE": str(tmp_path / "none"), "AWS_MAX_ATTEMPTS": "2",
                "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none")}  # fmt: skip
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    proxy.storage = fsspec.filesystem("s3")
    proxy.storage.invalidate_cache()
    if not proxy.storage.exists("bucket"):
        proxy.storage.mkdir("bucket")
    for name in proxy.storage.find("bucket"):
        proxy.storage.rm_file(name)
    proxy.requests.clear()
    yield proxy
    proxy.faults.clear()
    proxy.storage.invalidate_cache()


@pytest.fixture
def strange(s3, monkeypatch):
    """Make clients anew for this test, with its own settings."""
    kind = type(s3.storage)
    kind.clear_instance_cache()
    yield monkeypatch
    kind.clear_instance_cache()


@pytest.fixture
def impatient(strange):
    """Make clients wait for a second only, and never retry."""
    strange.setenv("AWS_MAX_ATTEMPTS", "1")
    strange.setattr(fsspec.get_filesystem_class("s3"), "retries", 1)
    strange.setitem(fsspec.config.conf, "s3", {"config_kwargs": {"read_timeout": 1}})


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder in which this test's artifacts are staged."""
    monkeypatch.setenv("NGRAMKIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("NGRAMKIT_CACHE_SIZE", raising=False)
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def tokens(token_store):
    return token_store([[1 + (i * j) % 50 for j in range(40)] for i in range(12)], vocabulary=64)


@pytest.fixture(scope="session")
def datastore(tokens, tmp_path_factory):
    """A small datastore of three shards."""
    out = tmp_path_factory.mktemp("built") / "phrases"
    return build_datastore(tokens, out, shard_tokens=200)


@pytest.fixture
def uploaded(s3, datastore):
    """Upload the datastore to s3://bucket/phrases."""
    for file in datastore.path.iterdir():
        s3.storage.put_file(str(file), f"bucket/phrases/{file.name}")
    s3.requests.clear()
    return "s3://bucket/phrases"
