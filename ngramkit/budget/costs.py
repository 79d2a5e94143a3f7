"""The cost of passes, learnt from the passes themselves, from a prior on.

Costs are in passes without a draft (the unit) after the same context. The prior is a profile on
disk, else a guess by device; the first passes of a model correct it.

One PassCosts belongs to a model, an engine and a way to verify. It holds, by context length, the
time of a pass by its rows. No shape of the curve is assumed: kernels change at some row counts,
GPUs have tiles, engines have graph sizes. A size is judged by its own latest passes as far as they
agree, else by its measured neighbours (see `_estimate`); a few sizes (ANCHORS) are tried while one
of them may still be the best (see `hopeful`).

Machines stall and change their pace. The recent passes of all sizes, against earlier ones of the
same sizes, give the pace, as far as they differ by more than passes of one size do anyway: samples
are divided by it, so that a machine that is twice as slow for a while changes no cost. Of a size's
samples those count that differ from their median by chance, so that one stall decides nothing.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import copysign, exp, isfinite, log, sqrt
from statistics import median_low
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ngramkit.budget.profile import Profile

Costs = npt.NDArray[np.float64]

MOST = 96  # draft nodes of a pass
FLAT = 1e-3  # of a pass, that a row costs at least where no pass has said otherwise
# A pass with so many rows beside the root. CPU: the demo model (5.5 million parameters) and
# SmolLM2-135M in float32 on an AMD EPYC; of both the dearer. GPU: a guess, on the dear side.
BY_DEVICE: dict[str, dict[int, float]] = {
    "cpu": {0: 1, 1: 1.1, 2: 1.2, 4: 1.6, 8: 2, 16: 2.4, 32: 2.8, 64: 4.2, 96: 5.8},
    "cuda": {0: 1, 1: 1.03, 16: 1.05, 32: 1.08, 64: 1.15, 96: 1.25},
}
FIRST = {"cpu": 4, "cuda": 16}  # nodes of the first trial
LATEST = 15  # passes of a size that count
PACED = 5  # passes that give the pace
CHANCE = 1.5  # standard errors by which they may differ from earlier ones by chance
ODD, CHANGED = 1.3, 6  # a size has changed: factor of its time, passes in a row
TRUSTED = 3  # passes that a time from disk counts as
EXACT = 16  # sizes up to here are separate, larger ones in steps of a fifth
SAME = 16  # tokens of context that make no difference
ANCHORS = (1, 2, 4, 8, 16, 32, 64, 96)  # rows beside the root that are worth a trial
STEP = 4  # times the largest size that was run: no trial is larger
LEAST_COST = 0.5  # of any pass
# Standard deviations of the logarithm of a cost, searched for on the curves of benchmarks.budget,
# see research/benchmarks.md:
WALK = 0.16  # of what twice the rows add to what the prior is wrong by, one doubling like no other
TREND = 0.31  # the same, of what every doubling adds alike
KNOWN = 0.3  # from which down a size tells the pace
HOPE = 0.95  # times what another pass would move a size's cost by, that it may cost less at best
DRIFT = 2e-5  # added to the variance of a size by every pass since its last
NOISE = 0.08  # of passes of one size, before some were seen
LEAST_NOISE, MOST_NOISE = 0.01, 0.3  # of what was seen; more is another pace
KEPT_NOISE = 0.2  # above which a busy machine decides, and nothing is kept on disk
STALL = 3.0  # times the noise from the median, beyond which a sample does not count
LEAST_SECONDS, MOST_SECONDS = 1e-7, 1e5  # of a pass, where they are read from a file

Samples = deque[list[float]]  # seconds at pace 1, each in a list of its own


@dataclass(frozen=True)
class Prior:
    """Costs before any pass: `curves[i]`, float64[sizes], after contexts[i] tokens, interpolated.

    The first trial has at most `reach` nodes. `measured`: the curves are no guess.
    """

    contexts: Sequence[int]
    curves: Sequence[Costs]
    reach: int
    measured: bool = False

    @staticmethod
    def by_device(device: str, sizes: int) -> Prior:
        """Return a guess for passes of up to `sizes` - 1 rows beside the root; any device but "cpu"
        counts as "cuda"."""
        points = BY_DEVICE.get(device, BY_DEVICE["cuda"])
        rows = np.arange(sizes)
        curve = _continued(rows, list(points), list(points.values()))
        return Prior([0], [curve], FIRST.get(device, FIRST["cuda"]))

    @staticmethod
    def by_profile(profile: Profile, sizes: int) -> Prior:
        """Return the prior of a profile."""
        rows, table = np.arange(sizes), profile.table()
        curves = [_continued(rows, profile.sizes, (row / row[0]).tolist()) for row in table]
        return Prior(profile.contexts, curves, sizes - 1, measured=True)

    def at(self, length: int) -> Costs:
        """Return the costs after `length` tokens, float64[sizes]; beyond the last context they grow
        on."""
        contexts, curves = self.contexts, self.curves
        if length <= contexts[0] or len(contexts) == 1:
            return curves[0]
        after = next((i for i, c in enumerate(contexts) if c >= length), len(contexts) - 1)
        share = (length - contexts[after - 1]) / (contexts[after] - contexts[after - 1])
        costs: Costs = curves[after - 1] + share * (curves[after] - curves[after - 1])
        return costs


def _continued(rows: npt.NDArray[np.int64], sizes: list[int], costs: list[float]) -> Costs:
    """Return a curve interpolated between the known sizes; beyond them it goes on in a straight
    line."""
    curve = np.interp(rows, sizes, costs)
    if len(sizes) > 1:
        slope = (costs[-1] - costs[-2]) / (sizes[-1] - sizes[-2])
        curve += np.maximum(rows - sizes[-1], 0) * slope
    curve[1:] = np.maximum(curve[1:], 1 + FLAT * rows[1:])
    return curve


_COSTS: WeakKeyDictionary[Any, dict[tuple[str, bool], PassCosts]] = WeakKeyDictionary()


def costs_of(model: Any, verify: str, profile: Profile | None = None) -> PassCosts:
    """Return the costs of a model's passes; they begin with a `profile` where there is one."""
    by_key = _COSTS.setdefault(model, {})
    key = verify, profile is not None
    if key not in by_key:
        sizes = MOST + 1 if verify == "tree" else 4 * MOST + 1  # rows share nothing
        if profile is None:
            prior = Prior.by_device(model.device.type, sizes)
        else:
            prior = Prior.by_profile(profile, sizes)
        by_key[key] = PassCosts(prior)
    return by_key[key]


class PassCosts:
    """The costs of a model's passes, float64[rows + 1] in units; `rows` beside the root."""

    def __init__(self, prior: Prior) -> None:
        self._prior = prior
        self._by_context: dict[int, _AfterContext] = {}
        self.drafting: dict[str, deque[float]] = {}  # seconds of the latest drafts, by drafter
        self.learnt = self.kept = 0  # passes, and those of them that were kept on disk

    @property
    def most(self) -> int:
        """Return the rows of the largest pass with a cost."""
        return len(self._prior.curves[0]) - 1

    def at(self, length: int) -> Costs:
        """Return the costs of passes after `length` tokens."""
        return self._after(length).costs(self._prior, length)

    def hopeful(self, length: int) -> Costs:
        """Return what passes may cost at best: less than `at` says where a size is a guess."""
        return self._after(length).hopeful(self._prior, length)

    def unit(self, length: int) -> float:
        """Return the seconds of a pass without a draft; 0.0 where none was seen."""
        return self._after(length).unit

    def reach(self, length: int) -> int:
        """Return the most rows to try; 0 where a pass without a draft should be seen first."""
        after = self._after(length)
        return after.reach if after.unit else 0

    def learn(self, rows: int, length: int, seconds: float) -> None:
        """Learn from a pass over `rows` rows beside the root that took so long."""
        self.learnt += 1
        rows = min(rows, self.most)
        self._after(length).learn(rows, seconds, self._prior.at(length))

    def summary(self) -> dict[str, dict[str, float]]:
        """Return the seconds of a pass by context and rows, for `recall`.

        A size that ran fewer than TRUSTED times may have met a stall, and a context whose passes
        contradict each other a busy machine: these are left out.
        """
        places = {
            str(place): {
                str(size): after.typical(size)
                for size, samples in after.passes.items()
                if len(samples) >= TRUSTED
            }
            for place, after in self._by_context.items()
            if not after.is_noisy
        }
        return {place: sizes for place, sizes in places.items() if "0" in sizes}

    def recall(self, summary: object) -> None:
        """Begin with what another process has learnt; invalid entries are ignored."""
        for place, sizes in _pairs(summary):
            after = _AfterContext(self._prior)
            for size, seconds in _pairs(sizes):
                if size <= self.most and _is_time(seconds):
                    after.passes[size_of(size)] = _repeated(float(seconds), TRUSTED)
                    after.reach = max(after.reach, STEP * size)
            if place < 64 and 0 in after.passes:
                self._by_context[place] = after

    def _after(self, length: int) -> _AfterContext:
        place = length.bit_length() // 2  # a class for every factor of four
        if place not in self._by_context:
            nearest = min(self._by_context, key=lambda other: abs(other - place), default=None)
            self._by_context[place] = (
                _AfterContext(self._prior) if nearest is None else self._by_context[nearest].moved()
            )
        return self._by_context[place]


def _pairs(mapping: object) -> list[tuple[int, Any]]:
    """Return the entries of a JSON object whose keys are small whole numbers."""
    items = list(mapping.items())[:1024] if isinstance(mapping, dict) else []
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
    """A recent pass."""

    size: int
    sample: list[float]
    seconds: float
    ratio: float  # its seconds over the usual ones at pace 1


class _AfterContext:
    """The passes after contexts of about one length."""

    def __init__(self, prior: Prior) -> None:
        self.reach = prior.reach
        self.passes: dict[int, Samples] = {}  # by size
        self._typical: dict[int, float] = {}  # by size, while its samples are the same
        self._pace = 1.0
        self._window: deque[_Timed] = deque(maxlen=PACED)
        # Logarithms of the latest passes' seconds over those of their sizes, absolute:
        self._residuals = deque([NOISE] * TRUSTED, 2 * LATEST)
        self._noise = NOISE  # the standard deviation that their median stands for
        self._last_run: dict[int, int] = {}  # by size
        self._now = 0
        self._cached: tuple[Costs, Costs, Costs] | None = None  # until the next pass
        self._at = -1

    def moved(self) -> _AfterContext:
        """Return a copy to begin another context length with."""
        other = copy.deepcopy(self)
        for size, samples in self.passes.items():
            other.passes[size] = _repeated(self.typical(size), min(len(samples), TRUSTED))
        other._window.clear()
        return other

    @property
    def unit(self) -> float:
        return self._pace * self.typical(0)

    @property
    def is_noisy(self) -> bool:
        """Return whether passes of one size differ too much to be kept."""
        return self._noise > KEPT_NOISE

    def typical(self, size: int) -> float:
        """Return the seconds of a pass of that size at pace 1: the mean of the samples around their
        median, the lower of two; 0.0 where none was run."""
        if size not in self._typical:
            seconds = [sample[0] for sample in self.passes.get(size, ())]
            middle, factor = median_low(seconds or [0.0]), exp(STALL * self._noise)
            near = [each for each in seconds if middle / factor <= each <= middle * factor]
            self._typical[size] = sum(near) / max(len(near), 1)
        return self._typical[size]

    def learn(self, rows: int, seconds: float, curve: Costs) -> None:
        """Add a pass; `curve` is the prior's."""
        size = size_of(rows)
        self._now += 1
        self._last_run[size] = self._now
        self.reach = max(self.reach, STEP * rows)
        usual = self._usual(size, curve)
        own = self.passes.setdefault(size, deque(maxlen=LATEST))
        sample = [seconds / self._pace]
        if own:
            self._residuals.append(abs(log(sample[0] / self.typical(size))))
            self._noise = min(max(1.5 * median_low(self._residuals), LEAST_NOISE), MOST_NOISE)
        own.append(sample)
        self._typical.pop(size, None)
        self._doubt(size)
        if usual:
            self._window.append(_Timed(size, sample, seconds, seconds / usual))
            self._follow()
        self._cached = None

    def _doubt(self, size: int) -> None:
        """Forget all but the latest passes of all sizes where the time of a size has changed."""
        own = self.passes[size]
        if len(own) < LATEST:
            return
        recent, usual = [sample[0] for sample in list(own)[-CHANGED:]], self.typical(size)
        if min(recent) > ODD * usual or max(recent) < usual / ODD:
            self._typical.clear()
            for other, samples in self.passes.items():
                if other:
                    self.passes[other] = deque([samples[-1]], LATEST)

    def _usual(self, size: int, curve: Costs) -> float:
        """Return the usual seconds of a pass at pace 1; 0.0 while they are a guess."""
        if not size:
            return self.typical(0) if len(self.passes.get(0, ())) >= TRUSTED else 0.0
        likely, _, deviations = self._cached or self._estimate(curve)
        return self.typical(0) * float(likely[size]) if deviations[size] < KNOWN else 0.0

    def _follow(self) -> None:
        """Set the pace by the recent passes, and correct the middle one of them by it.

        Passes without a draft give it best: of others, drafts may have become dearer instead. What
        may be chance is no change of pace.
        """
        if len(self._window) < PACED:
            return
        units = [timed.ratio for timed in self._window if timed.size == 0]
        ratios = sorted(units or [timed.ratio for timed in self._window])
        pace = log(ratios[len(ratios) // 2])
        chance = CHANCE * self._noise / sqrt(len(ratios))
        self._pace = exp(copysign(max(abs(pace) - chance, 0.0), pace))
        amid = self._window[PACED // 2]
        amid.sample[0] = amid.seconds / self._pace
        self._typical.pop(amid.size, None)

    def costs(self, prior: Prior, length: int) -> Costs:
        return self._curves(prior, length)[0]

    def hopeful(self, prior: Prior, length: int) -> Costs:
        return self._curves(prior, length)[1]

    def _curves(self, prior: Prior, length: int) -> tuple[Costs, Costs, Costs]:
        if self._cached is None or length // SAME != self._at:
            likely, hopes, deviations = self._estimate(prior.at(length))
            self._cached = likely, likely if prior.measured else hopes, deviations
            self._at = length // SAME
        return self._cached

    def _estimate(self, curve: Costs) -> tuple[Costs, Costs, Costs]:
        """Return the likely costs, what they may be at best, and the standard deviations of their
        logarithms.

        By what factor the prior is wrong is a Gaussian process over the logarithm of the rows: a
        random walk with a trend, known at the sizes that were run as well as their passes agree.
        """
        prior = _covariance(len(curve))
        measured = np.array(sorted(n for n in self.passes if 0 < n < len(curve)), int)
        unit = self.typical(0)
        if not len(measured) or not unit:
            return curve, curve, np.sqrt(prior.diagonal())
        known = prior[:, measured]
        seen = np.log([self.typical(n) / unit for n in measured.tolist()]) - np.log(curve[measured])
        unit_noise, *noises = [
            self._noise**2 / len(self.passes[n]) for n in (0, *measured.tolist())
        ]
        system = known[measured] + np.diag(noises) + unit_noise
        gain = np.linalg.solve(system, known.T).T
        likely = np.maximum(curve * np.exp(gain @ seen), LEAST_COST)
        likely[0] = 1.0
        left = prior.diagonal() - np.sum(gain * known, axis=1)
        deviations = np.sqrt(np.maximum(left, 0.0))
        return likely, self._hopes(likely, deviations, measured), deviations

    def _hopes(self, likely: Costs, deviations: Costs, measured: npt.NDArray[np.int_]) -> Costs:
        """Return the likely costs, with those of the anchors within reach as low as another pass
        may show them to be: the surer a size, or the noisier a pass, the less it can."""
        hopes = likely.copy()
        for anchor in ANCHORS:
            if anchor > min(self.reach, len(likely) - 1):
                break
            size = size_of(anchor)
            age = self._now - self._last_run.get(size, 0)
            unsure = deviations[anchor] ** 2 + DRIFT * age
            hopes[anchor] *= exp(-HOPE * unsure / sqrt(unsure + self._noise**2))
            if size not in self.passes and anchor > measured[0]:  # costs may be level there
                below = measured[measured < anchor][-1]
                hopes[anchor] = min(hopes[anchor], float(likely[below]))
        return hopes


@cache
def _covariance(sizes: int) -> Costs:
    """Return the covariance of the logarithms of what the prior is wrong by before any pass,
    float64[sizes, sizes]: of a walk over the logarithm of the rows, and its trend."""
    place = np.log2(np.arange(sizes) + 1.0)
    walk: Costs = WALK**2 * np.minimum.outer(place, place)
    return walk + TREND**2 * np.outer(place, place)


@cache
def size_of(rows: int) -> int:
    """Return the size that a pass counts as: its own, or one that is a little smaller."""
    size = EXACT
    while size + size // 5 <= rows:
        size += size // 5
    return min(size, rows)
