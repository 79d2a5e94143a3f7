"""`ngramkit.warm`: kernels compiled beforehand, or while a model loads.

Kernels are compiled when they are first called, for the types that they are called with. So a
process of its own drafts once with each drafter, over tiny artifacts (`ngramkit.warming_tasks`);
what it leaves is the machine code on disk (`kernels.code_folder`).
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ngramkit.drafters import DRAFTERS, drafter_entry
from ngramkit.errors import InputError, require_between
from ngramkit.machine import cores
from ngramkit.processes import start_python
from ngramkit.progress import SILENT, Reporter
from ngramkit.results import Result
from ngramkit.words import many

ALL = "all"
# The longest first, so that no process ends long after the others; then build and verify.
LONGEST = ("blend", "rest", "cacheback", "ssd", "ngrammys")
TASKS = (*LONGEST, *(name for name in DRAFTERS if name not in LONGEST), "build", "verify")
# Whose first drafts need the same kernels for token ids of two bytes and of four.
ANY_WIDTH = {"none", "blend", "context", "prompt-lookup", "recycling", "automaton"}
PROGRAM = "from ngramkit.warming_tasks import main; main()"


@dataclass(frozen=True)
class Warmed(Result):
    """`compiled`: by task, the kernels that were not on disk before; `folder`: where they are."""

    folder: Path
    compiled: dict[str, list[str]]
    kernels: int  # machine code files there now
    processes: int
    seconds: float


def warm(drafter: str = ALL, *, workers: int | None = None, reporter: Reporter = SILENT) -> Warmed:
    """Compile the kernels of one drafter and of decoding, or with "all" those of every drafter, of
    building and of verifying.

    At most `workers` processes at a time (default: every core). What is on disk is not compiled
    again. Raises UsageError for an unknown drafter, InputError where machine code cannot be kept or
    a kernel cannot be compiled.
    """
    from ngramkit.kernels.code_folder import SUFFIX, folder

    tasks = TASKS if drafter == ALL else (_plain_name(drafter),)
    if workers is not None:
        require_between("workers", workers, 1)
    place = folder()
    if place is None or not os.access(place, os.W_OK):
        raise InputError(
            f"compiled kernels cannot be kept in {place or 'any folder'}",
            "set NUMBA_CACHE_DIR to a folder that you may write",
        )
    processes = min(workers or cores(), len(tasks))
    begun, compiled = time.perf_counter(), {}
    reporter.stage("compile", len(tasks), "tasks")
    with ThreadPoolExecutor(processes) as pool:
        for task, names in zip(tasks, pool.map(_compile, tasks), strict=True):
            compiled[task] = names
            reporter.advance(1)
            reporter.note(f"{task}: {many(len(names), 'kernel')} compiled")
    held = len(list(place.glob(f"*{SUFFIX}")))
    return Warmed(place, compiled, held, processes, time.perf_counter() - begun)


def _plain_name(drafter: str) -> str:
    """Return a drafter's name without its options, which change no kernel. Raises UsageError, with
    the nearest name, where no drafter is called that."""
    name = drafter.partition(":")[0]
    drafter_entry(name)
    return name


def _compile(task: str) -> list[str]:
    """Run a task in a process; return the kernels that it compiled."""
    with _started([task], out=subprocess.PIPE, errors=subprocess.PIPE) as process:
        out, errors = process.communicate()
    if process.returncode:
        last = (errors.strip().splitlines() or ["it was killed"])[-1]
        raise InputError(
            f"the kernels of {task} could not be compiled: {last}",
            "run again with workers=1 if memory is short",
            option="workers",
        )
    names: list[str] = json.loads(out.splitlines()[-1])
    return names


def _started(tasks: Sequence[str], *, out: int, errors: int) -> subprocess.Popen[str]:
    from ngramkit.kernels.code_folder import VARIABLE, folder

    place = folder()
    kept = {} if place is None else {VARIABLE: str(place.parent)}
    return start_python(
        PROGRAM, *tasks, env=kept, stdin=subprocess.DEVNULL, stdout=out, stderr=errors
    )


class Meanwhile:
    """Kernels that another process compiles while this one loads a model."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._asked: set[str] = set()

    def begin(self, *drafters: str, vocabulary: int | None = None) -> None:
        """Have what first drafts need compiled, for the token ids of a tokenizer with so many;
        where that is not known yet, if it is the same for any. Nothing where that was done before,
        on a single core, or where nothing can be kept."""
        from ngramkit.formats.artifact import token_dtype
        from ngramkit.kernels.code_folder import folder
        from ngramkit.kernels.jit import COMPILING, NOTICE
        from ngramkit.warming_tasks import is_done

        names = set(map(_plain_name, drafters))
        if vocabulary is None and not names <= ANY_WIDTH:
            return
        width = token_dtype(vocabulary or 1).itemsize
        wanted = [f"{name}@{2 if name in ANY_WIDTH else width}" for name in sorted(names)]
        missing = [task for task in wanted if task not in self._asked and not is_done(task)]
        self._asked.update(wanted)
        if not missing or cores() < 2 or folder() is None or self._process:
            return
        logging.getLogger("ngramkit").log(NOTICE, f"{COMPILING}, while the model loads")
        with contextlib.suppress(OSError):
            self._process = _started(missing, out=subprocess.DEVNULL, errors=subprocess.DEVNULL)
            atexit.register(self._process.terminate)  # where loading fails; harmless afterwards

    def wait(self) -> None:
        """Wait for it. What went wrong there is left to the first draft, which compiles what is
        missing."""
        if self._process is not None:
            self._process.wait()
            self._process = None


meanwhile = Meanwhile()
