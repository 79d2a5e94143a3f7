"""Corpora in a real S3 server: reading, listing, and errors."""

from __future__ import annotations

import json

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty_proxy import CUT, DROP, SLOW, STALL, Fault

from ngramkit.basics.errors import InputError, NetworkError
from ngramkit.corpus.open import open_corpus


@pytest.fixture
def texts(s3, tmp_path):
    """s3://bucket/texts with three files."""
    lines = "\n".join(json.dumps({"text": f"line {i}"}) for i in range(200))
    s3.storage.pipe("bucket/texts/a.jsonl", lines.encode())
    pq.write_table(pa.table({"text": ["row 0", "row 1"]}), tmp_path / "b.parquet")
    s3.storage.put_file(str(tmp_path / "b.parquet"), "bucket/texts/b.parquet")
    s3.storage.pipe("bucket/texts/deep/c.txt", b"deep")
    s3.requests.clear()
    return s3


def read(name):
    return [document.text for document in open_corpus(name).documents()]


EVERYTHING = [*(f"line {i}" for i in range(200)), "row 0", "row 1", "deep"]


def test_a_folder_a_glob_and_a_file(texts):
    assert read("s3://bucket/texts") == EVERYTHING
    assert read("s3://bucket/texts/**/*.txt") == ["deep"]
    assert read("s3://bucket/texts/*.parquet") == ["row 0", "row 1"]
    assert read("s3://bucket/texts/deep/c.txt") == ["deep"]


def test_a_change_is_seen_by_the_same_process(texts):
    before = open_corpus("s3://bucket/texts").record()
    assert before == open_corpus("s3://bucket/texts").record()
    texts.storage.pipe("bucket/texts/new.txt", b"new")
    assert open_corpus("s3://bucket/texts").record()["files"] == before["files"] + 1


@pytest.mark.parametrize("kind", [CUT, DROP, SLOW, 503])
def test_a_connection_that_fails_once_is_tried_again(texts, kind):
    texts.faults.append(Fault(r"GET /bucket/texts/a.jsonl", kind))
    assert read("s3://bucket/texts") == EVERYTHING
    assert texts.faults[0].times == 0


def test_a_stalled_connection_is_retried_and_a_dead_one_is_one_line(texts, impatient, strange):
    strange.setattr(fsspec.get_filesystem_class("s3"), "retries", 2)
    texts.faults.append(Fault(r"GET /bucket/texts/a.jsonl", STALL))
    assert read("s3://bucket/texts") == EVERYTHING
    texts.faults.append(Fault(r"GET /bucket/texts/a.jsonl", 503, 99, "ServiceUnavailable"))
    with pytest.raises(NetworkError, match=r"cannot read .*a\.jsonl: .*503 ServiceUnavailable\n"):
        read("s3://bucket/texts/a.jsonl")


def test_missing_files_and_denied_access(texts, strange):
    with pytest.raises(InputError, match=r"gone\.txt: it does not exist"):
        read("s3://bucket/texts/gone.txt")
    with pytest.raises(InputError, match=r"does not exist|no file matches"):
        read("s3://no-such-bucket/*.txt")
    texts.faults.append(Fault(r"bucket/texts", 403, times=99, code="InvalidAccessKeyId"))
    with pytest.raises(NetworkError, match=r"no permission: 403") as refused:
        read("s3://bucket/texts/a.jsonl")
    assert "AWS_ACCESS_KEY_ID" in refused.value.hint
    texts.faults.clear()
    type(texts.storage).clear_instance_cache()
    with strange.context() as guarded:
        guarded.setattr("moto.settings.INITIAL_NO_AUTH_ACTION_COUNT", 0)  # it knows nobody
        with pytest.raises(NetworkError, match="no permission: 403"):
            read("s3://bucket/texts/a.jsonl")
    type(texts.storage).clear_instance_cache()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        strange.delenv(name)
    strange.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(NetworkError, match="not logged in"):
        read("s3://bucket/texts/a.jsonl")
