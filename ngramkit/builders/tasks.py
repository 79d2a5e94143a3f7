"""A build's tasks and their executors: threads of this process, or the nodes of a Ray cluster.

A task writes one file atomically, always with the same bytes, so it may run again anywhere. On a
cluster, every node must see the files at the same path.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import re
import socket
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ngramkit.basics.errors import (
    InputError,
    NetworkError,
    NgramkitError,
    UsageError,
    hint_for_unknown,
    reason,
)
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.terminal_text import counted, visible
from ngramkit.basics.thread_counts import build_threads
from ngramkit.basics.version import __version__
from ngramkit.formats.resumable_writer import SCRATCH, ArtifactWriter
from ngramkit.formats.safetensors import Array, FileRecord, write_arrays_atomically

EXECUTORS = ("local", "ray")
MAX_RETRIES = 3  # restarts of one task
TASKS_PER_CORE = 2  # tasks in flight, so that no core waits for the driver
ADDRESS = re.compile(r"auto|[\w.-]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")
AUTO = "auto"
CANCEL_SECONDS = 10.0  # wait for cancelled tasks
BASE_MEMORY = 224 << 20  # bytes of Python, libraries and kernels; measured: 214 MB


class WrittenFile(NamedTuple):
    record: FileRecord
    facts: Mapping[str, Any]  # JSON, stored for a resume


@dataclass(frozen=True)
class Task:
    """A call `work(*arguments)` that can be pickled."""

    name: str  # for messages
    file: str  # the file that it writes
    work: Callable[..., WrittenFile]
    arguments: tuple[Any, ...]
    memory: int  # bytes, at most
    size: int = 1  # its share of its stage, in the stage's unit
    key: tuple[Any, ...] = ()  # identifies its part of the work; default: `arguments`


class Executor(Protocol):
    """A place where tasks run. A `local` one shares this process's memory and cores."""

    local: bool
    retries: int  # restarts of lost tasks

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, WrittenFile]]:
        """Yield tasks with their results as they finish; raise a task's first error."""


@contextmanager
def open_executor(
    executor: str | Executor = "local",
    ray_address: str | None = None,
    workers: int | None = None,
    reporter: Reporter = SILENT,
) -> Iterator[Executor]:
    """Open the named executor until the block ends, or yield a given one.

    `workers` bounds the tasks at a time (default: one per core, on a cluster enough for its cores).
    `ray_address` is `auto` (RAY_ADDRESS, or the cluster of this machine) or HOST:PORT. Raises
    UsageError for an unknown executor or a missing package, NetworkError if no cluster answers.
    """
    if not isinstance(executor, str):
        if not hasattr(executor, "local"):
            raise UsageError(
                f"executor must be {' or '.join(EXECUTORS)}, got {executor!r:.60}",
                option="executor",
            )
        yield executor
        return
    require_executor(executor, ray_address)
    if executor == "local":
        yield Local(build_threads(workers))
        return
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            "cannot use executor=ray: it needs the package ray",
            "Run: pip install 'ngramkit[ray]'",
            option="executor",
        ) from error
    address = ray_address or os.environ.get("RAY_ADDRESS") or AUTO
    if not ADDRESS.fullmatch(address):
        raise UsageError(
            f"ray_address must be auto or HOST:PORT, got {visible(address)!r}", option="ray_address"
        )
    ours = not ray.is_initialized()
    if ours:
        _connect_ray(ray, address)
    else:
        reporter.note(f"ray: already connected to {ray.get_runtime_context().gcs_address}")
    try:
        most = None if workers is None else build_threads(workers)
        cluster = Cluster(ray, most, reporter)
        reporter.note(f"ray: {counted(len(cluster.nodes()), 'node')}, {cluster.cores():,} cores")
        yield cluster
    finally:
        if ours:
            ray.shutdown()


def require_executor(executor: str, ray_address: str | None) -> None:
    if executor not in EXECUTORS:
        raise UsageError(
            f"unknown executor {executor!r}",
            hint_for_unknown(executor, EXECUTORS),
            option="executor",
        )
    if executor != "ray" and ray_address is not None:
        raise UsageError(
            f"cannot use ray_address with executor={executor}",
            "Leave it out, or give executor=ray.",
            option=("ray_address", "executor"),
        )


@dataclass(frozen=True)
class Local:
    """Threads of this process; kernels release the GIL."""

    workers: int
    local = True
    retries = 0

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, WrittenFile]]:
        with ThreadPoolExecutor(self.workers) as pool:
            running = {pool.submit(task.work, *task.arguments): task for task in tasks}
            try:
                for future in as_completed(running):
                    yield running[future], future.result()
            finally:
                for future in running:
                    future.cancel()


def _connect_ray(ray: Any, address: str) -> None:
    try:
        if address != AUTO:  # Ray itself would retry for minutes
            host, _, port = address.rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        where = "on this machine" if address == AUTO else f"at {address}"
        raise NetworkError(
            f"cannot reach a Ray cluster {where}: {visible(_first_sentence(reason(error)))}",
            "Start one on this machine or give its ray_address, see docs/cluster.md.",
            option="ray_address",
        ) from error


def _first_sentence(text: str) -> str:
    return text.partition("\n")[0].partition(". ")[0][:200]


class Cluster:
    """A Ray cluster with `workers` tasks in flight, by default TASKS_PER_CORE per core."""

    local = False

    def __init__(self, ray: Any, workers: int | None, reporter: Reporter) -> None:
        self.retries = 0
        self._ray = ray
        self._workers = workers
        self._reporter = reporter
        self._waits_for_nodes = False

    def nodes(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]

    def cores(self) -> int:
        return int(sum(node["Resources"].get("CPU", 0) for node in self.nodes()))

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, WrittenFile]]:
        waiting, again = iter(tasks), deque[tuple[Task, int]]()
        running: dict[Any, tuple[Task, int]] = {}
        most = 0
        try:
            while True:
                most = self._workers or max(TASKS_PER_CORE * self.cores(), most, 1)
                while len(running) < most:
                    task, losses = again.popleft() if again else (next(waiting, None), 0)
                    if task is None:
                        break
                    running[self._begin(task)] = task, losses
                if not running:
                    return
                for done in self._finished(list(running)):
                    task, losses = running.pop(done)
                    written = self._outcome(done, task, losses)
                    if written is None:
                        again.append((task, losses + 1))
                    else:
                        yield task, written
        finally:
            left = list(running)
            for each in left:
                self._ray.cancel(each, force=True)
            if left:  # they write until they are dead
                self._ray.wait(left, num_returns=len(left), timeout=CANCEL_SECONDS)

    def _begin(self, task: Task) -> Any:
        self._require_room(task)
        options = {
            "name": task.name,
            "num_cpus": 1,
            "memory": task.memory,
            "max_retries": 0,  # `run` counts and restarts lost tasks
            "scheduling_strategy": "SPREAD",
        }
        run = self._ray.remote(_run_task).options(**options)
        return run.remote(__version__, task.work, task.arguments)

    def _require_room(self, task: Task) -> None:
        """Raise InputError if no node has enough memory: Ray would wait for one."""
        most = max((node["Resources"].get("memory", 0) for node in self.nodes()), default=0)
        if most and task.memory > most:
            raise InputError(
                f"cannot run {task.name}: it needs {task.memory >> 20:,} MiB, the largest node has "
                f"{int(most) >> 20:,} MiB",
                "Give less memory or a smaller shard_tokens, or add a larger node.",
                option=("memory", "shard_tokens"),
            )

    def _finished(self, running: list[Any]) -> list[Any]:
        while True:
            finished, _ = self._ray.wait(running, num_returns=1, timeout=20.0)
            if finished:
                return list(finished)
            if self.cores() < 1 and not self._waits_for_nodes:
                self._waits_for_nodes = True
                self._reporter.note("waiting for a node: the cluster has no core")

    def _outcome(self, done: Any, task: Task, losses: int) -> WrittenFile | None:
        """Return None if the task was lost; raise its error."""
        gone = self._ray.exceptions
        try:
            outcome: WrittenFile | Exception = self._ray.get(done)
        except (gone.WorkerCrashedError, gone.NodeDiedError, gone.ObjectLostError,
                gone.OutOfMemoryError, gone.LocalRayletDiedError) as error:  # fmt: skip
            self.retries += 1
            if losses >= MAX_RETRIES:
                raise InputError(
                    f"cannot finish {task.name}: lost {losses + 1} times ({type(error).__name__})",
                    "Check the nodes' memory and logs, then run the same command again.",
                ) from error
            return None
        except gone.RayTaskError:
            raise  # a bug, with its traceback
        except gone.RayError as error:
            raise InputError(
                f"cannot run {task.name}: {visible(_first_sentence(str(error)))}",
                f"Install ngramkit {__version__} and the same Python on every node.",
            ) from error
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def _run_task(
    version: str, work: Callable[..., WrittenFile], arguments: tuple[Any, ...]
) -> WrittenFile | Exception:
    """Run a task; return errors that are not bugs."""
    if version != __version__:
        return InputError(
            f"{platform.node()} must have ngramkit {version}, got {__version__}",
            "Install the same version on every node.",
        )
    try:
        return work(*arguments)
    except (NgramkitError, OSError) as error:
        return error


# Stages of a build.


class StageRunner(NamedTuple):
    writer: ArtifactWriter
    executor: Executor
    reporter: Reporter

    @property
    def folder(self) -> str:
        return str(self.writer.partial.absolute())

    def task(
        self,
        title: str,
        stem: str,
        work: Callable[..., WrittenFile],
        arguments: tuple[Any, ...],
        *,
        memory: int = BASE_MEMORY,
        size: int = 1,
        key: tuple[Any, ...] = (),
    ) -> Task:
        file = f"{stem}.safetensors"
        arguments = (*arguments, self.folder, file)
        return Task(f"{title}, {self.writer.path.name}", file, work, arguments, memory, size, key)

    def run(
        self, name: str, tasks: Sequence[Task], unit: str = "tokens", *, scratch: bool = False
    ) -> Generator[Task, None, None]:
        """Run the tasks whose files are missing; yield all in order, each once its file exists.

        `unit` is the unit of their sizes. Files of a `scratch` stage are deleted at the end of the
        build. Closing the generator cancels the tasks in flight.
        """
        self.reporter.stage(name, sum(task.size for task in tasks), unit)
        counts: Counter[str] = Counter()

        def advance(task: Task, facts: Mapping[str, Any]) -> None:
            counts[unit] += task.size
            if unit == "tokens":
                counts["tasks"] += 1
            elif "tokens" in facts:
                counts["tokens"] += facts["tokens"]
            if self.executor.retries:
                counts["retries"] = self.executor.retries
            self.reporter.advance(task.size, **counts)

        missing: dict[str, Task] = {}
        for task in tasks:
            facts = self.writer.finished(task.file)
            if facts is None or (scratch and facts.get(SCRATCH) != _task_digest(task)):
                missing[task.file] = task
            else:
                advance(task, facts)
        waiting = deque(tasks)
        while waiting and waiting[0].file not in missing:
            yield waiting.popleft()
        for task, written in self.executor.run(list(missing.values())):
            require_shared(self.writer.partial / task.file)
            mark = {SCRATCH: _task_digest(task)} if scratch else {}
            self.writer.record(task.file, written.record, **written.facts, **mark)
            advance(task, written.facts)
            del missing[task.file]
            while waiting and waiting[0].file not in missing:
                yield waiting.popleft()

    def facts(self, file: str) -> Mapping[str, Any]:
        return self.writer.finished(file) or {}


def _task_digest(task: Task) -> str:
    """Return a digest that distinguishes tasks with the same file name."""
    return hashlib.sha256(repr(task.key or task.arguments).encode()).hexdigest()[:16]


def write_file(folder: str, name: str, arrays: Mapping[str, Array], **facts: Any) -> WrittenFile:
    return WrittenFile(write_arrays_atomically(require_shared(Path(folder)) / name, arrays), facts)


def require_shared(path: Path) -> Path:
    """Return `path`, or raise InputError if this machine does not see it."""
    if not path.exists():
        raise InputError(
            f"cannot find {path} on {platform.node()}",
            "Make the same files visible at the same path on every node.",
        )
    return path
