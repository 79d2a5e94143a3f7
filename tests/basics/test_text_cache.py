"""The user's caches keep small texts, within bounds, and fail silently."""

from __future__ import annotations

import os

import pytest

from ngramkit.basics.cache import TextCache


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "ngramkit" / "texts"


def put_all(cache, folder, *sizes):
    """Put texts "0", "1", ... of these sizes, each written a second after the one before."""
    for key, size in enumerate(sizes):
        assert cache.put(str(key), "x" * size)
        os.utime(folder / str(key), (1000 + key, 1000 + key))


def test_a_text_is_kept_and_replaced(folder):
    cache = TextCache("texts", 10)
    assert cache.get("a") is None
    for text in ("one", "zwölf\n"):
        assert cache.put("a", text)
        assert cache.get("a") == text
    assert [path.name for path in folder.iterdir()] == ["a"]
    assert folder.stat().st_mode & 0o077 == 0


def test_the_texts_written_first_are_deleted(folder):
    put_all(TextCache("texts", 3), folder, 1, 1, 1, 1, 1)
    assert sorted(path.name for path in folder.iterdir()) == ["2", "3", "4"]


def test_bytes_are_bounded_too(folder):
    put_all(TextCache("texts", 10, 100), folder, 60, 30, 50)
    assert sorted(path.name for path in folder.iterdir()) == ["1", "2"]


def test_unreadable_texts_and_folders_are_missing_ones(folder):
    cache = TextCache("texts", 10)
    assert cache.put("a", "one")
    (folder / "a").write_bytes(b"\xff\xfe")
    assert cache.get("a") is None
    (folder / "b").mkdir()
    assert cache.get("b") is None
    assert not cache.put("b", "one")
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]
    folder.chmod(0o755)  # no longer the user's alone
    assert not cache.put("c", "one")
    assert cache.get("a") is None
