"""Where compiled kernels go when nobody may write where they belong, and that compiling is said."""

from __future__ import annotations

import os
import stat

from numba import config, njit

from ngramkit.kernels import cache
from ngramkit.kernels.notice import NOTICE, SAID, Once


def test_without_a_place_kernels_go_to_a_private_temporary_folder(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(config, "CACHE_DIR", "/proc/nowhere")
    monkeypatch.setattr(cache, "places", lambda: [tmp_path / "file" / "below"])
    (tmp_path / "file").write_text("a file")
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(tmp_path))
    cache.prepare()
    chosen = tmp_path / f"ngramkit-kernels-{os.getuid()}"
    assert str(chosen) == config.CACHE_DIR
    assert stat.S_IMODE(chosen.stat().st_mode) == 0o700
    assert "cannot be kept" in caplog.text


def test_a_folder_that_others_can_write_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(tmp_path))
    theirs = tmp_path / f"ngramkit-kernels-{os.getuid()}"
    theirs.mkdir()
    theirs.chmod(0o777)
    assert cache.own_temporary() != theirs
    theirs.rmdir()
    theirs.symlink_to(tmp_path)
    assert cache.own_temporary() != theirs


def test_where_kernels_can_be_written_nothing_changes(tmp_path, monkeypatch):
    before = config.CACHE_DIR
    monkeypatch.setattr(cache, "places", lambda: [tmp_path / "new"])
    cache.prepare()
    assert before == config.CACHE_DIR


def test_compiling_is_said_once(caplog):
    from numba.core import event

    listener = Once()
    event.register("numba:compile", listener)
    with caplog.at_level(NOTICE, "ngramkit"):
        njit(lambda a: a + 1)(1)
        njit(lambda a: a + 2)(1)
    event.unregister("numba:compile", listener)
    said = [r for r in caplog.records if r.message == SAID and r.levelno == NOTICE]
    assert 1 <= len(said) <= 2  # the process's own listener may not have spoken yet
