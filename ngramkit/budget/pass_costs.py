"""What passes cost here, learnt from the passes themselves.

One PassCosts belongs to a model, an engine and a way to verify. It holds, by context length, what a
pass takes by its rows, and tells costs in passes without a draft (the unit). No shape is supposed
of them: kernels change at some row counts, GPUs have tiles, engines have graph sizes. A size is
judged by its own latest passes, one that was not run by its measured neighbours, a few sizes
(ANCHORS) are tried early (see `hopeful`).

Machines stall and change their pace. What passes of all sizes took lately, against what such passes
took before, is the pace: samples are divided by it, so that a machine that is twice as slow for a
while changes no cost, and of a size's samples the median counts, so that one stall decides nothing.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable
from functools import cache
from math import isfinite
from statistics import median_low
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from ngramkit.budget.priors import MOST, Costs, Prior
from ngramkit.budget.profile import Profile

LATEST = 15  # passes of a size that count
PACED = 5  # passes that tell the pace
ODD, CHANGED = 1.3, 6  # so many passes in a row so much dearer or cheaper: a size has changed
TRUSTED = 3  # passes of a size, from which on it tells the pace
OWN = 0.7  # passes that its neighbours count, where a size's own are weighed with them
EXACT = 16  # sizes up to here are told apart, larger ones by a fifth
SAME = 16  # tokens of context that make no difference
ANCHORS = (1, 2, 4, 8, 16, 32, 64, 96)  # rows beside the root that are worth a trial
TRIALS = 2  # passes of a size, after which it is no longer a guess
STALE = 400  # passes after which it is one again
STEP = 4  # times the largest size that was run: no trial is larger
LEAST_TIMES = -0.1  # times what the prior adds: a pass with a draft may take less than one without
HOPE = 0.8  # of what a size is likely to add to a pass, that it may add
LEAST_SECONDS, MOST_SECONDS = 1e-7, 1e5  # of a pass, where they are read from a file

Samples = deque[list[float]]  # seconds at pace 1, each in a list of its own

_COSTS: WeakKeyDictionary[Any, dict[tuple[str, str, bool], PassCosts]] = WeakKeyDictionary()


def costs_of(model: Any, engine: str, verify: str, profile: Profile | None = None) -> PassCosts:
    """Return what is known of the model's passes; a `profile` is begun with."""
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
        self.learnt = self.kept = 0  # passes, and those of them that were kept on disk

    @property
    def most(self) -> int:
        """Rows of the largest pass that a cost is known of."""
        return len(self._prior.curves[0]) - 1

    def at(self, length: int) -> Costs:
        """Return the costs of passes behind `length` tokens."""
        return self._behind(length).costs(self._prior, length)

    def hopeful(self, length: int) -> Costs:
        """Return what passes may cost at best: less than `at` says where a size is a guess."""
        return self._behind(length).hopeful(self._prior, length)

    def unit(self, length: int) -> float:
        """Return the seconds of a pass without a draft; 0.0 where none was seen."""
        return self._behind(length).unit

    def reach(self, length: int) -> int:
        """Return the most rows to try; 0 where a pass without a draft should be seen first."""
        behind = self._behind(length)
        return behind.reach if behind.unit else 0

    def learn(self, rows: int, length: int, seconds: float) -> None:
        """Learn from a pass over `rows` rows beside the root that took so long."""
        self.learnt += 1
        rows = min(rows, self.most)
        self._behind(length).learn(rows, seconds, self._prior.at(length))

    def summary(self) -> dict[str, dict[str, float]]:
        """Return the seconds of a pass by context and rows, for `recall`."""
        return {
            str(place): {str(size): behind.typical(size) for size in behind.passes}
            for place, behind in self._by_context.items()
        }

    def recall(self, summary: object) -> None:
        """Begin with what another process has learnt; of what makes no sense, nothing is taken."""
        for place, sizes in _pairs(summary):
            behind = _Behind(self._prior)
            for size, seconds in _pairs(sizes):
                if size <= self.most and _is_time(seconds):
                    behind.passes[size_of(size)] = _repeated(float(seconds), TRUSTED)
                    behind.reach = max(behind.reach, STEP * size)
            if place < 64 and 0 in behind.passes:
                self._by_context[place] = behind

    def _behind(self, length: int) -> _Behind:
        place = length.bit_length() // 2  # four times the context is another matter
        if place not in self._by_context:
            nearest = min(self._by_context, key=lambda other: abs(other - place), default=None)
            known = None if nearest is None else self._by_context[nearest]
            self._by_context[place] = _Behind(self._prior) if known is None else known.moved()
        return self._by_context[place]


def _pairs(found: object) -> list[tuple[int, Any]]:
    """The entries of a JSON object whose keys are small whole numbers."""
    items = list(found.items())[:1024] if isinstance(found, dict) else []
    return [(int(key), value) for key, value in items if key.isdecimal() and len(key) < 6]


def _repeated(seconds: float, count: int) -> Samples:
    return deque(([seconds] for _ in range(count)), LATEST)


def _is_time(seconds: object) -> bool:
    return (
        isinstance(seconds, int | float)
        and isfinite(seconds)
        and LEAST_SECONDS < seconds < MOST_SECONDS
    )


class _Timed(NamedTuple):
    """A pass of late."""

    size: int
    sample: list[float]
    seconds: float
    ratio: float  # its seconds in what is usual at pace 1


class _Behind:
    """Passes behind contexts of about one length."""

    def __init__(self, prior: Prior) -> None:
        self.reach = prior.reach
        self.passes: dict[int, Samples] = {}  # by size
        self._typical: dict[int, float] = {}  # by size, as long as its samples are the same
        self._pace = 1.0
        self._window: deque[_Timed] = deque(maxlen=PACED)
        self._seen: dict[int, int] = {}  # by size: when it was run last
        self._now = 0
        self._known: tuple[Costs, Costs] | None = None
        self._at = -1

    def moved(self) -> _Behind:
        """Return what is known here, for where nothing is known yet."""
        found = copy.deepcopy(self)
        for size, samples in self.passes.items():
            found.passes[size] = _repeated(self.typical(size), min(len(samples), TRUSTED))
        found._window.clear()
        return found

    @property
    def unit(self) -> float:
        return self._pace * self.typical(0)

    def typical(self, size: int) -> float:
        """Return the seconds of a pass of that size at pace 1: the median, the lower of two; 0.0
        where none was run."""
        if size not in self._typical:
            samples = self.passes.get(size)
            self._typical[size] = median_low(samples)[0] if samples else 0.0
        return self._typical[size]

    def learn(self, rows: int, seconds: float, curve: Costs) -> None:
        """`curve` is the prior's."""
        size = size_of(rows)
        self._now += 1
        self._seen[size] = self._now
        self.reach = max(self.reach, STEP * rows)
        usual = self._usual(size, rows, curve)
        own = self.passes.setdefault(size, deque(maxlen=LATEST))
        sample = [seconds / self._pace]
        own.append(sample)
        self._typical.pop(size, None)
        self._doubt(size)
        if usual:
            self._window.append(_Timed(size, sample, seconds, seconds / usual))
            self._follow()
        self._known = None

    def _doubt(self, size: int) -> None:
        """Where a size has come to take another time, what is known of all is a guess again."""
        own = self.passes[size]
        if len(own) < LATEST:
            return
        lately, usual = [sample[0] for sample in list(own)[-CHANGED:]], self.typical(size)
        if min(lately) > ODD * usual or max(lately) < usual / ODD:
            self._typical.clear()
            for other, samples in self.passes.items():
                if other:
                    self.passes[other] = deque([samples[-1]], LATEST)

    def _usual(self, size: int, rows: int, curve: Costs) -> float:
        """The seconds that a pass took at pace 1, by sizes that were run often; 0.0 if none was."""
        if len(self.passes.get(size, ())) >= TRUSTED:
            return self.typical(size)
        trusted = [n for n, each in self.passes.items() if len(each) >= TRUSTED]
        if 0 not in trusted or len(trusted) == 1:
            return 0.0
        times = self._times(curve, trusted)[rows]
        return self.typical(0) * float(1 + times * (curve[rows] - 1))

    def _follow(self) -> None:
        """Take the pace of the passes of late, and count the one amid them by it.

        Those without a draft say it best: of others, drafts may have become dearer instead.
        """
        if len(self._window) < PACED:
            return
        units = [timed.ratio for timed in self._window if timed.size == 0]
        ratios = sorted(units or [timed.ratio for timed in self._window])
        self._pace = ratios[len(ratios) // 2]
        amid = self._window[PACED // 2]
        amid.sample[0] = amid.seconds / self._pace
        self._typical.pop(amid.size, None)

    def costs(self, prior: Prior, length: int) -> Costs:
        return self._curves(prior, length)[0]

    def hopeful(self, prior: Prior, length: int) -> Costs:
        return self._curves(prior, length)[1]

    def _curves(self, prior: Prior, length: int) -> tuple[Costs, Costs]:
        if self._known is None or length // SAME != self._at:
            curve = prior.at(length)
            likely = 1 + self._times(curve) * (curve - 1)
            self._known = likely, likely if prior.measured else self._hopes(likely)
            self._at = length // SAME
        return self._known

    def _times(self, curve: Costs, sizes: Iterable[int] = ()) -> Costs:
        """How many times what the prior says a draft adds to a pass, by rows."""
        unit = self.typical(0)
        known = sorted(n for n in sizes or self.passes if 0 < n < len(curve))
        if not known or not unit:
            return np.ones(len(curve))
        own = [(self.typical(n) / unit - 1) / (float(curve[n]) - 1) for n in known]
        times = np.maximum(own, LEAST_TIMES)
        if len(known) > 1:  # what was seen once is believed as far as its neighbours agree
            for i, size in enumerate(known):
                count = len(self.passes[size])
                if count < TRUSTED:
                    others = [own[j] for j in (i - 1, i + 1) if 0 <= j < len(known)]
                    beside = sum(others) / len(others)
                    times[i] = (count * times[i] + OWN * max(beside, LEAST_TIMES)) / (count + OWN)
        found: Costs = np.interp(np.arange(len(curve)), known, times)
        return found

    def _hopes(self, likely: Costs) -> Costs:
        """`likely`, but for the anchors that are still to be tried."""
        found, largest = likely.copy(), max(self.passes, default=0)
        for anchor in ANCHORS:
            if anchor >= len(likely) or anchor > self.reach or self._is_known(anchor):
                continue
            guess = 1 + HOPE * (likely[anchor] - 1)
            if anchor > largest:  # costs may stay what they are there
                guess = min(1 + HOPE * (likely[largest] - 1), likely[anchor])
            found[anchor] = guess
        return found

    def _is_known(self, rows: int) -> bool:
        size = size_of(rows)
        fresh = self._now - self._seen.get(size, 0) < STALE
        return fresh and len(self.passes.get(size, ())) >= TRIALS


@cache
def size_of(rows: int) -> int:
    """Return the size as which a pass is looked at: its own, or one that is a little smaller."""
    size = EXACT
    while size + size // 5 <= rows:
        size += size // 5
    return min(size, rows)
