"""What a builder gives an executor, and what it gets back. It does not know where tasks run.

A task writes one file, whole or not at all, and returns what it wrote: name, size, sha256 and a
few numbers. Run twice, in two places at a time even, it leaves the same bytes. So whoever runs it
may run it again: after a crash, on another node, for a build that was begun yesterday.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True)
class Task(Generic[Result]):
    """`work(*given)`: a function of a module, and what can be pickled."""

    name: str  # for people: "suffix array of shard-00003"
    file: str  # what it writes
    work: Callable[..., Result]
    given: tuple[Any, ...]
    memory: int  # bytes that it holds at most
    size: int = 1  # how much of its stage it is, in the stage's unit
    key: tuple[Any, ...] = ()  # what tells it from other cuts of the same work; else `given` does


class Executor(Protocol):
    """`local` says whether tasks share this process's memory, and one machine's cores."""

    name: str
    local: bool
    retries: int  # tasks that were lost, and begun again

    def run(self, tasks: Iterable[Task[Result]]) -> Iterator[tuple[Task[Result], Result]]:
        """Every task with its result, as they finish. A task that raises ends it."""
