"""Tables as lines of text: rich lays them out, Output writes them."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from typing import Any

from ngramkit.text import visible

WIDEST = 32  # characters of a name
PROSE = 98  # most columns of a text
UNBOUNDED = 10_000  # columns of tables that are never cut


def facts(title: str, rows: Mapping[str, object]) -> list[str]:
    """Return names and values below a title; on a terminal long values are folded."""
    table = _grid("left")
    for name, value in rows.items():
        _add(table, (visible(name, WIDEST), str(value)))
    return [title, *(f"  {line}" for line in _lines(table, _columns() - 2))]


def figures(
    rows: Iterable[Sequence[str]], head: Sequence[str] = (), justify: str = "left"
) -> list[str]:
    """Return rows of a name to the left and figures to the right; no figure is cut or folded.

    `justify` is for the last column: "left" for words, "right" for figures.
    """
    cells = [list(map(str, row)) for row in ([head, *rows] if head else rows)]
    most = max(map(len, cells), default=0)
    table = _grid(*["right"] * (most - 2), justify) if most > 1 else _grid()
    for row in cells:
        _add(table, row)
    return _lines(table, UNBOUNDED)


def wrapped(text: str, indent: int, hanging: int = 0) -> list[str]:
    """Return a text in lines that fit the terminal; all but the first are indented by `hanging`
    more."""
    first, others = " " * indent, " " * (indent + hanging)
    width = max(min(PROSE, _columns()), indent + hanging + 20)
    return textwrap.wrap(
        visible(text), width, initial_indent=first, subsequent_indent=others,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _grid(*justify: Any) -> Any:
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    for each in ("left", *justify):
        table.add_column(justify=each, overflow="fold")
    return table


def _add(table: Any, row: Sequence[str]) -> None:
    from rich.text import Text

    table.add_row(*(Text(visible(cell)) for cell in row))  # text, not markup


def _lines(table: Any, columns: int) -> list[str]:
    from rich.console import Console

    text = StringIO()
    Console(file=text, width=columns, color_system=None, legacy_windows=False).print(table)
    return [line.rstrip() for line in text.getvalue().splitlines()]


def _columns() -> int:
    """Return the columns of the terminal, UNBOUNDED off a terminal."""
    if sys.stdout is None or not sys.stdout.isatty():
        return UNBOUNDED
    from rich.console import Console

    return Console().width
