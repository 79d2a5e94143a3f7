"""Digests of tokenizers are computed once; damaged entries of the cache are not used."""

from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer

from ngramkit.basics import cache
from ngramkit.corpus import tokenizer
from ngramkit.corpus.tokenizer import Digests, digests, load_tokenizer
from ngramkit.formats.tokenizer_record import fingerprint

TEXT = {"vocabulary": 64, "fingerprint": "0" * 64, "encodes": "1" * 24}
FOUND = Digests(**TEXT)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "ngramkit" / "tokenizers"


@pytest.fixture(scope="module")
def demo():
    return load_tokenizer("demo").backend


@pytest.fixture
def backend(demo):
    return Tokenizer.from_str(demo.to_str())


@pytest.fixture
def digests_by(monkeypatch):
    """Return a function that asks for digests which `compute` would compute."""

    def ask(compute, backend):
        monkeypatch.setattr(tokenizer, "compute_digests", compute)
        return digests(backend)

    return ask


def never(backend):
    raise AssertionError("it is in the cache")


def test_digests_are_computed_once(folder, backend, digests_by):
    assert digests_by(lambda _: FOUND, backend) == FOUND
    assert digests_by(never, backend) == FOUND
    assert len(list(folder.iterdir())) == 1


def test_each_tokenizer_has_an_entry_of_its_own(folder, backend, digests_by):
    digests_by(lambda _: FOUND, backend)
    changed = [Tokenizer.from_str(backend.to_str()) for _ in range(3)]
    changed[0].add_tokens(["<another>"])
    changed[1].encode_special_tokens = True
    changed[2].normalizer = None
    body = json.loads(backend.to_str())
    assert body["normalizer"] is not None or changed.pop()
    for each in changed:
        other = FOUND._replace(vocabulary=65)
        assert digests_by(lambda _, other=other: other, each) == other


@pytest.mark.parametrize(
    "lie",
    [
        "",
        "[]",
        "null",
        "{",
        '{"vocabulary": 64}',
        json.dumps(TEXT | {"vocabulary": -1}),
        json.dumps(TEXT | {"vocabulary": 6.5}),
        json.dumps(TEXT | {"fingerprint": "\x1b[2J"}),
        json.dumps(TEXT | {"encodes": None}),
        json.dumps(TEXT | {"more": 1}),
    ],
)
def test_a_damaged_entry_is_computed_again(folder, backend, digests_by, lie):
    digests_by(lambda _: FOUND, backend)
    file = max(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    file.write_text(lie)
    other = FOUND._replace(vocabulary=65)
    assert digests_by(lambda _: other, backend) == other
    assert digests_by(never, backend) == other


def test_without_a_cache_digests_are_computed_each_time(folder, backend, digests_by):
    folder.parent.mkdir(parents=True)
    folder.write_text("a file, no folder")
    asked = []
    for _ in range(2):
        digests_by(lambda each: asked.append(each) or FOUND, backend)
    assert len(asked) == 2


def test_the_oldest_entries_are_deleted_first(folder, backend, digests_by, monkeypatch):
    monkeypatch.setattr(tokenizer, "CACHE", cache.TextCache("tokenizers", 3))
    for i in range(5):
        backend.add_tokens([f"<number {i}>"])
        digests_by(lambda _: FOUND, backend)
    assert len(list(folder.iterdir())) == 3
    assert digests_by(never, backend) == FOUND


def test_records_are_the_same_with_the_cache(folder):
    first, second = load_tokenizer("demo"), load_tokenizer("demo")
    assert first.record == second.record
    assert first.record.fingerprint == fingerprint(first.backend)
    assert cache.private_folder("tokenizers") == folder
