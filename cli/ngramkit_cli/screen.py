"""The terminal: stdout and stderr, progress, tables, and generated text.

The streams may be closed or full, or have an encoding without some letters.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import StringIO
from itertools import zip_longest
from typing import IO, Any

from ngramkit.basics.errors import NgramkitError
from ngramkit.basics.progress import Reporter
from ngramkit.basics.terminal_text import escape_controls, fold_name, visible, without_secrets

FIGURE = re.compile(r"[-+]?\.?\d|n/a|$")


def make_streams_safe() -> None:
    """Escape letters that the encoding lacks; reserve the file numbers of closed streams."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if isinstance(sys.stderr, io.TextIOWrapper):
        lossy = io.BufferedWriter(_Lossy(sys.stderr.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(
            lossy, sys.stderr.encoding, "backslashreplace", line_buffering=True
        )
    # Files opened later must not get number 1 or 2, to which text is printed.
    while (free := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(free)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


class _Lossy(io.FileIO):
    """A file that drops what cannot be written, so that a closed stderr ends no work."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def write(text: str, end: str = "\n") -> None:
    """Write a line to stdout. Raises NgramkitError or BrokenPipeError."""
    require_stdout()
    try:
        print(text, end=end, flush=True)
    except BrokenPipeError:
        forget_stdout()
        raise
    except OSError as error:
        forget_stdout()
        hint = "Free some space, or redirect stdout; the result is lost."
        raise NgramkitError(f"cannot write to stdout: {error.strerror}", hint) from error


def require_stdout() -> None:
    if sys.stdout is None:
        raise NgramkitError(
            "cannot write the result: stdout is closed", "Redirect stdout to a file."
        )


def forget_stdout() -> None:
    """Discard stdout's buffer, which Python would fail to flush at exit."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


# Progress: bars on a terminal, otherwise a line every ten seconds.

logger = logging.getLogger("ngramkit")
LINE_SECONDS = 10.0  # between lines of progress
NAME_WIDTH = 32  # characters of a stage's name
NARROW_COLUMNS = 70  # columns; narrower terminals show no figures next to a bar


class QuietReporter(Reporter):
    """The reporter of --quiet, which shows nothing.

    It records commits fetched from the Hub and any work, and logs the times of stages.
    """

    def __init__(self) -> None:
        self.worked = False
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


# Tables as lines of text. rich alone would cut figures on a narrow terminal.

COLUMN_GAP = 2  # spaces between columns
MIN_NAME, MIN_WORDS = 16, 20  # least widths of folded names and words
NO_BREAK = "\xa0"  # no-break space
MAX_TEXT = 98  # characters per line of text
UNBOUNDED_COLUMNS = 10_000  # columns without a terminal


def table_of_facts(title: str, rows: Mapping[str, object]) -> list[str]:
    """Return names and values below a title; a terminal folds long values."""
    table = _empty_grid("left")
    for name, value in rows.items():
        _add_row(table, (visible(name, NAME_WIDTH), visible(value)))
    return [title, *(f"  {line}" for line in _render_lines(table, _terminal_columns() - 2))]


def table_of_figures(
    rows: Iterable[Sequence[str]], head: Sequence[str] = (), justify: str = "left"
) -> list[str]:
    """Return a table of a name and figures per row; no figure is cut or folded.

    `justify` aligns the last column: "left" for words, "right" for figures. The first is aligned to
    the left, others to the right if they hold figures. A narrow terminal folds the head, names and
    words; if that is not enough, each row becomes a text.
    """
    plain = [list(map(visible, row)) for row in ([head, *rows] if head else rows)]
    most = max(map(len, plain), default=0)
    cells, columns = plain, _terminal_columns()
    if most > 1 and _table_width(cells) > columns:
        cells = _fold_cells(cells, bool(head), justify == "left", columns)
        if _table_width(cells) > columns:
            return _rows_as_texts(plain[1:] if head else plain, head, columns)
    between = [
        "right"
        if all(FIGURE.match(row[at]) for row in plain[bool(head) :] if at < len(row))
        else "left"
        for at in range(1, most - 1)
    ]
    table = _empty_grid(*between, justify) if most > 1 else _empty_grid()
    for row in cells:
        _add_row(table, row)
    return _render_lines(table, UNBOUNDED_COLUMNS)


def _fold_cells(cells: list[list[str]], headed: bool, words: bool, columns: int) -> list[list[str]]:
    """Fold the head, then the last column if it has `words`, then the first."""
    if headed:
        widths = _column_widths(cells[1:])
        head = [
            fold_name(cell, max(width, MIN_NAME)) if i else cell
            for i, (cell, width) in enumerate(zip(cells[0], widths, strict=False))
        ]
        high = max(cell.count("\n") for cell in head)
        cells = [["\n" * (high - cell.count("\n")) + cell for cell in head], *cells[1:]]
    if words:
        cells = _column_folded(
            cells, len(_column_widths(cells)) - 1, textwrap.fill, MIN_WORDS, columns
        )
    return _column_folded(cells, 0, fold_name, MIN_NAME, columns)


def _column_folded(
    cells: list[list[str]], column: int, fold: Callable[[str, int], str], least: int, columns: int
) -> list[list[str]]:
    """Fold a column to the remaining width, at least `least`."""
    room = max(columns - _table_width(cells) + _column_widths(cells)[column], least)
    return [
        [fold(cell, room) if i == column else cell for i, cell in enumerate(row)] for row in cells
    ]


def _column_widths(cells: Sequence[Sequence[str]]) -> list[int]:
    columns = zip_longest(*cells, fillvalue="")
    return [max(len(line) for cell in each for line in cell.split("\n")) for each in columns]


def _table_width(cells: Sequence[Sequence[str]]) -> int:
    widths = _column_widths(cells)
    return sum(widths) + COLUMN_GAP * (len(widths) - 1)


def _rows_as_texts(rows: Sequence[Sequence[str]], head: Sequence[str], columns: int) -> list[str]:
    """Return each row as a text: its name, then each column's head and figure."""
    lines = []
    for row in rows:
        pairs = zip_longest(head[1:], row[1:], fillvalue="")
        parts = [f"{name} {cell}".strip() for name, cell in pairs if cell]
        whole = [
            part if len(part) > columns // 2 else part.replace(" ", NO_BREAK) for part in parts
        ]
        name = f"{head[0] if head else ''} {row[0]}".strip()
        text = _wrap_lines(", ".join(whole), columns, "  ", "    ")
        lines += [*fold_name(name, columns).split("\n"), *(s.replace(NO_BREAK, " ") for s in text)]
    return lines


def wrap_text(text: str, indent: int, hanging: int = 0) -> list[str]:
    """Wrap a text to the terminal; lines after the first have `hanging` more spaces."""
    first, others = " " * indent, " " * (indent + hanging)
    width = max(min(MAX_TEXT, _terminal_columns()), indent + hanging + 20)
    return _wrap_lines(visible(text), width, first, others)


def fit_line(line: str, stream: IO[str]) -> list[str]:
    """Break a line to fit the stream's terminal; a command stays whole, on its own line."""
    columns = _terminal_columns(stream)
    if len(line) <= columns:
        return [line]
    said, colon, command = line.partition(": ngramkit ")
    if said.lstrip().startswith("ngramkit "):
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    lines = _wrap_lines(said + colon[:1], columns, "", indent)
    return [*lines, f"{indent}ngramkit {command}"] if colon else lines


def _wrap_lines(text: str, width: int, first: str, others: str) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=others,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _empty_grid(*justify: Any) -> Any:
    from rich.table import Table

    table = Table.grid(padding=(0, COLUMN_GAP, 0, 0))
    for each in ("left", *justify):
        table.add_column(justify=each, overflow="fold")
    return table


def _add_row(table: Any, row: Sequence[str]) -> None:
    from rich.text import Text

    table.add_row(*map(Text, row))  # not markup


def _render_lines(table: Any, columns: int) -> list[str]:
    from rich.console import Console

    text = StringIO()
    Console(file=text, width=columns, color_system=None, legacy_windows=False).print(table)
    return [line.rstrip() for line in text.getvalue().splitlines()]


def _terminal_columns(stream: IO[str] | None = None) -> int:
    """Return the columns of the terminal (default: stdout's), UNBOUNDED_COLUMNS without one."""
    stream = stream or sys.stdout
    if stream is None or not stream.isatty():
        return UNBOUNDED_COLUMNS
    from rich.console import Console

    return Console(file=stream).width


# Generated text, with drafted tokens in another colour.

DRAFTED, PLAIN = "\x1b[36m", "\x1b[0m"


class Screen:
    """Generated text. A terminal gets control characters escaped, a file or pipe the raw text."""

    def __init__(
        self, stream: IO[str], *, color: bool = True, bars: QuietReporter | None = None
    ) -> None:
        if stream is None:
            require_stdout()
        self._stream, self._bars = stream, bars
        self._terminal = stream.isatty()
        self._color = color and self._terminal and not os.environ.get("NO_COLOR")
        self._coloured = False
        self._last = ""
        self._explained = not self._color

    def _write(self, text: str) -> None:
        if self._stream is sys.stdout:
            write(text, end="")
        else:
            self._stream.write(text)
            self._stream.flush()

    def show(self, piece: str, drafted: bool) -> None:
        """Show a piece of text; "" ends the text, as for `show` of DecodeOptions."""
        if self._bars is not None:
            self._bars.close()  # keeps bars out of the text
        if not piece:
            self.end()
            return
        self._last = piece
        if self._terminal:
            piece = escape_controls(piece)
        if not self._explained:
            self._write(f"[{DRAFTED}drafted{PLAIN}, the model's own]\n")
            self._explained = True
        if self._color and drafted != self._coloured:
            piece = (DRAFTED if drafted else PLAIN) + piece
            self._coloured = drafted
        self._write(piece)

    def end(self) -> None:
        ending = "" if self._last.endswith("\n") else "\n"
        self._write((PLAIN if self._coloured else "") + ending)
        self._last, self._coloured = "", False
