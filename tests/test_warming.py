"""Kernels compiled beforehand, and by processes at once: none is lost, none compiled twice."""

import json
import os
import subprocess
import sys

import pytest

import ngramkit
from ngramkit import warming
from ngramkit.basics.errors import InputError, UsageError
from ngramkit.decode import compile_while_loading as compiling
from ngramkit.drafters.registry import DRAFTERS
from ngramkit.kernels import code_folder


def started(task, folder, program=compiling.PROGRAM):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    command = [sys.executable, "-c", program, task]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def compiled_by(process):
    out, _ = process.communicate()
    assert process.returncode == 0
    return json.loads(out)


@pytest.mark.attack
def test_processes_that_compile_at_once_lose_nothing(tmp_path):
    """On an empty folder; the third then compiles nothing of what either needed."""
    both = [started(task, tmp_path) for task in ("none@2", "recycling@2")]
    first, second = map(compiled_by, both)
    assert "acceptance_record.update_record" in first
    assert any(name.startswith("recycling.") for name in second)
    assert len(list(tmp_path.glob("*.nbc"))) == len({*first, *second})
    assert not [path for path in tmp_path.iterdir() if path.suffix not in (".nbc", ".done")]
    assert compiled_by(started("none@2", tmp_path)) == []
    assert compiled_by(started("recycling@2", tmp_path)) == []


def test_every_drafter_has_a_task():
    assert {*DRAFTERS, "build"} == set(warming.TASKS)
    assert len(set(warming.TASKS)) == len(warming.TASKS)


def test_what_the_task_of_building_builds_is_whole(tmp_path):
    warming.run_task(warming.BUILD, tmp_path)


def test_each_task_is_compiled_in_the_background_once(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(code_folder, "machine_code_folder", lambda: tmp_path)
    monkeypatch.setattr(compiling, "cores", lambda: 2)
    monkeypatch.setattr(compiling, "start_python", lambda _, *tasks, **__: started.append(tasks))
    (tmp_path / compiling.done_file("rest@2")).touch()
    compiling.start_compiling.cache_clear()
    for name, vocabulary in (("blend", 10), ("blend", 10), ("rest", 10), ("rest", 1 << 20)):
        with compiling.compile_meanwhile([name], vocabulary):
            """A model would be loaded here."""
    compiling.start_compiling.cache_clear()
    assert started == [("blend@2",), ("rest@4",)]


def test_warm_says_what_it_compiled_and_where(ngramkit_cli):
    done, again = ngramkit_cli(
        ["warm", "--drafter", "none", "--json"], ["warm", "--drafter", "none"]
    )
    body = done.json
    assert body["artifact"] == str(code_folder.machine_code_folder())
    assert set(body["compiled"]) == {"none"}
    assert body["kernels"] >= 3
    assert "nothing to compile" in again.out


# Prints a set of kernels; each process is forked from one that had loaded none.
LOADED = """
import gc, json, os, sys
from pathlib import Path
import numpy as np
from numba.core.dispatcher import Dispatcher
from ngramkit import warming
from ngramkit.engines.batch import BatchDrafter
from ngramkit.engines.config import DraftConfig
from ngramkit.engines.llama_cpp import Drafter
def loaded():
    kernels = [each for each in gc.get_objects() if isinstance(each, Dispatcher)]
    return sorted(
        f"{each.py_func.__module__}.{each.py_func.__name__} {signature}"
        for each in kernels for signature in each.signatures
    )
"""


def test_an_engine_s_process_needs_no_kernel_that_its_task_leaves_out(tmp_path):
    """Neither when it starts nor with its first requests, whatever it is given."""
    code = """
if not os.fork():
    warming.run_task("serve-ssd", Path(sys.argv[1]))
else:
    os.wait()
    engine = BatchDrafter.open(DraftConfig("ssd", history=True), vocabulary=60_000)
    for request in range(8):
        text = np.arange(8_000, dtype=np.int32) % (50 + request)
        for row in ([text, text[::-1]], [text[:-5]], [np.append(text, 3), text[::-1]]):
            engine.chain_batch(row, [4] * len(row))
            engine.draft_batch(row, [4] * len(row))
print(json.dumps(loaded()), flush=True)
"""
    command = [sys.executable, "-c", LOADED + code, str(tmp_path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    task, requests = (set(json.loads(line)) for line in done.stdout.splitlines())
    for name in ("draft_after_trusted_match", "learn_trust", "keep_best_of_two_drafts"):
        assert any(f"ssd.{name} " in kernel for kernel in requests)
    assert requests <= task


def test_an_engine_s_first_request_loads_no_kernel():
    """Each of two drafters drafts in a process that had loaded none."""
    code = """
for name in ("blend", "automaton"):
    if os.fork():
        os.wait()
        continue
    drafter = Drafter(DraftConfig(name), vocabulary=10)
    before, size = loaded(), 3
    text = np.array([[3, 1, 4, 1, 5, 9, 2, 6][i % 8] if i % 23 else 7 for i in range(90)], np.intc)
    while size < 80:
        draft = drafter(text[:size])
        size += 1 + int(np.cumprod(draft == text[size:][: len(draft)]).sum())
    print(name, loaded() == before, flush=True)
    os._exit(0)
"""
    done = subprocess.run(
        [sys.executable, "-c", LOADED + code], stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout.splitlines() == ["blend True", "automaton True"]


def test_unknown_drafters_and_folders_that_cannot_be_written(monkeypatch):
    with pytest.raises(UsageError, match="'blent'"):
        ngramkit.warm("blent")
    with pytest.raises(UsageError, match="'vlm'"):
        ngramkit.warm(engine="vlm")
    with pytest.raises(UsageError, match="workers"):
        ngramkit.warm("none", workers=0)
    monkeypatch.setattr(code_folder, "machine_code_folder", lambda: None)
    with pytest.raises(InputError, match="cannot keep compiled kernels"):
        ngramkit.warm("none")


def test_a_task_that_fails_is_named(monkeypatch):
    monkeypatch.setattr(warming, "PROGRAM", "raise SystemExit('no memory')")
    with pytest.raises(InputError, match="kernels of none: no memory"):
        ngramkit.warm("none")
