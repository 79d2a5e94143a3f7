"""A stage of a build: tasks that write a file each, run by an executor, recorded by the writer.

What an earlier run recorded is not done again. Tasks get names and numbers, and read what they need
from files: a node of a cluster that does not see those is told of, by its name.
"""

from __future__ import annotations

import hashlib
import platform
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ngramkit.builders.executors import Executor, Task
from ngramkit.errors import InputError
from ngramkit.formats.container import Array, FileRecord, write_whole
from ngramkit.formats.writer import SCRATCH, ArtifactWriter
from ngramkit.progress import Reporter

BASE_MEMORY = 224 << 20  # bytes, of Python, libraries and kernels; measured: 214 MB


class Written(NamedTuple):
    """What a task returns of its file."""

    record: FileRecord
    facts: Mapping[str, Any] = {}  # JSON, kept for a resume
    notes: Sequence[str] = ()  # for the user


class Stage(NamedTuple):
    """`scratch`: its files are for this build alone, and fit no other cut of the same work.
    `enough` says when no more tasks need be begun."""

    name: str
    tasks: Sequence[Task[Written]]
    unit: str = "tokens"  # of the tasks' sizes
    scratch: bool = False
    enough: Callable[[], bool] = lambda: False


def run_stage(stage: Stage, writer: ArtifactWriter, executor: Executor, reporter: Reporter) -> None:
    """Runs the tasks whose files are not there yet. One bar over all of them."""
    reporter.stage(stage.name, sum(task.size for task in stage.tasks), stage.unit)
    done = _Done(stage, executor, reporter)
    todo = []
    for task in stage.tasks:
        if (facts := _finished(task, stage, writer)) is None:
            todo.append(task)
        else:
            done.add(task, facts)
    said = set[str]()
    for task, written in executor.run(task for task in todo if not stage.enough()):
        require_shared(writer.partial / task.file)
        kept = {SCRATCH: _cut(task)} if stage.scratch else {}
        writer.record(task.file, written.record, **written.facts, **kept)
        for note in written.notes:
            if note not in said:
                said.add(note)
                reporter.note(note)
        done.add(task, written.facts)


class Apart(NamedTuple):
    """Where a build of several stages runs, and who is told of it."""

    writer: ArtifactWriter
    executor: Executor
    reporter: Reporter

    @property
    def folder(self) -> str:
        return str(self.writer.partial.absolute())

    def run(self, stage: Stage) -> None:
        run_stage(stage, self.writer, self.executor, self.reporter)

    def facts(self, file: str) -> Mapping[str, Any]:
        """Those of a task's file; empty before it is written."""
        return self.writer.finished(file) or {}


class _Done:
    """What the bar shows of a stage."""

    def __init__(self, stage: Stage, executor: Executor, reporter: Reporter) -> None:
        self._unit = stage.unit
        self._executor = executor
        self._reporter = reporter
        self._counts: Counter[str] = Counter()

    def add(self, task: Task[Written], facts: Mapping[str, Any]) -> None:
        self._counts[self._unit] += task.size
        if self._unit == "tokens":
            self._counts["tasks"] += 1
        else:
            self._counts["tokens"] += facts.get("tokens", 0)
        if self._executor.retries:
            self._counts["retries"] = self._executor.retries
        self._reporter.advance(task.size, **self._counts)


def _finished(task: Task[Written], stage: Stage, writer: ArtifactWriter) -> Any:
    """The facts of a file that an earlier run wrote of the same cut, else None."""
    facts = writer.finished(task.file)
    if facts is not None and stage.scratch and facts.get(SCRATCH) != _cut(task):
        return None
    return facts


def _cut(task: Task[Written]) -> str:
    """Which part of the work it is."""
    return hashlib.sha256(repr(task.key or task.given).encode()).hexdigest()[:16]


def write_file(folder: str, name: str, arrays: Mapping[str, Array], **facts: Any) -> Written:
    """In a task: its one file, whole or not at all."""
    return Written(write_whole(require_shared(Path(folder)) / name, arrays), facts)


def require_shared(path: Path) -> Path:
    """`path`. Raises InputError where it is not to be seen from this machine."""
    if not path.exists():
        raise InputError(
            f"{platform.node()} does not see {path}",
            "every node needs the same files at the same path, as on a shared file system",
        )
    return path
