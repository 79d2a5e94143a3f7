"""Tables of results, as Markdown, LaTeX (booktabs) and HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from ngramkit.basics.html_tables import html_table
from ngramkit.basics.terminal_text import visible
from ngramkit.evaluate.replay_figures import Replay
from ngramkit.evaluate.statistics import Interval

NOT_COUNTED = "n/a"
FEW_COLUMNS = 5  # fit into the text of an article at the usual distance
IN_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|])")
IN_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "%": r"\%",
    "#": r"\#", "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''",
    "[": "{[}", "*": "{*}",  # else they may be an argument of the command before
}  # fmt: skip


class Cell(NamedTuple):
    text: str
    interval: str = ""  # "2.60 to 2.85"

    def __str__(self) -> str:
        return f"{self.text} ({self.interval})" if self.interval else self.text


@dataclass(frozen=True)
class Table:
    """A row per drafter; the first column has its name."""

    name: str  # of its label in LaTeX
    title: str
    head: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell]]]
    notes: Sequence[str] = field(default=())

    def markdown(self) -> str:
        lines = [f"{_in_markdown(self.title)}:", ""]
        lines += [
            _markdown_row(map(_in_markdown, self.head)),
            _markdown_row(["---", *["---:"] * len(self.head[1:])]),
        ]
        for name, cells in self.rows:
            lines.append(_markdown_row(map(_in_markdown, (name, *map(str, cells)))))
        if self.notes:
            lines += ["", *(f"- {_in_markdown(note)}" for note in self.notes)]
        return "\n".join(lines)

    def html(self) -> str:
        return html_table(
            self.title,
            self.head,
            ((name, *map(str, cells)) for name, cells in self.rows),
            self.notes,
        )

    def latex(self) -> str:
        """Return a float; intervals are a second line of each row."""
        lines = [_latex_row(map(_in_latex, self.head)), r"\midrule"]
        for name, cells in self.rows:
            lines.append(
                _latex_row(_in_latex(each) for each in (name, *(cell.text for cell in cells)))
            )
            if any(cell.interval for cell in cells):
                small = (_latex_interval(cell.interval) for cell in cells)
                lines.append(_latex_row(["", *small]))
        caption = ". ".join(_in_latex(text.rstrip(".")) for text in (self.title, *self.notes))
        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                *([r"\setlength{\tabcolsep}{3pt}"] if len(self.head) > FEW_COLUMNS else []),
                rf"\caption{{{caption}.}}",
                rf"\label{{tab:{self.name}}}",
                rf"\begin{{tabular}}{{l{'r' * len(self.head[1:])}}}",
                r"\toprule",
                *lines,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
            ]
        )


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _latex_row(cells: Iterable[str]) -> str:
    return rf"{' & '.join(cells)} \\"


def _latex_interval(interval: str) -> str:
    return rf"{{\scriptsize [{_in_latex(interval.replace(' to ', ', '))}]}}" if interval else ""


def _in_markdown(text: str) -> str:
    return IN_MARKDOWN.sub(r"\\\1", visible(text))


def _in_latex(text: str) -> str:
    found = "".join(IN_LATEX.get(character, character) for character in visible(text))
    return re.sub("-(?=-)", "-{}", found)  # else a dash


def steps_by_budget(results: Sequence[Replay], name: str, title: str) -> Table:
    """Return tokens/step, a column for each budget; the intervals' unit is in the title."""
    budgets = sorted({result.budget for result in results})
    cells = {(r.drafter, r.budget): _tokens_per_step_cell(r) for r in results}
    names = dict.fromkeys(result.drafter for result in results)
    return Table(
        name,
        with_intervals(title, (result.interval for result in results)),
        ("draft nodes", *map(str, budgets)),
        [(each, [cells[each, budget] for budget in budgets]) for each in names],
        list(dict.fromkeys(chain.from_iterable(map(_remarks, results)))),
    )


def _tokens_per_step_cell(result: Replay) -> Cell:
    if not result.total.passes:
        return Cell(NOT_COUNTED)
    star = "*" * (result.incomplete is not None)
    return Cell(f"{result.total.tokens_per_step:.2f}{star}", str(result.interval))


def _remarks(result: Replay) -> list[str]:
    if result.missing is not None:
        return [f"{result.drafter}: {NOT_COUNTED}, {result.missing}"]
    if result.incomplete is not None:
        return [f"* {result.drafter}, {result.budget} nodes: too low, {result.incomplete}"]
    return []


def with_intervals(title: str, intervals: Iterable[Interval]) -> str:
    """Add what the intervals are over, or why there are none, to a title."""
    found = list(intervals)
    over = dict.fromkeys(each.over for each in found if each.low is not None)
    if over:
        units = ", ".join(each.replace("95 %", "").strip() for each in over)
        return f"{title}, with 95 % intervals {units}"
    reasons = dict.fromkeys(each.over for each in found if each.over)
    return f"{title} ({next(iter(reasons))})" if len(reasons) == 1 else title
