"""Kernels compiled beforehand, and by processes at once: none is lost, none compiled twice."""

import json
import os
import subprocess
import sys
import time

import pytest

import ngramkit
from ngramkit import warming
from ngramkit.drafters import DRAFTERS
from ngramkit.errors import InputError, UsageError
from ngramkit.kernels import machine_code
from ngramkit.warming_tasks import TASKS

COUNTED = "from ngramkit.warming_tasks import main; main()"


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
    both = [started(task, tmp_path) for task in ("decoding", "budget")]
    first, second = map(compiled_by, both)
    assert "tree.fill_layout" in first
    assert "budget.fill_cut" in second
    (folder,) = tmp_path.iterdir()
    assert len(list(folder.glob("*.nbc"))) == len({*first, *second})
    assert not [path for path in folder.iterdir() if path.suffix not in (".nbc", ".done")]
    assert compiled_by(started("decoding", tmp_path)) == []
    assert compiled_by(started("budget", tmp_path)) == []


def test_numba_made_quicker_makes_the_same_machine_code(tmp_path):
    """As a process of the user's compiles it, to the byte."""
    plain = "from ngramkit.warming_tasks import run_tasks; run_tasks(['decoding'])"
    kept = []
    for code in (plain, COUNTED):
        folder = tmp_path / str(len(kept))
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
        subprocess.run([sys.executable, "-c", code, "decoding"], env=environment, check=True)
        kept.append({path.name: path.read_bytes() for path in folder.glob("*/*.nbc")})
    assert len(kept[0]) == 1
    assert kept[0] == kept[1]


@pytest.mark.parametrize("missing", ["get_call_type", "get_abi_sizeof"])
def test_a_numba_of_other_insides_compiles_all_the_same(tmp_path, missing):
    code = f"""
from numba.core import base, types
del (types.BaseFunction if {missing!r} in vars(types.BaseFunction) else base.BaseContext).{missing}
from ngramkit import warming_tasks
warming_tasks.run_tasks = lambda names: names
warming_tasks.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, "decoding"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == ["decoding"]


def test_every_task_is_done_by_all_and_every_drafter_has_one():
    assert set(warming.tasks_of("all")) == set(TASKS)
    for name in DRAFTERS:
        assert set(warming.DECODING) <= set(warming.tasks_of(name)) <= set(TASKS)
    assert warming.tasks_of("rest:max_match=8")[0] == "rest"


def test_warm_says_what_it_compiled_and_where(ngramkit_cli):
    done, again = ngramkit_cli(
        ["warm", "--drafter", "none", "--json"], ["warm", "--drafter", "none", "--json"]
    )
    said = done.json
    assert said["artifact"] == str(machine_code.folder())
    assert set(said["compiled"]) == set(warming.DECODING)
    assert said["kernels"] >= 3
    assert not any(again.json["compiled"].values())
    assert "nothing to compile" in again.err


def test_unknown_drafters_and_folders_that_cannot_be_written(monkeypatch):
    with pytest.raises(UsageError, match="no drafter is called 'blent'"):
        ngramkit.warm("blent")
    with pytest.raises(UsageError, match="workers must be at least 1"):
        ngramkit.warm("none", workers=0)
    monkeypatch.setattr(machine_code, "folder", lambda: None)
    with pytest.raises(InputError, match="cannot be kept"):
        ngramkit.warm("none")


def test_a_task_that_fails_is_named(monkeypatch):
    monkeypatch.setattr(warming, "PROGRAM", "raise SystemExit('no memory')")
    with pytest.raises(InputError, match="kernels of decoding could not be compiled: no memory"):
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
        then = time.time() - days * machine_code.DAY
        os.utime(folder, (then, then))
        return folder

    return own, make


def test_old_kernels_are_deleted_and_nothing_else(others):
    own, make = others
    recent, old, strange = make(1, 20), make(2, 31), make(3, 40, stranger=True)
    unrelated = own.parent / "kernels_0123456789abcdef"
    unrelated.mkdir()
    os.utime(unrelated, (0, 0))
    machine_code.delete_old(own)
    assert own.exists()
    assert recent.exists()
    assert unrelated.exists()
    assert not old.exists()
    assert [path.name for path in strange.iterdir()] == ["mine.txt"]


def test_of_several_the_last_used_stay_and_those_of_today(others):
    own, make = others
    today = [make(number, 0.5) for number in range(1, 6)]
    earlier = make(6, 2)
    machine_code.delete_old(own)
    assert all(folder.exists() for folder in today)
    assert not earlier.exists()


def test_a_process_whose_folder_was_deleted_goes_on(tmp_path, monkeypatch):
    import numba
    import numpy as np

    from ngramkit.kernels.compile import entry

    monkeypatch.setattr(machine_code, "folder", lambda: tmp_path / "gone")
    assert entry(lambda values: values[0] + 1)(np.array([numba.types.intp(3)])) == 4
