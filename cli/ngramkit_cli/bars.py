"""Reporters of progress: bars on a terminal, elsewhere a line every ten seconds."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from ngramkit.progress import Reporter
from ngramkit.text import visible

logger = logging.getLogger("ngramkit")
EVERY = 10.0  # seconds between two lines, where there is no terminal
NAME = 32  # characters of a stage's name
NARROW = 70  # columns below which the bar itself has no room


class QuietReporter(Reporter):
    """The reporter of --quiet, which only records the commits that came from the Hub."""

    def __init__(self) -> None:
        self.revisions: dict[str, str] = {}  # hf:// source -> commit

    def fetched(self, source: str, commit: str) -> None:
        self.revisions[source] = commit

    def close(self, *, whole: bool = True) -> None:
        """Stop drawing; `whole`: the last stage's work was finished."""


class LineReporter(QuietReporter):
    """A reporter for logs: `tokenize 12.4 M tokens, 31 %, 2.0 M/s`, every EVERY seconds."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say
        self._name = self._unit = ""
        self._total: float | None = None
        self._done = 0.0
        self._counts: dict[str, float] = {}
        self._started = 0.0
        self._closed = threading.Event()
        self._ticker: threading.Thread | None = None

    def stage(self, name: str, total: float | None = None, unit: str = "tokens") -> None:
        self._end_stage()
        self._name, self._unit, self._total = visible(name, NAME), unit, total
        self._done, self._started, self._counts = 0.0, time.monotonic(), {}
        if self._ticker is None:
            self._closed.clear()
            self._ticker = threading.Thread(target=self._tick, daemon=True)
            self._ticker.start()

    def advance(self, amount: float, **counts: float) -> None:
        self._done += amount
        self._counts = counts

    def note(self, text: str) -> None:
        self._say(text)

    def close(self, *, whole: bool = True) -> None:
        """Stop the lines until the next stage."""
        self._closed.set()
        if self._ticker is not None:
            self._ticker.join()
            self._ticker = None
        self._end_stage()

    def _end_stage(self) -> None:
        if self._name:
            log_stage(self._name, time.monotonic() - self._started)
            self._name = ""

    def _tick(self) -> None:
        while not self._closed.wait(EVERY):
            self._say(self.line(time.monotonic() - self._started))

    def line(self, seconds: float) -> str:
        """Return the line to show after so many seconds of the stage."""
        if not self._done:
            return f"{self._name}, {seconds:.0f} s so far"
        unit = "" if self._unit == self._name else f" {self._unit}"
        parts = [f"{self._name} {short(self._done)}{unit}"]
        if self._total:
            parts.append(f"{min(self._done / self._total, 1):.0%}".replace("%", " %"))
        done, tokens = self._done, self._counts.get("tokens", 0)
        if tokens and self._unit != "tokens":
            parts.append(f"{short(tokens)} tokens")
            done = tokens
        rate = done / max(seconds, 1e-9)
        parts.append(f"{short(rate)}/s" if rate >= 1 else f"{short(rate * 60)}/min")
        extras = (name for name in ("tasks", "retries") if self._counts.get(name))
        parts += [f"{short(self._counts[name])} {name}" for name in extras]
        return ", ".join(parts)


class BarReporter(QuietReporter):
    """A reporter with a rich progress bar per stage. A finished stage is at 100 %."""

    def __init__(self) -> None:
        super().__init__()
        self._progress: Any = None
        self._task: Any = None
        self._name = ""
        self._started = 0.0

    def stage(self, name: str, total: float | None = None, unit: str = "tokens") -> None:
        if self._progress is None:
            self._progress = _new_bars()
            self._progress.start()
        self._complete()
        self._started = time.monotonic()
        self._name = visible(name, NAME)
        self._task = self._progress.add_task(self._name, total=total, counts="")

    def advance(self, amount: float, **counts: float) -> None:
        if self._progress is None:
            return
        text = ", ".join(f"{short(count)} {name}" for name, count in counts.items())
        if "tokens" in counts:
            seconds = max(time.monotonic() - self._started, 1e-9)
            text += f", {short(counts['tokens'] / seconds)}/s"
        self._progress.update(self._task, advance=amount, counts=text)

    def note(self, text: str) -> None:
        if self._progress is not None:
            self._progress.console.print(visible(text), highlight=False, markup=False)
        else:
            print(visible(text), file=sys.stderr, flush=True)

    def close(self, *, whole: bool = True) -> None:
        """Leave the bars on the screen; `whole`: the last stage's work was finished."""
        if self._progress is None:
            return
        if whole:
            self._complete()
        self._progress.stop()
        self._progress = self._task = None

    def _complete(self) -> None:
        """Put the stage's bar at 100 %: a sample or a limit may leave it below."""
        if self._task is None:
            return
        log_stage(self._name, time.monotonic() - self._started)
        task = next(task for task in self._progress.tasks if task.id == self._task)
        total = task.total or task.completed or 1
        self._progress.update(self._task, total=total, completed=total)


def log_stage(name: str, seconds: float) -> None:
    logger.info("%s: %.1f s", name, seconds)


def _new_bars() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    percent = TextColumn("{task.percentage:>3.0f}%")
    name = TextColumn("{task.description}", markup=False)
    counts = TextColumn("{task.fields[counts]}", markup=False)
    narrow = console.width < NARROW
    columns = [percent, name] if narrow else [name, BarColumn(), percent, counts]
    return Progress(*columns, *([] if narrow else [TimeRemainingColumn()]), console=console)


def short(amount: float) -> str:
    """Return an amount in three digits.

    >>> short(12_412_003), short(999), short(2_000_000_000)
    ('12.4 M', '999', '2.0 G')
    """
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if amount >= size:
            return f"{amount / size:.1f}{unit}"
    return f"{amount:.0f}"
