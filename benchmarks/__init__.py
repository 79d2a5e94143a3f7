"""Every speed claim of the documentation, as a ratio against a reference measured in the same run.

A module with `rows()` yields `Row`s; `python -m benchmarks [NAME ...]` prints the table. Each other
module without an underscore is a program of its own: `python -m benchmarks.NAME`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

Way = TypeVar("Way")


@dataclass(frozen=True)
class Row:
    """One line of the table. `ratio` above 1 means that ours is the better one."""

    what: str  # what was done, over how much
    ours: str  # our figure, with its unit
    reference: str  # the other's figure and name
    ratio: float
    target: str  # what the project set out to reach


def existing(name: str) -> Path:
    """Return the path of a file or folder that is there: a type of argparse's."""
    if not Path(name).exists():
        raise argparse.ArgumentTypeError(f"there is no {name}")
    return Path(name)


def interleaved(*tasks: Callable[[], object], rounds: int = 3) -> list[float]:
    """Return the least seconds of each task; the tasks alternate."""
    ways = {i: partial(timed, task) for i, task in enumerate(tasks)}
    return list(in_turns(ways, rounds).values())


def in_turns(ways: Mapping[Way, Callable[[], float]], rounds: int) -> dict[Way, float]:
    """Return the least that each returns. They alternate, so a drifting machine favours none."""
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for way, seconds in ways.items():
            best[way] = min(best[way], seconds())
    return best


def timed(task: Callable[[], object]) -> float:
    started = time.perf_counter()
    task()
    return time.perf_counter() - started


def markdown(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    return "\n".join([table_line(head), "|" + "---|" * len(head), *map(table_line, rows)])


def table_line(cells: Sequence[object]) -> str:
    """Return a line of a table in Markdown."""
    return f"| {' | '.join(map(str, cells))} |"
