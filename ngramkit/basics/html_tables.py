"""Small tables for notebooks, whose cells are text: markup and formulas are escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from ngramkit.basics.terminal_text import counted, visible, without_secrets

MAX_ROWS = 50
MAX_CELL = 200  # characters
# Notebooks would set the text between two dollar signs as a formula.
NO_FORMULAS = "tex2jax_ignore mathjax_ignore"


def html_table(
    title: str, head: Sequence[str], rows: Iterable[Sequence[object]], notes: Iterable[str] = ()
) -> str:
    """Return a table of at most MAX_ROWS rows; numbers are aligned right."""
    found = [list(row) for row in rows]
    left_out = len(found) - MAX_ROWS
    more = [f"and {counted(left_out, 'more row')}"] if left_out > 0 else []
    names = "".join(f"<th>{escaped(name)}</th>" for name in head)
    return "".join(
        [
            f'<table class="{NO_FORMULAS}"><caption>{escaped(title)}</caption>',
            f"<thead><tr>{names}</tr></thead>" if head else "",
            "<tbody>",
            *(f"<tr>{''.join(map(_cell, row))}</tr>" for row in found[:MAX_ROWS]),
            "</tbody></table>",
            *(f'<p class="{NO_FORMULAS}">{escaped(note)}</p>' for note in (*more, *notes)),
        ]
    )


def escaped(value: object, most: int = MAX_CELL) -> str:
    return html.escape(visible(without_secrets(str(value)), most))


def _cell(value: object) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, int | float) and not isinstance(value, bool):
        text = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
        return f'<td style="text-align: right">{text}</td>'
    return f"<td>{escaped(value)}</td>"
