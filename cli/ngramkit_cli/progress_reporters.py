"""Progress: bars on a terminal, otherwise a line every ten seconds."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from ngramkit.basics.progress import Reporter
from ngramkit.basics.terminal_text import visible, without_secrets
from ngramkit_cli.tables import NAME_WIDTH, NARROW_COLUMNS, fit_line

logger = logging.getLogger("ngramkit")
LINE_SECONDS = 10.0  # between lines of progress


class QuietReporter(Reporter):
    """The reporter of --quiet, which shows nothing.

    It records commits fetched from the Hub and what work was done, and logs the times of stages.
    """

    def __init__(self) -> None:
        self.worked = self.continues = False
        self.revisions: dict[str, str] = {}  # hf:// source -> commit
        self.renamed: dict[str, str] = {}  # temporary files in notes -> their names there
        self._noted: set[str] = set()
        self._name = ""  # of the stage
        self._started = 0.0

    def stage(self, name: str, total: float | None = None, unit: str = "tokens") -> None:
        self.worked = True
        self._end_stage()
        self._name, self._started = visible(name, NAME_WIDTH), time.monotonic()

    def fetched(self, source: str, commit: str) -> None:
        self.revisions[source] = commit

    def resumed(self) -> None:
        self.continues = True

    def note(self, text: str) -> None:
        for path, name in self.renamed.items():
            text = text.replace(path, name)
        if text not in self._noted:
            self._noted.add(text)
            self._show_note(without_secrets(text))

    def close(self, *, whole: bool = True) -> None:
        """Stop drawing. `whole`: the last stage is complete."""
        if whole:
            self._end_stage()

    def _show_note(self, text: str) -> None:
        """Show a note, each once."""

    def _end_stage(self) -> None:
        if self._name:
            logger.info("%s: %.1f s", self._name, time.monotonic() - self._started)
            self._name = ""


class LineReporter(QuietReporter):
    """A reporter for logs: `tokenize 12.4 M tokens, 31 %, 2.0 M/s`, every LINE_SECONDS."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say
        self._unit = ""
        self._total: float | None = None
        self._done = 0.0
        self._counts: dict[str, float] = {}
        self._closed = threading.Event()
        self._ticker: threading.Thread | None = None

    def stage(self, name: str, total: float | None = None, unit: str = "tokens") -> None:
        super().stage(name, total, unit)
        self._unit, self._total, self._done, self._counts = unit, total, 0.0, {}
        if self._ticker is None:
            self._closed.clear()
            self._ticker = threading.Thread(target=self._tick, daemon=True)
            self._ticker.start()

    def advance(self, amount: float, **counts: float) -> None:
        self._done += amount
        self._counts = counts

    def close(self, *, whole: bool = True) -> None:
        self._closed.set()
        if self._ticker is not None:
            self._ticker.join()
            self._ticker = None
        super().close(whole=whole)

    def _show_note(self, text: str) -> None:
        self._say(text)

    def _tick(self) -> None:
        last = ""
        while not self._closed.wait(LINE_SECONDS):
            seconds = time.monotonic() - self._started
            line = self.line(seconds)
            if seconds >= LINE_SECONDS / 2 and line != last:  # not just started
                self._say(line)
                last = line

    def line(self, seconds: float) -> str:
        if not self._done:
            return f"{self._name}, {seconds:.0f} s so far"
        if self._total and self._done >= self._total:  # the next stage has not started
            return f"{self._name} done, continuing"
        named = self._unit != self._name
        begun = _counted(self._done, self._unit) if named else short_amount(self._done)
        parts = [f"{self._name} {begun}"]
        if self._total:
            parts.append(f"{min(self._done / self._total, 1):.0%}".replace("%", " %"))
        done, tokens = self._done, self._counts.get("tokens", 0)
        if tokens and self._unit != "tokens":
            parts.append(f"{short_amount(tokens)} tokens")
            done = tokens
        rate = done / max(seconds, 1e-9)
        parts.append(f"{short_amount(rate)}/s" if rate >= 1 else f"{short_amount(rate * 60)}/min")
        extras = (name for name in ("tasks", "retries") if self._counts.get(name))
        parts += [_counted(self._counts[name], name) for name in extras]
        return ", ".join(parts)


class BarReporter(QuietReporter):
    """A reporter with a rich progress bar per stage."""

    def __init__(self) -> None:
        super().__init__()
        self._progress: Any = None
        self._task: Any = None

    def stage(self, name: str, total: float | None = None, unit: str = "tokens") -> None:
        super().stage(name, total, unit)
        if self._progress is None:
            self._progress = _new_bars()
            self._progress.start()
        self._task = self._progress.add_task(self._name, total=total, counts="")

    def advance(self, amount: float, **counts: float) -> None:
        if self._progress is None:
            return
        text = ", ".join(_counted(count, name) for name, count in counts.items())
        if "tokens" in counts:
            seconds = max(time.monotonic() - self._started, 1e-9)
            text += f", {short_amount(counts['tokens'] / seconds)}/s"
        self._progress.update(self._task, advance=amount, counts=text)

    def _show_note(self, text: str) -> None:
        if self._progress is not None:
            self._progress.console.print(visible(text), highlight=False, markup=False)
        else:
            print(*fit_line(visible(text), sys.stderr), sep="\n", file=sys.stderr, flush=True)

    def close(self, *, whole: bool = True) -> None:
        super().close(whole=whole)
        if self._progress is not None:
            self._progress.stop()
            self._progress = self._task = None

    def _end_stage(self) -> None:
        """Set the stage's bar to 100 %; a sample or a limit may end below it."""
        super()._end_stage()
        if self._task is not None:
            task = next(task for task in self._progress.tasks if task.id == self._task)
            total = task.total or task.completed or 1
            self._progress.update(self._task, total=total, completed=total)


def _new_bars() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    console = Console(stderr=True)
    percent = TextColumn("{task.percentage:>3.0f}%")
    narrow = console.width < NARROW_COLUMNS
    # Texts are cut to fit, but not the bar, the share and the clock.
    cut: Any = {"no_wrap": True, "overflow": "ellipsis"}
    rest = Column(ratio=1, **cut)
    name = TextColumn(
        "{task.description}", markup=False, table_column=rest if narrow else Column(**cut)
    )
    columns = [name, BarColumn(10 if narrow else 20), percent, TimeRemainingColumn(compact=narrow)]
    if not narrow:
        columns.append(TextColumn("{task.fields[counts]}", markup=False, table_column=rest))
    return Progress(*columns, console=console, expand=True)


def _counted(count: float, name: str) -> str:
    """Return a count with its noun (given in the plural) or name ("tokens/step blend")."""
    one = {"retries": "retry", "passes": "pass"}.get(name, name.removesuffix("s"))
    return f"{short_amount(count)} {one if count == 1 and name.isalpha() else name}"


def short_amount(amount: float) -> str:
    """Return an amount with three digits: "12.4 M", "999", "1.46"."""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if amount >= size:
            return f"{amount / size:.1f}{unit}"
    return f"{amount:.0f}" if amount >= 10 or amount == int(amount) else f"{amount:.2f}"
