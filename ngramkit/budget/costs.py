"""The cost of a verification pass, in passes without a draft.

A curve is float64[rows + 1], without an assumed shape: kernels change at some row counts, GPUs work
in tiles, engines have graph sizes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite, log
from statistics import median
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ngramkit.basics.machine import Lock
from ngramkit.budget.pause import TRIAL_SHARE
from ngramkit.budget.profile import MAX_SPREAD, context_class

Costs = npt.NDArray[np.float64]
Samples = deque[list[float]]  # seconds at pace 1, each in a separate list

MAX_NODES = 96  # draft nodes of a pass
DECAY_PER_PASS = 63 / 64  # decay per pass: about the latest 64 passes count
RECENT_PASSES = 15  # latest passes of a size, whose median is its time
ENOUGH_PASSES = 3  # a median of so many ignores one disturbed pass


class PassCosts:
    """The measured costs of a model's passes; `prior`, float64[rows + 1], applies until then.

    A length that is new starts from the times of the nearest one; without `trusts_neighbours` the
    extra times of drafts are scaled with the length. These borrowed times are dropped once the
    length was measured, first without a draft and then with one. If all recent passes had drafts
    and were slow, one runs without.
    """

    def __init__(self, prior: Costs, *, trusts_neighbours: bool = True) -> None:
        self._prior, self._trusts_neighbours = prior, trusts_neighbours
        self._by_context: dict[int, _ContextTimes] = {}
        self.lock = Lock()  # for requests in several threads
        self.drafting: dict[str, deque[float]] = {}  # seconds of the latest drafts, by drafter
        self.learnt = self.kept = 0  # passes learnt, and passes written to disk

    @property
    def most(self) -> int:
        return len(self._prior) - 1

    def at(self, length: int) -> Costs:
        return self._times_of_context_class(length).costs(self._prior)

    def factors(self, places: Costs, length: int) -> Costs:
        """Return the costs of sizes n, `places` being log2(n + 1), without the prior."""
        if not self.unit(length):
            return np.ones(len(places))
        sizes, logs = self._times_of_context_class(length).logs(self.most + 1)
        factors: Costs = np.exp(np.interp(places, np.log2(np.array(sizes) + 1.0), logs))
        return factors

    def untried(self, length: int) -> Iterator[tuple[int, float]]:
        """Yield sizes worth a trial, with the passes since their last, -1 if none.

        These are divided by the passes that still count: a size is tried less often the better it
        is known. Only passes without a draft, to which all others are compared, stay as frequent.
        """
        return self._times_of_context_class(length).untried(self.most)

    def below(self, rows: int, length: int) -> int:
        """Return the next smaller size that was timed: kernels may have a plateau from there on."""
        return max(
            (size for size in self._times_of_context_class(length).passes if size < rows), default=0
        )

    def trial(
        self,
        length: int,
        sizes: npt.NDArray[np.int64],
        values: Costs,
        costs: Costs,
        rate: float,
        credit: float,
        reach: int,
    ) -> int | None:
        """Return how many draft tokens to verify to learn their cost; None if no trial is worth it.

        Draft tokens have `sizes`, int64[n + 1], and are worth `values`, float64[n + 1], both for 0
        to n. Sizes cost `costs`, and a pass without a draft is worth `rate` tokens. A size up to
        `reach` is tried if it would be the best at its least possible cost, and its expected loss
        is covered: by `credit`, and by the time since it ran.
        """
        best = float(np.max(values))
        if self._is_plain_pass_due(length, best, has_plain=not sizes[0]):
            return 0
        most, found = 0.0, None
        for rows, age in self.untried(length):
            if rows > min(reach, int(sizes[-1])):
                break
            nodes = int(np.searchsorted(sizes, rows))
            if not rows or int(sizes[nodes]) != rows:
                continue
            lost = best - float(values[nodes])
            if age >= 0 and max(lost, 1) >= TRIAL_SHARE * age:
                continue
            gain = rate * max(float(costs[rows] - costs[self.below(rows, length)]), 0.0) - lost
            if age < 0:  # a size that never ran may cost what the next larger one does
                larger = (
                    size for size in self._times_of_context_class(length).passes if size > rows
                )
                dearest = min(min(larger, default=rows), len(costs) - 1)
                lost += rate * max(float(costs[dearest] - costs[rows]), 0.0)
            if gain > most and lost < credit:
                most, found = gain, nodes
        return found

    def _is_plain_pass_due(self, length: int, best: float, *, has_plain: bool) -> bool:
        """Return whether a pass without a draft has to show the machine's pace.

        Either the machine is slower now, or drafts are dearer, or it ran too long ago for the
        tokens that the `best` draft is worth more.
        """
        times = self._times_of_context_class(length)
        if not self._trusts_neighbours and times.is_slower_since_plain:
            return True
        return has_plain and max(best, 1) < TRIAL_SHARE * times.passes_since(0)

    def unit(self, length: int) -> float:
        """Return the seconds of a pass without a draft; 0.0 if unknown."""
        after = self._times_of_context_class(length)
        return after.pace * after.typical(0)

    def reach(self, length: int) -> int:
        """Return the most rows to verify: twice those of the largest timed pass.

        It is 0 before a pass without a draft, which shows the machine's pace.
        """
        after = self._times_of_context_class(length)
        largest = max(after.passes, default=0)
        has_pace = 0 in after.passes and 0 not in after.recalled
        known = has_pace and (self._trusts_neighbours or after.has_run(0))
        return (2 * largest or 1) if known else 0

    def learn(self, rows: int, length: int, seconds: float) -> None:
        self.learnt += 1
        self._times_of_context_class(length).learn(min(rows, self.most), seconds)

    def summary(self) -> dict[str, dict[str, float]]:
        """Return the seconds of a pass by context class and rows, for `recall`.

        Only sizes whose passes agree are kept: the rest were measured in a busy moment.
        """
        places = {
            str(place): {
                str(size): after.typical(size) for size in after.passes if after.is_steady(size)
            }
            for place, after in self._by_context.items()
        }
        return {place: sizes for place, sizes in places.items() if "0" in sizes}

    def recall(self, summary: object) -> None:
        for place, sizes in _integer_keys(summary):
            times = {
                size_class(size): float(seconds)
                for size, seconds in _integer_keys(sizes)
                if size <= self.most and _is_time(seconds)
            }
            if place < 64 and 0 in times:
                self._by_context[place] = _ContextTimes(times, recalled=times)

    def _times_of_context_class(self, length: int) -> _ContextTimes:
        place, known = context_class(length), self._by_context
        if place not in known:
            nearest = min(known, key=lambda other: abs(other - place), default=place)
            trusts = self._trusts_neighbours
            growth = 1.0 if trusts else 4.0 ** (place - nearest)
            known[place] = known.get(nearest, _ContextTimes()).moved(growth, forget=not trusts)
        return known[place]


class _Timed(NamedTuple):
    size: int
    seconds: float
    ratio: float  # to the usual seconds of its size at pace 1; the plain pace if they are unknown
    sample: list[float]


class _ContextTimes:
    """The times of passes after contexts of about one length.

    Machines change their pace, so a sample is kept as seconds over the pace: the median ratio of
    the five passes around it to the usual times of their sizes. If some had no draft, only those
    count: drafts may have become dearer instead. A size that hardly ran counts as the last pass
    without a draft, so that a busy moment ends although all passes after it try new sizes.

    Times of another process have its pace, and it may have been busy. So the first pass without a
    draft shows the pace, and times that disagree with the first own pass of their size are dropped.
    """

    def __init__(
        self,
        times: Mapping[int, float] = MappingProxyType({}),
        pace: float = 1.0,
        *,
        forget: bool = False,
        recalled: Iterable[int] = (),
    ) -> None:
        self.pace = self._plain_pace = pace  # now, and at the last pass without a draft
        self.passes: dict[int, Samples] = {  # by size
            size: deque(([seconds] for _ in range(ENOUGH_PASSES)), RECENT_PASSES)
            for size, seconds in times.items()
        }
        self._borrowed = set(times) if forget else set[int]()  # sizes to forget
        self.recalled = set(recalled)  # sizes that only another process has timed
        self._window: deque[_Timed] = deque(maxlen=2 * ENOUGH_PASSES - 1)
        self._last_run = dict.fromkeys(times, 0)  # number of the pass, by size
        self._now = 0
        self._medians: dict[int, float] = {}  # of sizes that no pass has changed since
        self._cached: Costs | None = None  # until the next pass

    def moved(self, growth: float, *, forget: bool) -> _ContextTimes:
        """Return times that another length begins with; drafts add `growth` times as much."""
        plain = self.typical(0)
        times = {
            size: plain + growth * max(self.typical(size) - plain, 0.0) for size in self.passes
        }
        return _ContextTimes(times, self.pace, forget=forget, recalled=self.recalled)

    def has_run(self, size: int) -> bool:
        return self._last_run.get(size, 0) > 0

    @property
    def is_slower_since_plain(self) -> bool:
        """Whether the pace fell since the last pass without a draft."""
        return self.pace > (1 + MAX_SPREAD) * self._plain_pace

    def typical(self, size: int) -> float:
        if size not in self._medians:
            self._medians[size] = median(sample[0] for sample in self.passes.get(size, ([0.0],)))
        return self._medians[size]

    def is_steady(self, size: int) -> bool:
        """Return whether a size ran often enough, and half of its passes took about as long."""
        seconds = sorted(sample[0] for sample in self.passes[size])
        if len(seconds) < ENOUGH_PASSES:
            return False
        quarter = len(seconds) // 4
        return seconds[-1 - quarter] <= (1 + MAX_SPREAD) * seconds[quarter]

    def learn(self, rows: int, seconds: float) -> None:
        size = size_class(rows)
        self._forget_borrowed(with_draft=size > 0)
        self._now += 1
        self._last_run[size] = self._now
        own = self.passes.setdefault(size, deque(maxlen=RECENT_PASSES))
        if size in self.recalled and (size == 0 or 0 not in self.recalled):
            self._compare_with_recalled(size, seconds)
        sample = [seconds / self.pace]
        ratio = seconds / self.typical(size) if len(own) >= ENOUGH_PASSES else self._plain_pace
        own.append(sample)
        self._medians.pop(size, None)
        self._window.append(_Timed(size, seconds, ratio, sample))
        if len(self._window) >= ENOUGH_PASSES:
            units = [timed.ratio for timed in self._window if timed.size == 0]
            self.pace = median(units or [timed.ratio for timed in self._window])
            if units:
                self._plain_pace = self.pace
            amid = self._window[-ENOUGH_PASSES]
            amid.sample[0] = amid.seconds / self.pace
            self._medians.pop(amid.size, None)
        self._cached = None

    def _compare_with_recalled(self, size: int, seconds: float) -> None:
        self.recalled.remove(size)
        pace = seconds / self.typical(size)
        if size == 0:
            self.pace = self._plain_pace = pace
        elif max(pace, self.pace) > (1 + MAX_SPREAD) * min(pace, self.pace):
            self.passes[size].clear()

    def _forget_borrowed(self, *, with_draft: bool) -> None:
        for size in [each for each in self._borrowed if (each > 0) == with_draft]:
            self._borrowed.remove(size)
            del self.passes[size]
            del self._last_run[size]
            self._medians.pop(size, None)

    def costs(self, prior: Costs) -> Costs:
        """Return measured costs; other sizes: the prior, scaled as the measured sizes around."""
        if not self.typical(0):
            return prior
        if self._cached is None:
            sizes, logs = self.logs(len(prior))
            place = np.log2(np.arange(len(prior)) + 1.0)
            factors = [each - log(prior[n]) for n, each in zip(sizes, logs, strict=True)]
            self._cached = prior * np.exp(np.interp(place, place[sizes], factors))
        return self._cached

    def logs(self, most: int) -> tuple[list[int], list[float]]:
        """Return measured sizes below `most` and the logarithms of their costs."""
        sizes = [0, *sorted(n for n in self.passes if 0 < n < most)]
        unit = self.typical(0)
        return sizes, [log(self.typical(n) / unit) for n in sizes]

    def untried(self, most: int) -> Iterator[tuple[int, float]]:
        for rows in (0, *(1 << i for i in range(most.bit_length())), most):
            size = size_class(rows)
            passes = len(self.passes[size]) if size in self.passes and rows else 1
            yield rows, self.passes_since(size) / passes

    def passes_since(self, size: int) -> int:
        """Return the passes since the last of this size; -1 if none ran."""
        return self._now - self._last_run[size] if size in self._last_run else -1


def usual_seconds(drafting: deque[float]) -> float:
    """Return the usual time of a draft; the first ones may wait for disk or compiler."""
    usual = sorted([0.0, 0.0, *drafting])
    return usual[len(usual) // 2]


def size_class(rows: int) -> int:
    """Return the row count with its four leading bits."""
    shift = max(rows.bit_length() - 4, 0)
    return rows >> shift << shift


def _integer_keys(mapping: object) -> list[tuple[int, Any]]:
    items = list(mapping.items())[:1024] if isinstance(mapping, dict) else []
    return [(int(key), value) for key, value in items if key.isdecimal() and len(key) < 6]


def _is_time(seconds: object) -> bool:
    return isinstance(seconds, int | float) and isfinite(seconds) and 1e-7 < seconds < 1e5
