"""What passes cost here, learnt from the passes themselves.

One PassCosts belongs to a model, an engine and a way to verify, and lives as long as the model. It
holds, by context length, the seconds of a pass without a draft (the unit), and how many units a
pass takes by its rows. Machines stall: of the latest passes of a size a low quantile counts, so
that one of five times the time decides nothing, while a machine that has become slower is followed
after a few passes. What was never run is supposed to stand to the prior as passes that were run do,
and larger passes never to cost less.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ngramkit.budget.priors import MOST, Costs, Prior
from ngramkit.budget.profile import Profile

LATEST = 15  # passes of a size that count
RECENT = 63  # passes of all sizes that say how far the prior holds
QUANTILE = 0.35
ODD = 1.3  # times as long as expected, or as short, and a pass is odd
ODDS = 5  # odd passes in a row: are drafts dearer, or is the machine slower?
LOOKS = 2  # passes without a draft that tell
KNOWN = 5  # passes of a size, from which on others can be odd
BELIEF, HEAVIEST = 0.25, 0.75  # what a pass of the prior counts, and a pass at most
FRESH = 4  # passes until what is learnt is looked at anew
EXACT = 16  # sizes up to here are told apart, larger ones by a fifth
SAME = 16  # tokens of context that make no difference

_COSTS: WeakKeyDictionary[Any, dict[tuple[str, str, bool], PassCosts]] = WeakKeyDictionary()


def costs_of(model: Any, engine: str, verify: str, profile: Profile | None = None) -> PassCosts:
    """What is known of the model's passes; `profile` is where nothing is begun with."""
    known = _COSTS.setdefault(model, {})
    key = engine, verify, profile is not None
    if key not in known:
        sizes = MOST + 1 if verify == "tree" else 4 * MOST + 1  # rows share nothing
        if profile is None:
            prior = Prior.by_device(model.device.type, engine, sizes)
        else:
            prior = Prior.by_profile(profile, sizes)
        known[key] = PassCosts(prior)
    return known[key]


class PassCosts:
    """`rows` are those of a pass beside the root. Costs are float64[rows + 1], in units."""

    def __init__(self, prior: Prior) -> None:
        self._prior = prior
        self._by_context: dict[int, _Behind] = {}
        self.drafting: dict[str, deque[float]] = {}  # seconds of the latest drafts, by drafter

    @property
    def most(self) -> int:
        """Rows of the largest pass that a cost is known of."""
        return len(self._prior.curves[0]) - 1

    def at(self, length: int) -> Costs:
        """Of passes behind `length` tokens."""
        return self._behind(length).costs(self._prior, length)

    def unit(self, length: int) -> float:
        """Seconds of a pass without a draft; 0.0 where none was seen."""
        return self._behind(length).unit

    def reach(self, length: int) -> int:
        """The most rows that should be tried: twice as many as were seen; 0 where a pass without a
        draft should be seen first."""
        behind = self._behind(length)
        return behind.reach if behind.unit and not behind.looks else 0

    def seen(self, length: int) -> int:
        """Passes with drafts that were timed behind about so many tokens."""
        return self._behind(length).seen

    def learn(self, rows: int, length: int, seconds: float) -> None:
        """A pass took so long."""
        self._behind(length).learn(min(rows, self.most), seconds, self._prior, length)

    def _behind(self, length: int) -> _Behind:
        place = length.bit_length() // 2  # four times the context is another matter
        if place not in self._by_context:
            nearest = min(self._by_context, key=lambda other: abs(other - place), default=None)
            known = None if nearest is None else self._by_context[nearest]
            self._by_context[place] = _Behind(self._prior) if known is None else known.moved()
        return self._by_context[place]


class _Behind:
    """Passes behind contexts of about one length."""

    def __init__(self, prior: Prior) -> None:
        self.reach, self.seen = prior.reach, 0
        self.looks = 0  # passes without a draft that are wanted
        self._belief = [(1.0, BELIEF)] * prior.belief
        self._units: deque[float] = deque(maxlen=LATEST)
        self._foreign = False  # those are of another context
        self._recent: deque[tuple[float, float]] = deque(maxlen=RECENT)
        self._by_size: dict[int, deque[float]] = {}
        self._odd: list[tuple[int, float]] = []
        self._before = 0.0  # the unit when passes became odd
        self._age = 0
        self._times_known = np.ones(1)
        self._known: Costs | None = None
        self._at = 0

    def moved(self) -> _Behind:
        """What is known here, where nothing is known yet."""
        found = copy.deepcopy(self)
        found._foreign, found.looks, found._odd = True, 0, []
        return found

    @property
    def unit(self) -> float:
        return 0.0 if self._foreign else quantile(self._units)

    def learn(self, rows: int, seconds: float, prior: Prior, length: int) -> None:
        if rows == 0:
            self._learn_unit(seconds, prior, length)
            return
        self.seen += 1
        self.reach = max(self.reach, 2 * rows)
        if not self.unit:
            return
        if seconds < self.unit:  # without a draft it would have taken less still
            self._units.append(seconds)
        expected = self.unit * float(self.costs(prior, length)[rows])
        odd = not 1 / ODD < seconds / expected < ODD
        if odd and len(self._of_size(rows)) >= KNOWN:
            self._odd.append((rows, seconds))
            if len(self._odd) == ODDS:
                self.looks, self._before = LOOKS, self.unit
        else:
            self._note([*self._odd, (rows, seconds)], prior.at(length))

    def _learn_unit(self, seconds: float, prior: Prior, length: int) -> None:
        if self._foreign or self.looks == LOOKS:
            self._units.clear()
            self._foreign = False
        self._units.append(seconds)
        self.looks -= self.looks > 0
        if not self.looks and len(self._odd) >= ODDS:
            same = 1 / ODD < self.unit / self._before < ODD
            self._note(self._odd if same else [], prior.at(length))

    def _of_size(self, rows: int) -> deque[float]:
        return self._by_size.setdefault(size_of(rows), deque(maxlen=LATEST))

    def _note(self, passes: list[tuple[int, float]], prior: Costs) -> None:
        """What they took, as times what the prior says that drafts add to a pass."""
        unit, self._odd = self.unit, []
        for rows, seconds in passes:
            more = float(prior[rows]) - 1
            times = max((seconds / unit - 1) / more, 0.0)
            self._of_size(rows).append(times)
            self._recent.append((times, min(more, HEAVIEST)))
        self._age += len(passes)
        if self._age >= FRESH or self.seen <= 2 * FRESH:
            self._known = None

    def costs(self, prior: Prior, length: int) -> Costs:
        """Kept while neither what is known nor the context changes much."""
        if self._known is None or length // SAME != self._at:
            curve = prior.at(length)
            if self._known is None:
                self._times_known, self._age = self._times(len(curve)), 0
            self._known = np.maximum.accumulate(1 + self._times_known * (curve - 1))
            self._at = length // SAME
        return self._known

    def _times(self, sizes: int) -> Costs:
        """How many times what the prior says a draft adds to a pass, by rows."""
        everywhere = _weighted([*self._recent, *self._belief])
        known = sorted(size for size, passes in self._by_size.items() if passes)
        if not known:
            return np.full(sizes, everywhere)
        times = [quantile([*self._by_size[size], everywhere, everywhere]) for size in known]
        return np.interp(np.arange(sizes), known, times)


def quantile(values: Sequence[float] | deque[float]) -> float:
    """One of them, a low one: what disturbs a pass makes it longer, never shorter. 0.0 of none."""
    return sorted(values)[int(QUANTILE * len(values))] if values else 0.0


def _weighted(pairs: Sequence[tuple[float, float]]) -> float:
    """The same of (value, weight) pairs, at least one."""
    left = QUANTILE * sum(weight for _, weight in pairs)
    for value, weight in sorted(pairs):
        left -= weight
        if left < 0:
            return value
    return max(pairs)[0]


@cache
def size_of(rows: int) -> int:
    """As which a pass is looked at: its own, or one that is a little smaller."""
    size = EXACT
    while size + size // 5 <= rows:
        size += size // 5
    return min(size, rows)
