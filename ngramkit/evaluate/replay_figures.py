"""Results of replays: tokens/step per drafter and budget, by record and category."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ngramkit.basics.html_tables import html_table
from ngramkit.evaluate.recorded_evidence import Misses
from ngramkit.evaluate.records import Record, first_prompt_hash
from ngramkit.evaluate.statistics import Interval, Reliability, Units, rate_interval

MAX_UNRECORDED_SHARE = 0.01  # of contexts that are not on record; with more it is incomplete


@dataclass
class Tally:
    tokens: int = 0  # without the prefill's
    passes: int = 0
    empty: int = 0  # passes without a draft
    lengths: Counter[int] = field(default_factory=Counter)  # tokens of a pass -> passes
    draft_ns: array[int] = field(default_factory=lambda: array("q"))

    @property
    def tokens_per_step(self) -> float:
        return self.tokens / self.passes if self.passes else math.nan

    def count(self, written: int, *, empty: bool) -> None:
        self.tokens += written
        self.passes += 1
        self.empty += empty
        self.lengths[written] += 1

    def figures(self) -> dict[str, Any]:
        return {
            "tokens": self.tokens,
            "passes": self.passes,
            "tokens_per_step": self.tokens_per_step if self.passes else None,
        }

    def draft_us(self, percentile: float) -> float:
        return float(np.percentile(self.draft_ns, percentile)) / 1e3 if self.draft_ns else 0.0

    def add(self, other: Tally) -> None:
        self.tokens += other.tokens
        self.passes += other.passes
        self.empty += other.empty
        self.lengths += other.lengths
        self.draft_ns += other.draft_ns


@dataclass(repr=False)
class Replay:
    """The result of one drafter at one budget; nan if `missing` names a source."""

    drafter: str
    budget: int
    total: Tally = field(default_factory=Tally)
    by_category: dict[str, Tally] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)  # of the records, in replay order
    by_record: list[Tally] = field(default_factory=list)  # likewise
    categories: list[str] = field(default_factory=list)  # likewise
    runs: list[str] = field(default_factory=list)  # likewise
    asked_before: list[bool] = field(default_factory=list)  # likewise: a repeated first prompt
    reliability: Reliability = field(default_factory=Reliability)
    misses: Misses | None = None  # of the evidence, for a drafter that needs it
    bytes: int = 0  # of its artifacts
    sources: list[str] = field(default_factory=list)  # artifacts with their builds, the history
    missing: str | None = None
    units: Units | None = None  # of the records; None: no intervals
    _prompts: set[int] = field(default_factory=set)  # hashes of first prompts so far

    @property
    def incomplete(self) -> str | None:
        """Why the figures are too low, or None."""
        misses = self.misses
        if misses is None or misses.missing <= MAX_UNRECORDED_SHARE * misses.rows:
            return None
        return (
            f"{misses.missing:,} of {misses.rows:,} contexts "
            f"({misses.missing / misses.rows:.0%}) were not on record"
        )

    @property
    def comparable(self) -> bool:
        return self.missing is None and self.incomplete is None and self.total.passes > 0

    @cached_property
    def interval(self) -> Interval:
        """The interval of tokens/step, once all records are added."""
        reason = self.missing or self.incomplete
        if reason is not None:
            return Interval(over=f"no interval: {reason}")
        return self._interval(range(len(self.by_record)))

    def interval_of(self, category: str) -> Interval:
        """Return the interval of a category's tokens/step."""
        if self.interval.low is None:
            return self.interval
        return self._interval([i for i, each in enumerate(self.categories) if each == category])

    def _interval(self, records: Sequence[int]) -> Interval:
        if self.units is None:
            return Interval()
        of = None if self.units.of is None else [self.units.of[i] for i in records]
        tallies = [self.by_record[i] for i in records]
        gains, costs = [t.tokens for t in tallies], [t.passes for t in tallies]
        return rate_interval(gains, costs, replace(self.units, of=of))

    def add(self, record: Record, tally: Tally) -> None:
        self.total.add(tally)
        self.by_category.setdefault(record.category, Tally()).add(tally)
        self.names.append(record.name)
        self.categories.append(record.category)
        self.runs.append(record.run)
        prompt = first_prompt_hash(record)
        self.asked_before.append(prompt in self._prompts)
        if prompt is not None:
            self._prompts.add(prompt)
        self.by_record.append(tally)

    def rows(self) -> Iterator[dict[str, Any]]:
        for name, category, tally in zip(self.names, self.categories, self.by_record, strict=True):
            yield {
                "drafter": self.drafter,
                "budget": self.budget,
                "question": name,
                "category": category,
                **tally.figures(),
            }

    def summary(self) -> dict[str, Any]:
        """Return the figures of all records."""
        total, replayed = self.total, self.missing is None
        return {
            "drafter": self.drafter,
            "budget": self.budget,
            **total.figures(),
            "tokens_per_step_low": self.interval.low,
            "tokens_per_step_high": self.interval.high,
            "tokens_per_step_interval": self.interval.over,
            "draft_us_p50": total.draft_us(50) if replayed else None,
            "draft_us_p99": total.draft_us(99) if replayed else None,
            "empty_share": total.empty / total.passes if total.passes else None,
            "bytes": self.bytes,
            "missing": self.missing,
            "incomplete": self.incomplete,
        }

    def _repr_html_(self) -> str:
        return html_table(f"{self.drafter}, {self.budget} nodes", (), self.summary().items())

    def to_dict(self) -> dict[str, Any]:
        total, whole = self.total, ("drafter", "budget")
        return {
            **self.summary(),
            "sources": self.sources,
            "accepted_lengths": {str(n): total.lengths[n] for n in sorted(total.lengths)},
            "reliability": self.reliability.rows(),
            # 0.2.0 had "oracle".
            **({} if self.misses is None else {"evidence": asdict(self.misses)}),
            **({} if self.misses is None else {"oracle": asdict(self.misses)}),
            "by_category": {name: tally.figures() for name, tally in self.by_category.items()},
            "questions": [
                {key: value for key, value in row.items() if key not in whole}
                for row in self.rows()
            ],
        }

    def __repr__(self) -> str:
        if self.missing is not None:
            return f"<Replay of {self.drafter}, {self.budget} nodes: n/a ({self.missing})>"
        return (
            f"<Replay of {self.drafter}, {self.budget} nodes: "
            f"{self.total.tokens_per_step:.3f} tokens/step over {len(self.names)} questions>"
        )


def categories_of(results: Iterable[Replay]) -> list[str]:
    return list(dict.fromkeys(c for result in results for c in result.by_category))
