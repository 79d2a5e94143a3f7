"""A stage of a build: tasks that each write one file, run by an executor, recorded by the writer.

What an earlier run recorded is not done again. Tasks are given names and numbers, and read what
they need from files; a node of a cluster that does not see those files is named in the error.
"""

from __future__ import annotations

import hashlib
import platform
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ngramkit.builders.executors import Executor, Task
from ngramkit.errors import InputError
from ngramkit.formats.container import Array, FileRecord, write_whole
from ngramkit.formats.writer import SCRATCH, ArtifactWriter
from ngramkit.progress import Reporter

BASE_MEMORY = 224 << 20  # bytes, of Python, libraries and kernels; measured: 214 MB


class Written(NamedTuple):
    """A task's result: the record of the file that it wrote."""

    record: FileRecord
    facts: Mapping[str, Any] = {}  # JSON, kept for a resume
    notes: Sequence[str] = ()  # for the user


class Stage(NamedTuple):
    """Tasks that may run in any order.

    Files of a `scratch` stage are deleted when the build ends; a resumed build uses them only for
    the same task.
    """

    name: str
    tasks: Sequence[Task[Written]]
    unit: str = "tokens"  # of the tasks' sizes
    scratch: bool = False


class StageRunner(NamedTuple):
    """A build's writer, the executor of its tasks, and the reporter of its progress."""

    writer: ArtifactWriter
    executor: Executor
    reporter: Reporter

    @property
    def folder(self) -> str:
        """The absolute folder that tasks write to."""
        return str(self.writer.partial.absolute())

    def task(
        self,
        title: str,
        stem: str,
        work: Callable[..., Written],
        arguments: tuple[Any, ...],
        *,
        memory: int = BASE_MEMORY,
        size: int = 1,
        key: tuple[Any, ...] = (),
    ) -> Task[Written]:
        """Return the task `work(*arguments, FOLDER, FILE)`; `stem` is the name of its file."""
        file = f"{stem}.safetensors"
        arguments = (*arguments, self.folder, file)
        return Task(f"{title}, {self.writer.path.name}", file, work, arguments, memory, size, key)

    def run(self, stage: Stage) -> None:
        """Run the tasks whose files are not there yet, with one progress bar over all of them."""
        for _ in self.in_order(stage):
            """Their files are what counts."""

    def in_order(self, stage: Stage) -> Generator[Task[Written], None, None]:
        """Run as `run`, and yield the tasks in order, each once its file and all before are there.

        Closed early, it ends the tasks that are in flight.
        """
        total = sum(task.size for task in stage.tasks)
        self.reporter.stage(stage.name, total, stage.unit)
        counts: Counter[str] = Counter()
        missing: dict[str, Task[Written]] = {}
        for task in stage.tasks:
            if (facts := self._finished(task, stage)) is None:
                missing[task.file] = task
            else:
                self._advance(stage, task, facts, counts)
        waiting = deque(stage.tasks)
        while waiting and waiting[0].file not in missing:
            yield waiting.popleft()
        noted = set[str]()
        for task, written in self.executor.run(list(missing.values())):
            require_shared(self.writer.partial / task.file)
            scratch = {SCRATCH: _identity(task)} if stage.scratch else {}
            self.writer.record(task.file, written.record, **written.facts, **scratch)
            for note in written.notes:
                if note not in noted:
                    noted.add(note)
                    self.reporter.note(note)
            self._advance(stage, task, written.facts, counts)
            del missing[task.file]
            while waiting and waiting[0].file not in missing:
                yield waiting.popleft()

    def facts(self, file: str) -> Mapping[str, Any]:
        """Return the facts recorded with a task's file; empty before it is written."""
        return self.writer.finished(file) or {}

    def _finished(self, task: Task[Written], stage: Stage) -> Mapping[str, Any] | None:
        """Return the facts of a file that an earlier run wrote in the same task, else None."""
        facts = self.writer.finished(task.file)
        if facts is not None and stage.scratch and facts.get(SCRATCH) != _identity(task):
            return None
        return facts

    def _advance(
        self, stage: Stage, task: Task[Written], facts: Mapping[str, Any], counts: Counter[str]
    ) -> None:
        counts[stage.unit] += task.size
        if stage.unit == "tokens":
            counts["tasks"] += 1
        else:
            counts["tokens"] += facts.get("tokens", 0)
        if self.executor.retries:
            counts["retries"] = self.executor.retries
        self.reporter.advance(task.size, **counts)


def _identity(task: Task[Written]) -> str:
    """Return a digest that tells the task from others that write a file of the same name."""
    return hashlib.sha256(repr(task.key or task.arguments).encode()).hexdigest()[:16]


def write_file(folder: str, name: str, arrays: Mapping[str, Array], **facts: Any) -> Written:
    """Write a task's one file, whole or not at all."""
    return Written(write_whole(require_shared(Path(folder)) / name, arrays), facts)


def require_shared(path: Path) -> Path:
    """Return `path`. Raises InputError where this machine does not see it."""
    if not path.exists():
        raise InputError(
            f"{platform.node()} does not see {path}",
            "every node needs the same files at the same path, as on a shared file system",
        )
    return path
