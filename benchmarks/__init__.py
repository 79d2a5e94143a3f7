"""Every speed claim of the README, as a ratio against a reference measured in the same run.

Each module has `rows()`, which yields `Row`s; `python -m benchmarks [NAME ...]` prints the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One line of the table. `ratio` above 1 means that ours is the better one."""

    what: str  # what was done, over how much
    ours: str  # our figure, with its unit
    reference: str  # the other's figure and name
    ratio: float
    target: str  # what the project set out to reach


def interleaved(*tasks: Callable[[], object], rounds: int = 3) -> list[float]:
    """The least seconds of each task; they take turns, so that a drifting machine favours none."""
    best = [float("inf")] * len(tasks)
    for _ in range(rounds):
        for i, task in enumerate(tasks):
            started = time.perf_counter()
            task()
            best[i] = min(best[i], time.perf_counter() - started)
    return best


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    lines = ["| what | ours | reference | ratio | target |", "|---|---|---|---|---|"]
    for row in rows:
        cells = [row.what, row.ours, row.reference, f"{row.ratio:.2f}", row.target]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
