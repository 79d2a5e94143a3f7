"""Kernels compiled beforehand, and by processes at once: none is lost, none compiled twice."""

import contextlib
import json
import os
import subprocess
import sys
import time

import pytest

import ngramkit
from ngramkit import warming
from ngramkit.drafters.registry import DRAFTERS
from ngramkit.errors import InputError, UsageError
from ngramkit.kernels import code_folder

COUNTED = "from ngramkit.warming import main; main()"


def started(task, folder):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    command = [sys.executable, "-c", COUNTED, task]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def compiled_by(process):
    out, _ = process.communicate()
    assert process.returncode == 0
    return json.loads(out)


def test_processes_that_compile_at_once_lose_nothing(tmp_path):
    """On an empty folder; the third then compiles nothing of what either needed."""
    both = [started(task, tmp_path) for task in ("none@2", "recycling@2")]
    first, second = map(compiled_by, both)
    assert "tree.fill_layout" in first
    assert any(name.startswith("recycling.") for name in second)
    (folder,) = tmp_path.iterdir()
    assert len(list(folder.glob("*.nbc"))) == len({*first, *second})
    assert not [path for path in folder.iterdir() if path.suffix not in (".nbc", ".done")]
    assert compiled_by(started("none@2", tmp_path)) == []
    assert compiled_by(started("recycling@2", tmp_path)) == []


def test_every_drafter_has_a_task():
    assert {*DRAFTERS, "build"} == set(warming.TASKS)
    assert len(set(warming.TASKS)) == len(warming.TASKS)


def test_what_is_compiled_meanwhile_is_asked_for_once(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(code_folder, "folder", lambda: tmp_path)
    monkeypatch.setattr(warming, "cores", lambda: 2)
    monkeypatch.setattr(warming, "start_python", lambda _, *tasks, **__: started.append(tasks))
    (tmp_path / "rest@2.done").touch()
    meanwhile = warming.Meanwhile()
    for name, vocabulary in (("blend", None), ("blend:scan=4", 10), ("rest", None), ("rest", 10)):
        with contextlib.suppress(AttributeError):  # what is started here is no process
            meanwhile.begin(name, vocabulary=vocabulary)
    with contextlib.suppress(AttributeError):
        meanwhile.begin("rest", vocabulary=1 << 20)
    assert started == [("blend@2",), ("rest@4",)]


def test_warm_says_what_it_compiled_and_where(ngramkit_cli):
    done, again = ngramkit_cli(
        ["warm", "--drafter", "none", "--json"], ["warm", "--drafter", "none", "--json"]
    )
    said = done.json
    assert said["artifact"] == str(code_folder.folder())
    assert set(said["compiled"]) == {"none"}
    assert said["kernels"] >= 3
    assert not any(again.json["compiled"].values())
    assert "nothing to compile" in again.err


def test_unknown_drafters_and_folders_that_cannot_be_written(monkeypatch):
    with pytest.raises(UsageError, match="no drafter is called 'blent'"):
        ngramkit.warm("blent")
    with pytest.raises(UsageError, match="workers must be at least 1"):
        ngramkit.warm("none", workers=0)
    monkeypatch.setattr(code_folder, "folder", lambda: None)
    with pytest.raises(InputError, match="cannot be kept"):
        ngramkit.warm("none")


def test_a_task_that_fails_is_named(monkeypatch):
    monkeypatch.setattr(warming, "PROGRAM", "raise SystemExit('no memory')")
    with pytest.raises(InputError, match="kernels of none could not be compiled: no memory"):
        ngramkit.warm("none")


@pytest.fixture
def others(tmp_path):
    """others(days=...): a folder of another version's kernels beside `own`, last used then."""
    own = tmp_path / f"{0:016x}"
    own.mkdir()

    def make(number, days, stranger=False):
        folder = tmp_path / f"{number:016x}"
        folder.mkdir()
        (folder / "rest.draft-0.nbc").write_bytes(b"code")
        (folder / "rest-0.done").touch()
        if stranger:
            (folder / "mine.txt").touch()
        then = time.time() - days * code_folder.DAY
        os.utime(folder, (then, then))
        return folder

    return own, make


def test_old_kernels_are_deleted_and_nothing_else(others):
    own, make = others
    recent, old, strange = make(1, 20), make(2, 31), make(3, 40, stranger=True)
    unrelated = own.parent / "kernels_0123456789abcdef"
    unrelated.mkdir()
    os.utime(unrelated, (0, 0))
    code_folder.delete_old(own)
    assert own.exists()
    assert recent.exists()
    assert unrelated.exists()
    assert not old.exists()
    assert [path.name for path in strange.iterdir()] == ["mine.txt"]


def test_of_several_the_last_used_stay_and_those_of_today(others):
    own, make = others
    today = [make(number, 0.5) for number in range(1, 6)]
    earlier = make(6, 2)
    code_folder.delete_old(own)
    assert all(folder.exists() for folder in today)
    assert not earlier.exists()


def test_a_process_whose_folder_was_deleted_goes_on(tmp_path, monkeypatch):
    import numba
    import numpy as np

    from ngramkit.kernels.jit import entry

    monkeypatch.setattr(code_folder, "folder", lambda: tmp_path / "gone")
    assert entry(lambda values: values[0] + 1)(np.array([numba.types.intp(3)])) == 4
