"""Several processes at one name: one waits or refuses, both end whole, and readers never fail."""

from __future__ import annotations

import multiprocessing
import threading

import numpy as np
import pytest

from ngramkit.basics.errors import InputError
from ngramkit.evaluate.bench_runs import alone_in
from ngramkit.exchange.text import is_jsonl
from ngramkit.formats import replacing
from ngramkit.formats.opening import verify_artifact
from ngramkit.formats.replacing import partial_of, whole_file
from ngramkit.formats.resumable_writer import ArtifactWriter
from ngramkit.formats.tokenizer_record import TokenizerRecord
from ngramkit.formats.tokens import TokenStore
from ngramkit.hub.pull import pull

from . import tally

RECORD = TokenizerRecord("small", 100, "f" * 64, 1)
FORKED = multiprocessing.get_context("fork")
REBUILDS = 40


def write(path, number):
    """Build a store whose every token is `number`."""
    with ArtifactWriter(path, "tokens", {"number": number}, force=True) as writer:
        tokens, ends = np.full(2000, number, np.uint16), np.array([0, 2000], np.uint64)
        writer.write("shard-00000.safetensors", {"tokens": tokens, "documents": ends})
        writer.commit(
            RECORD,
            parameters={"eos": False, "shard_tokens": 2000},
            corpus={"id": str(number)},
            counts={"documents": 1, "tokens": 2000},
        )


def rebuild(path):
    for number in range(1, REBUILDS):
        write(path, number)


def test_readers_of_what_is_rebuilt_see_the_old_or_the_new(tmp_path):
    write(tmp_path / "x", 0)
    builder = FORKED.Process(target=rebuild, args=(tmp_path / "x",))
    builder.start()
    opened = 0
    while builder.is_alive():
        store = TokenStore.open(tmp_path / "x")
        number = int(store.manifest.corpus["id"])
        assert set(np.unique(store.shards[0].tokens)) == {number}
        opened += 1
    assert builder.exitcode == 0
    tally("opened while it is rebuilt with --force", "the old one or the new, whole", opened)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_readers_where_the_system_exchanges_nothing(tmp_path, monkeypatch):
    """After a kill between the two renames the old one is found, and the next build repairs it."""
    monkeypatch.setattr(replacing, "exchange_names", lambda one, other: False)
    write(tmp_path / "x", 0)
    write(tmp_path / "x", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    (tmp_path / "x").rename(replacing.path_of_replaced(tmp_path / "x"))  # as such a kill leaves it
    write(tmp_path / "x", 1)
    assert list(verify_artifact(tmp_path / "x"))
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_two_exports_to_one_file(tmp_path):
    path, refused = tmp_path / "x.jsonl", []

    def second():
        try:
            with whole_file(path, is_jsonl, force=True) as file:
                file.write(b'"second"\n')
        except InputError as error:
            refused.append(str(error))

    with whole_file(path, is_jsonl, force=True) as file:
        file.write(b'"first"\n')
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert path.read_text() == '"first"\n'
    assert "another process" in refused[0]
    second()
    assert path.read_text() == '"second"\n'
    assert [path.name for path in tmp_path.iterdir()] == ["x.jsonl"]
    tally("two exports to one --out", "one refused, the other whole")


def test_a_build_and_a_pull_to_one_folder(tmp_path):
    plan = {"number": 0}
    with ArtifactWriter(tmp_path / "x", "tokens", plan), pytest.raises(InputError, match="another"):
        pull("acme/x", tmp_path / "x", force=True)
    assert not partial_of(tmp_path / "x").exists()
    tally("a build and a pull to one --out", "one refused")


def test_two_benchmarks_in_one_folder(tmp_path):
    folder = tmp_path / "new" / "bench"
    refused = pytest.raises(InputError, match="another benchmark is writing to")
    with alone_in(folder), refused, alone_in(folder):
        raise AssertionError("both measure")
    with alone_in(folder):
        pass
    assert not list(folder.parent.iterdir())
    tally("two benchmarks in one folder", "one refused")


def test_a_file_that_is_no_export_is_not_replaced(tmp_path):
    path = tmp_path / "thesis.doc"
    path.write_text("years of work")
    refused = pytest.raises(Exception, match="cannot replace")
    with refused, whole_file(path, is_jsonl, force=True):
        raise AssertionError("it was opened")
    assert path.read_text() == "years of work"
    tally("--force over what ngramkit did not write", "refused, untouched")
