"""Corpora behind URLs: listed, pinned, read; nothing secret of a URL is written anywhere."""

import gzip
import json
import socket
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reporters import Notes

import ngramkit
from ngramkit.basics.errors import InputError, NetworkError, UsageError
from ngramkit.corpus.open import open_corpus
from ngramkit.remote.urls import as_path, as_url, is_url


@pytest.fixture
def bucket():
    """Fill memory://bucket with files of several kinds."""
    storage = fsspec.filesystem("memory")
    lines = "\n".join(json.dumps({"text": f"line {i}"}) for i in range(3))
    table = pa.table({"text": ["row 0", "row 1"]})
    storage.pipe("/bucket/a.jsonl", lines.encode())
    storage.pipe("/bucket/deep/b.txt.gz", gzip.compress(b"packed"))
    with storage.open("/bucket/c.parquet", "wb") as file:
        pq.write_table(table, file)
    storage.pipe("/bucket/d.bin", b"\0")
    storage.pipe("/bucket/list/e.json", b'[{"text": "one"}, {"text": "two"}]')
    yield storage
    storage.rm("/bucket", recursive=True)


def texts(name, **options):
    return [document.text for document in open_corpus(name, **options).documents()]


def test_a_file_a_folder_and_a_glob(bucket):
    assert texts("memory://bucket/a.jsonl") == ["line 0", "line 1", "line 2"]
    everything = ["line 0", "line 1", "line 2", "row 0", "row 1", "packed", "one", "two"]
    assert texts("memory://bucket") == everything  # d.bin is passed over
    assert texts("memory://bucket/*.parquet") == ["row 0", "row 1"]
    assert texts("memory://bucket/**/*.gz") == ["packed"]
    assert texts("memory://bucket/list/e.json") == ["one", "two"]
    assert texts("memory://bucket/a.jsonl", limit=2) == ["line 0", "line 1"]


def test_a_server_that_cannot_be_reached_is_no_missing_file():
    pytest.importorskip("aiohttp", reason="what fsspec reads http with")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/a.jsonl"
        with pytest.raises(NetworkError, match="the connection failed"):
            texts(url)


def test_sessions_and_private_tables_at_urls_are_private(bucket):
    line = {"type": "user", "uuid": "a", "sessionId": "s", "parentUuid": None, "cwd": "/",
            "message": {"role": "user", "content": "Fix it."}}  # fmt: skip
    answer = line | {"type": "assistant", "uuid": "b", "parentUuid": "a"} | {
        "message": {"role": "assistant", "id": "m", "content": [{"type": "text", "text": "Done."}]}
    }  # fmt: skip
    both = "\n".join(map(json.dumps, (line, answer)))
    bucket.pipe("/bucket/work/index.json", b"{}")
    bucket.pipe("/bucket/work/s.jsonl.gz", gzip.compress(both.encode()))
    bucket.pipe("/bucket/lines.json", both.encode())
    bucket.pipe("/bucket/list.json", json.dumps([line, answer]).encode())
    with bucket.open("/bucket/export.parquet", "wb") as file:
        table = pa.table({"text": ["mine"]}).replace_schema_metadata({"private": "true"})
        pq.write_table(table, file)
    corpus = open_corpus("memory://bucket/work")
    assert corpus.private
    assert [document.text for document in corpus.documents()] == ["Fix it.", "Done."]
    assert open_corpus("memory://bucket/work/*.gz", column="message").private
    assert open_corpus("memory://bucket/lines.json").private
    assert open_corpus("memory://bucket/list.json").private
    assert open_corpus("memory://bucket/export.parquet").private
    assert not open_corpus("memory://bucket/c.parquet").private


def test_other_kinds_of_files_in_a_folder_are_counted(bucket):
    for name in ("a.txt", "b.png", "sub/c.bin", ".git/d.bin"):
        bucket.pipe(f"/bucket/mixed/{name}", b"a")
    notes = Notes()
    assert texts("memory://bucket/mixed", reporter=notes) == ["a"]
    assert "skipped in mixed: 2 files (of kinds that are not read)" in notes


def test_artifacts_among_texts_are_skipped(bucket):
    bucket.pipe("/bucket/built/manifest.json", b'[{"text": "of an artifact"}]')
    bucket.pipe("/bucket/built/README.md", b"its card")
    bucket.pipe("/bucket/built/shard-00000.safetensors", b"")
    assert not {"of an artifact", "its card"} & set(texts("memory://bucket"))


def test_the_record_changes_with_the_files(bucket):
    corpus = open_corpus("memory://bucket/*.jsonl")
    assert corpus.id == "bucket/*.jsonl"
    record = corpus.record()
    assert record == open_corpus("memory://bucket/*.jsonl").record()
    assert record["files"] == 1
    bucket.pipe("/bucket/a.jsonl", b'{"text": "other"}')
    assert open_corpus("memory://bucket/*.jsonl").record() != record


def test_urls_are_mixed_and_built_from_like_files(bucket, tmp_path):
    mixed = ["memory://bucket/a.jsonl", ("memory://bucket/c.parquet", 0.9)]
    store = ngramkit.tokenize(mixed, "demo", tmp_path / "t")
    assert store.manifest.corpus["mixed"][0]["id"] == "a.jsonl"
    assert 3 <= store.manifest.counts["documents"] <= 5


def test_missing_and_unreadable_files(bucket, monkeypatch):
    with pytest.raises(InputError, match=r"cannot read bucket/\*.csv: no file matches"):
        open_corpus("memory://bucket/*.csv")
    with pytest.raises(InputError, match=r"gone.txt: it does not exist"):
        open_corpus("memory://bucket/gone.txt")
    with pytest.raises(InputError, match=r"d\.bin: its kind of file is not supported"):
        open_corpus("memory://bucket/d.bin")
    with pytest.raises(UsageError, match="unknown protocol nosuch://"):
        open_corpus("nosuch://bucket/a.txt")
    with pytest.raises(UsageError, match="cannot open local:"):
        open_corpus("local:///etc/passwd")
    with pytest.raises(UsageError, match="a Hub URL must be"):
        open_corpus("hf://me/texts")
    with pytest.raises(UsageError, match="cannot open memory:"):
        open_corpus("memory://bucket/a.zip::memory://bucket/a.jsonl")
    with pytest.raises(UsageError, match="cannot use revision for"):
        open_corpus("memory://bucket/a.jsonl", revision="main")
    bucket.pipe("/bucket/cut.txt.gz", gzip.compress(b"packed" * 1000)[:30])
    with pytest.raises(InputError, match=r"cut.txt.gz is damaged"):
        texts("memory://bucket/cut.txt.gz")
    bucket.pipe("/bucket/large.txt", b"x" * 200)
    with pytest.raises(InputError, match="more than 100 bytes"):
        list(open_corpus("memory://bucket/large.txt", max_document=100).documents())


def test_a_storage_that_needs_a_package_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)  # import gcsfs fails
    with pytest.raises(UsageError, match=r"gs://") as caught:
        open_corpus("gs://bucket/*.jsonl")
    assert "pip install 'ngramkit[cloud]'" in caught.value.hint


def test_a_failing_storage_is_an_error_of_one_line(bucket, monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("secret-token\n\x1b[2J")

    monkeypatch.setattr(type(bucket), "info", refuse)
    with pytest.raises(NetworkError, match=r"^cannot read a.jsonl: RuntimeError\n"):
        open_corpus("memory://bucket/a.jsonl")


def test_names_that_are_urls():
    assert is_url("s3://bucket/a")
    assert is_url("https://host/a.jsonl")
    assert not any(map(is_url, [r"C:\texts", "C://texts", "hf:me/data", "./a", "a:0.3"]))
    assert as_url("hf://buckets/me/b/x") == "hf://buckets/me/b/x"
    assert as_url(Path("s3://bucket/a/b")) == "s3://bucket/a/b"  # which pathlib makes s3:/bucket
    assert not any(map(as_url, ["hf://me/table", Path("hf://me/table"), "a/b", "file:///a"]))


def test_a_file_url_is_the_path_itself(tmp_path):
    (tmp_path / "two words.txt").write_text("here")
    url = (tmp_path / "two words.txt").as_uri()
    assert texts(url) == ["here"]
    assert open_corpus(url).record() == open_corpus(str(tmp_path / "two words.txt")).record()
    assert as_path(Path(url)) == tmp_path / "two words.txt"
    for wrong in ("file://elsewhere/etc/passwd", "file:notes.txt"):
        with pytest.raises(UsageError, match="absolute path on this machine"):
            as_path(wrong)


def test_files_of_a_web_server_and_no_secret_of_their_url(tmp_path):
    pytest.importorskip("aiohttp", reason="what fsspec reads https with")
    (tmp_path / "a.jsonl").write_text('{"text": "over the wire"}')
    pq.write_table(pa.table({"text": ["row 0"]}), tmp_path / "b.parquet")
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        corpus = open_corpus(f"{url}/a.jsonl?signature=secret")
        assert [document.text for document in corpus.documents()] == ["over the wire"]
        assert "secret" not in json.dumps(corpus.record()) + corpus.id
        assert corpus.id == "a.jsonl"
        assert texts(f"{url}/b.parquet") == ["row 0"]
        with pytest.raises(InputError, match=r"gone.txt: it does not exist"):
            open_corpus(f"{url}/gone.txt")
        server.shutdown()
