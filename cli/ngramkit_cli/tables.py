"""Tables and texts that fit the terminal. rich alone would cut figures on a narrow one."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from itertools import zip_longest
from typing import IO, TYPE_CHECKING, Any

from ngramkit.basics.terminal_text import fold_name, visible

if TYPE_CHECKING:
    from ngramkit.evaluate.statistics import Ratio

FIGURE = re.compile(r"[-+]?\.?\d|n/a|$")
COLUMN_GAP = 2  # spaces between columns
MIN_NAME, MIN_WORDS = 16, 20  # least widths of folded names and words
NO_BREAK = "\xa0"  # no-break space
MAX_TEXT = 98  # characters per line of text
UNBOUNDED_COLUMNS = 10_000  # columns without a terminal
NARROW_COLUMNS = 70  # columns; narrower terminals show no figures next to a bar
NAME_WIDTH = 32  # characters of a name


def table_of_facts(title: str, rows: Mapping[str, object]) -> list[str]:
    """Return names and values below a title; a terminal folds long values."""
    table = _empty_grid("left")
    for name, value in rows.items():
        _add_row(table, (visible(name, NAME_WIDTH), visible(value)))
    return [title, *(f"  {line}" for line in _render_lines(table, _terminal_columns() - 2))]


def lines_of_ratios(title: str, ratios: Sequence[Ratio]) -> list[str]:
    """Return ratios; the title has the note on their intervals if all have the same."""
    first, *others = dict.fromkeys(each.interval for each in ratios)
    if others or not first:
        return [title, *(f"  {each}" for each in ratios)]
    return [f"{title} ({first})", *(f"  {replace(each, interval='')}" for each in ratios)]


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
