"""Compiled kernels are kept only where nobody else can put code, and compiling is announced."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys

import pytest

from ngramkit.basics import cache
from ngramkit.kernels import code_folder


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A private folder, named by NUMBA_CACHE_DIR; the temporary folder is another."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(code_folder.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "above" / "named"
    monkeypatch.setenv(code_folder.CACHE_VARIABLE, str(folder))
    code_folder.machine_code_folder.cache_clear()
    yield folder
    code_folder.machine_code_folder.cache_clear()


def test_the_named_folder_is_taken(place, caplog):
    assert code_folder.machine_code_folder() == place
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert caplog.text == ""


def test_without_one_it_is_the_users_cache(place, tmp_path, monkeypatch):
    monkeypatch.delenv(code_folder.CACHE_VARIABLE)
    assert code_folder.machine_code_folder() == tmp_path / "cache" / "ngramkit" / "kernels"


def test_a_folder_that_cannot_be_written_serves_if_it_holds_the_kernels(place, monkeypatch):
    """As in an image that is mounted read-only."""

    def refuse(**options):
        raise PermissionError

    place.mkdir(parents=True)
    kernel = place / f"rest.match_longest_then_shorter-0{code_folder.file_ending()}"
    kernel.touch()
    monkeypatch.setattr(code_folder.tempfile, "TemporaryFile", refuse)
    assert code_folder.machine_code_folder() == place
    kernel.rename(place / f"rest.match_longest_then_shorter-0-another{code_folder.CODE_SUFFIX}")
    code_folder.machine_code_folder.cache_clear()
    assert code_folder.machine_code_folder() != place


def test_without_a_place_kernels_go_to_a_private_temporary_folder(place, monkeypatch, caplog):
    monkeypatch.setenv(code_folder.CACHE_VARIABLE, "/proc/nowhere")
    monkeypatch.setattr(code_folder, "private_folder", lambda name: None)
    chosen = code_folder.machine_code_folder()
    assert chosen == place.parents[1] / "temporary" / f"ngramkit-kernels-{os.getuid()}"
    assert stat.S_IMODE(chosen.stat().st_mode) == 0o700
    assert "/proc/nowhere" in caplog.text
    assert "are kept in" in caplog.text


@pytest.mark.parametrize(
    "how", ["it is open", "above is open", "above is theirs", "a link that is theirs"]
)
@pytest.mark.parametrize("which", ["named", "cache", "temporary"])
def test_a_folder_that_others_can_reach_is_not_used(place, tmp_path, monkeypatch, how, which):
    if which == "cache":
        monkeypatch.delenv(code_folder.CACHE_VARIABLE)
        place = tmp_path / "cache" / "ngramkit" / "kernels"
    elif which == "temporary":
        monkeypatch.delenv(code_folder.CACHE_VARIABLE)
        monkeypatch.setattr(code_folder, "private_folder", lambda name: None)
        place = tmp_path / "temporary" / f"ngramkit-kernels-{os.getuid()}"
    place.mkdir(mode=0o700, parents=True)
    if how == "it is open":
        place.chmod(0o777)
    elif how == "above is open":
        place.parent.chmod(0o777)
    elif os.geteuid() != 0:
        pytest.skip("only root can make a folder another user's")
    elif how == "above is theirs":
        shutil.chown(place.parent, 65534)
    else:
        real = tmp_path / "real"
        place.parent.rename(real)
        place.parent.symlink_to(real)
        os.chown(place.parent, 65534, -1, follow_symlinks=False)
    assert not cache.only_owner_writes(place)
    assert code_folder.machine_code_folder() != place


def test_a_sticky_folder_and_links_of_ones_own_are_private(tmp_path):
    shared = tmp_path / "shared"
    (shared / "mine").mkdir(parents=True)
    shared.chmod(0o1777)
    (tmp_path / "link").symlink_to("shared/../shared/mine")
    assert cache.only_owner_writes(shared / "mine")
    assert cache.only_owner_writes(tmp_path / "link")
    (tmp_path / "loop").symlink_to("loop")
    assert not cache.only_owner_writes(tmp_path / "loop")
    shared.chmod(0o777)
    assert not cache.only_owner_writes(tmp_path / "link")


def test_the_working_folder_names_no_place(place, tmp_path):
    """numba takes settings from .numba_config.yaml there; kernels are not read from such a one."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / ".numba_config.yaml").write_text(f"cache_dir: {theirs}/kernels\n")
    code = (
        "import numba; from ngramkit.kernels import code_folder; "
        "print(code_folder.machine_code_folder())"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=theirs,
        env={**os.environ, code_folder.CACHE_VARIABLE: str(place)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(str(place))


def test_compiling_is_said_once():
    """Of whatever number of kernels, in a process that compiles some, as another of its does."""
    code = """
import logging, sys, numba
from ngramkit.kernels import code_folder, jit
logging.basicConfig(level=code_folder.NOTICE, format="%(message)s", stream=sys.stdout)
code_folder.announce_compiling()
for number in range(3):
    numba.njit(lambda a: a + number)(1)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["compiling kernels (once: later runs find them)"]


def test_the_oldest_machine_code_is_deleted_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(code_folder, "MAX_CODE_FILES", 2)
    names = ["old.nbc", "mine.txt", "newer.nbc", "newest.nbc"]
    for age, name in enumerate(names):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (age, age))
    (tmp_path / "folder").mkdir()
    code_folder.delete_oldest(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["folder", *names[1:]])
