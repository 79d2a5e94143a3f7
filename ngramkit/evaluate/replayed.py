"""What `ngramkit.replay` found: drafters at several budgets on the same questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from ngramkit.evaluate.curves import ByBytes, Curve, by_bytes
from ngramkit.evaluate.leakage import Leakage
from ngramkit.evaluate.paired import Ratio, ratio
from ngramkit.evaluate.replay import Replay
from ngramkit.results import Entries, Tabular


class Replays(Entries[Replay], Tabular):
    """One Replay per drafter and budget, over the same questions."""

    def __init__(
        self,
        results: Sequence[Replay],
        leakage: Leakage,
        template: str | None,
        curves: Sequence[Curve] = (),
    ) -> None:
        super().__init__(results)
        self.leakage, self.template, self.curves = leakage, template, curves

    @property
    def results(self) -> list[Replay]:
        return self._entries

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row per drafter, budget and question."""
        for result in self.results:
            yield from result.rows()

    def ratios(self, budget: int | None = None) -> list[Ratio]:
        """tokens/step of every drafter over that of every later one, at the widest budget or at
        `budget`, with 95 % intervals over questions."""
        nodes = max(r.budget for r in self.results) if budget is None else budget
        columns = {r.drafter: _columns(r) for r in self.results if r.budget == nodes}
        return [ratio(columns[a], columns[b]) for a, b in combinations(columns, 2)]

    def by_bytes(self, budget: int | None = None) -> ByBytes:
        """{drafter: {curve: [(bytes, tokens/step), ...]}}, smallest first, of `curves`; at the
        widest budget or at `budget`."""
        nodes = max(r.budget for r in self.results) if budget is None else budget
        return by_bytes(self.results, self.curves, nodes)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `ngramkit replay --json` prints them."""
        budgets = sorted({r.budget for r in self.results})
        return {
            "results": [result.to_dict() for result in self.results],
            "ratios": [
                {"budget": nodes, **each.to_dict()}
                for nodes in budgets
                for each in self.ratios(nodes)
            ],
            **({"by_bytes": self.by_bytes()} if self.curves else {}),
            "template": self.template,
            "records": self.leakage.records,
            "leaked": self.leakage.leaked,
            "leaked_dropped": self.leakage.dropped,
        }

    def __repr__(self) -> str:
        best = max(r.budget for r in self.results)
        shown = ", ".join(
            f"{r.drafter} {r.total.tokens_per_step:.2f}" for r in self.results if r.budget == best
        )
        return f"<Replays of {self.leakage.records} records; tokens/step at {best} nodes: {shown}>"


def _columns(result: Replay) -> tuple[str, list[int], list[int]]:
    tallies = result.by_record
    return result.drafter, [t.tokens for t in tallies], [t.passes for t in tallies]
