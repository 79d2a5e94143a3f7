"""The result of a replay: a Replay per drafter and budget, their ratios, table and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ngramkit.basics.results import Entries, Summarized
from ngramkit.basics.terminal_text import join_some
from ngramkit.evaluate.leakage import Leakage
from ngramkit.evaluate.plots import Picture, draw_together, replay_pictures
from ngramkit.evaluate.provenance import Provenance
from ngramkit.evaluate.replay_figures import Replay
from ngramkit.evaluate.result_folder import Contents
from ngramkit.evaluate.result_tables import Table, steps_by_budget
from ngramkit.evaluate.statistics import Ratio, Units, ratios

ByBytes = dict[str, dict[str, list[tuple[int, float]]]]


class Curve(NamedTuple):
    drafter: str
    name: str
    labels: tuple[str, ...]  # of its replays


class Replays(Entries[Replay], Summarized):
    """A Replay per drafter and budget. `baseline`: the drafter that ratios divide by."""

    def __init__(
        self,
        results: Sequence[Replay],
        leakage: Leakage,
        template: str | None,
        curves: Sequence[Curve],
        *,
        kept_state: bool,
        units: Units,
        baseline: str | None,
    ) -> None:
        super().__init__(results)
        self.leakage, self.template, self.curves = leakage, template, curves
        self.kept_state, self.units, self.baseline = kept_state, units, baseline
        self.provenance: Provenance | None = None
        self.folder: Path | None = None

    @property
    def results(self) -> list[Replay]:
        return self._entries

    def summary(self) -> list[dict[str, Any]]:
        """Return a row per drafter and budget."""
        return [result.summary() for result in self.results]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row per drafter, budget and conversation."""
        for result in self.results:
            yield from result.rows()

    def ratios(self, budget: int | None = None) -> list[Ratio]:
        """Return tokens/step of drafters over each other, at `budget` (default: the largest).

        With a baseline each other drafter is divided by it, else each drafter by every later one.
        95 % intervals are over conversations or tasks; none if drafters kept their state.
        """
        nodes = budget or max(r.budget for r in self.results)
        return ratios(
            [
                (r.drafter, [t.tokens for t in r.by_record], [t.passes for t in r.by_record])
                for r in self.results
                if r.budget == nodes and r.comparable
            ],
            self.units,
            baseline=self.baseline,
        )

    def by_bytes(self, budget: int | None = None) -> ByBytes:
        """Return {drafter: {curve: [(bytes, tokens/step), ...]}}, smallest first."""
        return {
            drafter: {
                name: [(each.bytes, each.total.tokens_per_step) for each in line]
                for name, line in lines.items()
            }
            for drafter, lines in self._curves(budget).items()
        }

    def _curves(self, budget: int | None = None) -> dict[str, dict[str, list[Replay]]]:
        nodes = budget or max(r.budget for r in self)
        found = {r.drafter: r for r in self if r.budget == nodes and r.comparable}
        lines: dict[str, dict[str, list[Replay]]] = {}
        for curve in self.curves:
            line = [found[label] for label in curve.labels if label in found]
            line.sort(key=lambda each: (each.bytes, each.total.tokens_per_step))
            lines.setdefault(curve.drafter, {})[curve.name] = line
        return lines

    def plot(self, path: str | Path) -> None:
        """Draw tokens/step by budget and requests, or by bytes for curves."""
        draw_together(Path(path), self._pictures())

    def _pictures(self) -> list[Picture]:
        return replay_pictures(self.results, learning=self.kept_state, by_bytes=self._curves())

    def contents(self) -> Contents:
        """Return the content of their folder."""
        tables, pictures = [self._table()], self._pictures()
        return Contents("replay", self._figures(), self.summary(), tables, pictures)

    def _table(self) -> Table:
        title = "Tokens/step by draft nodes per pass"
        table = steps_by_budget(self.results, "tokens-per-step", title)
        note = None if self.leakage.dropped else self.leakage.note
        return replace(table, notes=[*table.notes, note]) if note else table

    def _repr_html_(self) -> str:
        return self._table().html()

    def to_dict(self) -> dict[str, Any]:
        origin = {} if self.provenance is None else self.provenance.to_dict()
        return {**self._figures(), **origin}

    def _figures(self) -> dict[str, Any]:
        budgets = sorted({r.budget for r in self.results})
        return {
            "results": [result.to_dict() for result in self.results],
            "ratios": [
                {"budget": nodes, **each.to_dict()}
                for nodes in budgets
                for each in self.ratios(nodes)
            ],
            **({"by_bytes": self.by_bytes()} if self.curves else {}),
            "baseline": self.baseline,
            "template": self.template,
            "records": self.leakage.records,
            "leaked": self.leakage.leaked,
            "leaked_dropped": self.leakage.dropped,
        }

    def __repr__(self) -> str:
        best = max(r.budget for r in self.results)
        shown = ", ".join(
            f"{r.drafter} {r.total.tokens_per_step:.2f}" if r.comparable else f"{r.drafter} n/a"
            for r in self.results
            if r.budget == best
        )
        found = self.provenance.artifacts if self.provenance is not None else ()
        over = join_some([each["path"] for each in found])
        return (
            f"<Replays of {self.leakage.records} records; tokens/step at {best} nodes: {shown}"
            f"{over and f'; artifacts: {over}'}>"
        )
