"""Progress in a notebook: the stages of the running cell, as bars below it.

One display per cell is replaced in place, which needs no widgets.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from typing import Any

from ngramkit.basics.html_tables import NO_FORMULAS, escaped
from ngramkit.basics.progress import SILENT, Reporter, notebook_shell
from ngramkit.basics.terminal_text import visible, without_secrets

UPDATE_SECONDS = 0.2
MAX_LINES = 12  # of finished stages and notes
MAX_NOTE = 2000  # characters


class CellReporter(Reporter):
    """A reporter that shows the stages and notes of one cell; `end` is called with it."""

    def __init__(self, shell: Any) -> None:
        self._shell, self._process = shell, os.getpid()
        self._display = uuid.uuid4().hex
        self._lock = threading.RLock()
        self._lines: list[str] = []
        self._stage: _Stage | None = None
        self._shown = 0.0  # when; 0 if never

    def belongs_to(self, shell: Any) -> bool:
        return shell is self._shell and os.getpid() == self._process

    def stage(self, name: str, total: float | None = None, unit: str = "tokens") -> None:
        with self._lock:
            if self._stage is not None:
                self._lines.append(f"{self._stage.name}: {self._stage.seconds:.1f} s")
            self._stage = _Stage(name, total, unit)
            self._show()

    def advance(self, amount: float, **counts: float) -> None:
        with self._lock:
            if self._stage is None:
                return
            self._stage.advance(amount, counts)
            if time.monotonic() - self._shown >= UPDATE_SECONDS:
                self._show()

    def note(self, text: str) -> None:
        with self._lock:
            if text not in self._lines:
                self._lines.append(text)
                self._show()

    def end(self, *, whole: bool) -> None:
        """Show the last state. `whole`: the cell ran to its end."""
        with self._lock:
            if self._stage is not None:
                self._lines.append(self._stage.last() if whole else f"stopped in {self._stage}")
                self._stage = None
            if self._shown:
                self._show()

    def _show(self) -> None:
        lines, stage = self._lines[-MAX_LINES:], self._stage
        texts = [visible(without_secrets(line)) for line in lines]
        body = [f"<div>{escaped(line, MAX_NOTE)}</div>" for line in lines]
        if stage is not None:
            texts.append(visible(stage))
            body.append(f"<div>{stage.bar()} {escaped(stage)}</div>")
        self._shell.display_pub.publish(
            data={
                "text/plain": "\n".join(texts),
                "text/html": f'<div class="{NO_FORMULAS}">{"".join(body)}</div>',
            },
            metadata={},
            transient={"display_id": self._display},
            update=self._shown > 0,
        )
        self._shown = time.monotonic()


class _Stage:
    def __init__(self, name: str, total: float | None, unit: str) -> None:
        self.name, self.total, self.unit = name, total, unit
        self.done = 0.0
        self.counts: dict[str, float] = {}
        self._started = self._advanced = time.monotonic()

    def advance(self, amount: float, counts: dict[str, float]) -> None:
        self.done += amount
        self.counts = counts
        self._advanced = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def __str__(self) -> str:
        share = f" {min(self.done / self.total, 1):.0%}" if self.total else ""
        amounts = {self.unit: self.done, **self.counts}
        counts = ", ".join(f"{_format_number(count)} {name}" for name, count in amounts.items())
        return f"{self.name}{share}: {counts}, {self.seconds:.0f} s"

    def bar(self) -> str:
        value = f' value="{min(self.done / self.total, 1):.3f}"' if self.total else ""
        return f"<progress{value}></progress>"

    def last(self) -> str:
        """Return the line of a cell's last stage, whose end is known only if it advanced."""
        return f"{self.name}: {self._advanced - self._started:.1f} s" if self.done else self.name


def _format_number(count: float) -> str:
    return f"{count:,.0f}" if count == int(count) else f"{count:,.2f}"


_current: CellReporter | None = None


def _cell_reporter() -> Reporter:
    """Return the reporter of the running cell, SILENT outside notebooks and in forked processes."""
    global _current
    shell = notebook_shell()
    if shell is None:
        return SILENT
    if _current is not None:
        return _current if _current.belongs_to(shell) else SILENT
    reporter = _current = CellReporter(shell)

    def end(result: Any = None) -> None:
        global _current
        _current = None
        shell.events.unregister("post_run_cell", end)
        reporter.end(whole=getattr(result, "success", True))

    shell.events.register("post_run_cell", end)
    return reporter


class _NotebookBars(Reporter):
    """A reporter with bars in notebooks, silent elsewhere."""

    def __repr__(self) -> str:
        return "NOTEBOOK_BARS"

    def stage(self, name: str, total: float | None = None, unit: str = "tokens") -> None:
        _cell_reporter().stage(name, total, unit)

    def advance(self, amount: float, **counts: float) -> None:
        _cell_reporter().advance(amount, **counts)

    def note(self, text: str) -> None:
        _cell_reporter().note(text)


NOTEBOOK_BARS: Reporter = _NotebookBars()
