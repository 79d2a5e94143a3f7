"""The cost of a verification pass, in passes without a draft.

A curve is float64[rows + 1], without an assumed shape: kernels change at some row counts, GPUs work
in tiles, engines have graph sizes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from math import isfinite, log
from statistics import median
from types import MappingProxyType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ngramkit.budget.model_cost import ModelCost, free_tokens
from ngramkit.budget.model_size import model_size
from ngramkit.budget.profile import Profile, context_class

Costs = npt.NDArray[np.float64]
Samples = deque[list[float]]  # seconds at pace 1, each in a separate list

MAX_NODES = 96  # draft nodes of a pass
FADE = 63 / 64  # decay per pass: about the latest 64 passes count
RECENT_PASSES = 15  # latest passes of a size, whose median is its time


_COSTS: WeakKeyDictionary[Any, dict[tuple[str, bool], PassCosts]] = WeakKeyDictionary()


def costs_of(model: Any, verify: str, profile: Profile | None = None) -> PassCosts:
    by_key = _COSTS.setdefault(model, {})
    key = verify, profile is not None
    if key not in by_key:
        rows = MAX_NODES if verify == "tree" else 4 * MAX_NODES  # rows of a batch share nothing
        by_key[key] = PassCosts.on(model.device.type, rows, getattr(model, "config", None))
        if profile is not None:
            by_key[key].recall(profile.summary())
    return by_key[key]


class PassCosts:
    """The measured costs of a model's passes; `prior`, float64[rows + 1], applies until then."""

    def __init__(self, prior: Costs) -> None:
        self._prior = prior
        self._by_context: dict[int, _ContextTimes] = {}
        self.drafting: dict[str, deque[float]] = {}  # seconds of the latest drafts, by drafter
        self.learnt = self.kept = 0  # passes learnt, and passes written to disk

    @staticmethod
    def on(device: str, rows: int = MAX_NODES, config: Any = None) -> PassCosts:
        size = None if config is None else model_size(config)
        return PassCosts(ModelCost(free_tokens(device), size).curve(rows))

    @property
    def most(self) -> int:
        return len(self._prior) - 1

    def at(self, length: int) -> Costs:
        return self._after(length).costs(self._prior)

    def untried(self, length: int) -> list[tuple[int, int]]:
        """Return sizes worth a trial, with the passes since their last, -1 if none."""
        return self._after(length).untried(self.most)

    def best(self, rows: int, length: int) -> float:
        """Return the least possible cost of `rows` rows: kernels may have a plateau."""
        after = self._after(length)
        below = max((size for size in after.passes if size < rows), default=0)
        costs = after.costs(self._prior)
        return float(min(costs[rows], costs[below]))

    def unit(self, length: int) -> float:
        """Return the seconds of a pass without a draft; 0.0 if unknown."""
        after = self._after(length)
        return after.pace * after.typical(0)

    def reach(self, length: int) -> int:
        """Return the most rows to verify: four times those of the largest timed pass."""
        after = self._after(length)
        largest = max(after.passes, default=0)
        return (4 * largest or 1) if 0 in after.passes else 0

    def learn(self, rows: int, length: int, seconds: float) -> None:
        self.learnt += 1
        self._after(length).learn(min(rows, self.most), seconds)

    def summary(self) -> dict[str, dict[str, float]]:
        """Return the seconds of a pass by context class and rows, for `recall`.

        Sizes that ran only once or twice may have met a stall.
        """
        places = {
            str(place): {
                str(size): after.typical(size)
                for size, samples in after.passes.items()
                if len(samples) >= 3
            }
            for place, after in self._by_context.items()
        }
        return {place: sizes for place, sizes in places.items() if "0" in sizes}

    def recall(self, summary: object) -> None:
        for place, sizes in _pairs(summary):
            times = {
                size_class(size): float(seconds)
                for size, seconds in _pairs(sizes)
                if size <= self.most and _is_time(seconds)
            }
            if place < 64 and 0 in times:
                self._by_context[place] = _ContextTimes(times)

    def _after(self, length: int) -> _ContextTimes:
        place = context_class(length)
        if place not in self._by_context:
            nearest = min(self._by_context, key=lambda other: abs(other - place), default=None)
            self._by_context[place] = (
                _ContextTimes() if nearest is None else self._by_context[nearest].moved()
            )
        return self._by_context[place]


class _Timed(NamedTuple):
    size: int
    seconds: float
    ratio: float  # to the usual seconds of its size at pace 1; 0.0 if these are unknown
    sample: list[float]


class _ContextTimes:
    """The times of passes after contexts of about one length.

    Machines change their pace, so a sample is kept as seconds over the pace: the median ratio of
    the five passes around it to the usual times of their sizes. If some had no draft, only those
    count: drafts may have become dearer instead.
    """

    def __init__(
        self, times: Mapping[int, float] = MappingProxyType({}), pace: float = 1.0
    ) -> None:
        self.pace = pace
        self.passes: dict[int, Samples] = {  # by size
            size: deque(([seconds] for _ in range(3)), RECENT_PASSES)
            for size, seconds in times.items()
        }
        self._window: deque[_Timed] = deque(maxlen=5)
        self._last_run = dict.fromkeys(times, 0)  # number of the pass, by size
        self._now = 0
        self._cached: Costs | None = None  # until the next pass

    def moved(self) -> _ContextTimes:
        return _ContextTimes({size: self.typical(size) for size in self.passes}, self.pace)

    def typical(self, size: int) -> float:
        return median(sample[0] for sample in self.passes.get(size, ([0.0],)))

    def learn(self, rows: int, seconds: float) -> None:
        size = size_class(rows)
        self._now += 1
        self._last_run[size] = self._now
        own = self.passes.setdefault(size, deque(maxlen=RECENT_PASSES))
        sample = [seconds / self.pace]
        ratio = seconds / self.typical(size) if len(own) >= 3 else 0.0
        own.append(sample)
        self._window.append(_Timed(size, seconds, ratio, sample))
        ratios = [timed.ratio for timed in self._window if timed.ratio]
        if len(ratios) >= 3:
            units = [timed.ratio for timed in self._window if timed.ratio and timed.size == 0]
            self.pace = median(units or ratios)
            amid = self._window[-3]
            amid.sample[0] = amid.seconds / self.pace
        self._cached = None

    def costs(self, prior: Costs) -> Costs:
        """Return measured costs; other sizes: the prior, scaled as the measured sizes around."""
        unit = self.typical(0)
        if not unit:
            return prior
        if self._cached is None:
            sizes = [0, *sorted(n for n in self.passes if 0 < n < len(prior))]
            factors = [log(self.typical(n) / unit / prior[n]) for n in sizes]
            place = np.log2(np.arange(len(prior)) + 1.0)
            self._cached = prior * np.exp(np.interp(place, place[sizes], factors))
        return self._cached

    def untried(self, most: int) -> list[tuple[int, int]]:
        sizes = [0, *(1 << i for i in range(most.bit_length())), most]
        last = [self._last_run.get(size_class(rows)) for rows in sizes]
        return [
            (rows, -1 if at is None else self._now - at)
            for rows, at in zip(sizes, last, strict=True)
        ]


def size_class(rows: int) -> int:
    """Return the row count with its four leading bits."""
    shift = max(rows.bit_length() - 4, 0)
    return rows >> shift << shift


def _pairs(mapping: object) -> list[tuple[int, Any]]:
    items = list(mapping.items())[:1024] if isinstance(mapping, dict) else []
    return [(int(key), value) for key, value in items if key.isdecimal() and len(key) < 6]


def _is_time(seconds: object) -> bool:
    return isinstance(seconds, int | float) and isfinite(seconds) and 1e-7 < seconds < 1e5
