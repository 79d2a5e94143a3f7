"""`ngramkit.warm`: kernels compiled beforehand, in several processes, or while a model loads.

Kernels are compiled when they are first called, for the types that they are called with. So each
task here draws drafts, builds or checks with tiny artifacts of both widths of token ids, in a
process of its own; what it leaves is the machine code on disk (`kernels.machine_code`).
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ngramkit.drafters import drafter_entry
from ngramkit.errors import InputError, require_between
from ngramkit.machine import cores
from ngramkit.progress import SILENT, Reporter
from ngramkit.results import Result
from ngramkit.words import many

ALL = "all"
DECODING = ("decoding", "budget", "rows", "past", "references")  # what decoding may need
LATER = ("rows", "past", "references", "blend-references")
# The same for all token ids:
ANY_WIDTH = ("blend", "automaton", "recycling", "decoding", "budget", "rows", "references")
# The longest first, so that no process ends long after the others.
TASKS = (
    "blend-references", "blend", "rest", "build", "cacheback", "ssd", "ngrammys", "verify",
    "automaton", "bigram", "recycling", *DECODING,
)  # fmt: skip
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
    """Compiles the kernels of one drafter and of decoding, or with "all" those of building and
    verifying too. Fitting and importing other programs' files compile theirs when they run.

    At most `workers` processes at a time (default: every core). What is on disk is not compiled
    again. Raises UsageError for an unknown drafter, InputError where machine code cannot be kept or
    a kernel cannot be compiled.
    """
    from ngramkit.kernels import compile, machine_code  # noqa: F401 (compile says where to keep)

    tasks = tasks_of(drafter)
    if workers is not None:
        require_between("workers", workers, 1)
    folder = machine_code.folder()
    if folder is None or not os.access(folder, os.W_OK):
        raise InputError(
            f"compiled kernels cannot be kept in {folder or 'any folder'}",
            "set NUMBA_CACHE_DIR to a folder that you may write",
        )
    processes = min(workers or cores(), len(tasks))
    begun, compiled = time.perf_counter(), {}
    reporter.stage("compile", len(tasks), "tasks")
    with ThreadPoolExecutor(processes) as pool:
        for task, names in zip(tasks, pool.map(_done, tasks), strict=True):
            compiled[task] = names
            reporter.advance(1)
            reporter.note(f"{task}: {_counted(names)}")
    held = len(list(folder.glob(f"*{machine_code.SUFFIX}")))
    return Warmed(folder, compiled, held, processes, time.perf_counter() - begun)


def tasks_of(drafter: str) -> list[str]:
    """Raises UsageError, with the nearest name, where no drafter is called that."""
    if drafter == ALL:
        return list(TASKS)
    name = drafter.partition(":")[0]  # its options change no kernel
    drafter_entry(name)
    own = [task for task in TASKS if task in (name, f"{name}-references")]
    return [*own, *DECODING]


def _counted(names: Sequence[str]) -> str:
    if not names:
        return "nothing to compile"
    return f"{many(len(names), 'kernel')} compiled"


def _done(task: str) -> list[str]:
    """The kernels that it compiled."""
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
    from numba import config

    held = {"NUMBA_CACHE_DIR": named} if (named := getattr(config, "CACHE_DIR", "")) else {}
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *tasks],
        env={**os.environ, "PYTHONPATH": path, **held},
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=errors,
        text=True,
    )


class Meanwhile:
    """Kernels that another process compiles while this one loads a model."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._asked: set[str] = set()

    def begin(self, *drafters: str, vocabulary: int | None = None) -> None:
        """What they need for the token ids of a tokenizer with so many; where that is not known,
        those that need the same for any. Nothing where that was done before, on a single core, or
        where nothing can be kept."""
        from ngramkit.formats.artifact import token_dtype
        from ngramkit.kernels import compile, machine_code, notice  # noqa: F401

        if vocabulary is None and not set(drafters) <= set(ANY_WIDTH):
            return
        width = token_dtype(vocabulary or 1).itemsize
        wanted = dict.fromkeys(task for name in drafters for task in at_first(name, width))
        missing = [t for t in wanted if t not in self._asked and not _is_done(t)]
        self._asked.update(wanted)
        if not missing or cores() < 2 or machine_code.folder() is None or self._process:
            return
        logging.getLogger("ngramkit").log(notice.NOTICE, f"{notice.SAID}, while the model loads")
        with contextlib.suppress(OSError):
            self._process = _started(missing, out=subprocess.DEVNULL, errors=subprocess.DEVNULL)
            atexit.register(self._process.terminate)  # where loading fails; harmless afterwards

    def wait(self) -> None:
        """What went wrong there is left to the first draft, which compiles what is missing."""
        if self._process is not None:
            self._process.wait()
            self._process = None


meanwhile = Meanwhile()


def at_first(drafter: str, width: int) -> list[str]:
    """What a first draft needs, of a name with options too; no more, since it is waited for."""
    tasks = [task for task in tasks_of(drafter) if task not in LATER]
    return [task if task in ANY_WIDTH else f"{task}@{width}" for task in tasks]


def _is_done(task: str) -> bool:
    from ngramkit.kernels import machine_code

    return machine_code.is_done(task) or machine_code.is_done(task.partition("@")[0])
