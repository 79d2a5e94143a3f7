"""Statistics: a paired bootstrap over independent units, and the calibration of scores.

Bootstrap (Efron 1979): units that both drafters answered are resampled with a fixed seed; the 2.5th
and 97.5th percentiles of the ratio are its interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

RESAMPLES = 2000
MAX_DRAWN = 1 << 19  # units drawn at once
PERCENTILES = (2.5, 97.5)
RESAMPLING_SEED = 0
MIN_UNITS = 5  # units
SCORE_CLASSES = 10  # of predicted probabilities
DEPENDENT = "requests depend on each other"

Column = Sequence[float]


@dataclass(frozen=True)
class Units:
    """The independent units of results.

    `of`: the unit of each row, None if each row is one. `dependent`: rows depend on each other.
    """

    name: str
    of: Sequence[int] | None = None
    dependent: bool = False

    def summed(self, columns: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return columns, [n, rows], summed by unit, [n, units]."""
        if self.of is None:
            return columns
        _, unit = np.unique(np.asarray(self.of, np.int64), return_inverse=True)
        return np.array([np.bincount(unit, column) for column in columns])


QUESTIONS = Units("questions")


@dataclass(frozen=True)
class Interval:
    """A 95 % interval; without ends `over` has the reason."""

    low: float | None = None
    high: float | None = None
    over: str = ""  # "95 % over 80 questions"

    def __str__(self) -> str:
        return shown_interval(self.low, self.high)


@dataclass(frozen=True)
class Ratio:
    """`of` over `to` with its 95 % interval; nan if nothing was counted.

    Without an interval `interval` has the reason.
    """

    of: str
    to: str
    value: float
    low: float | None
    high: float | None
    interval: str  # "95 % over 80 questions"

    def to_dict(self) -> dict[str, Any]:
        return {key: None if value != value else value for key, value in asdict(self).items()}

    def __str__(self) -> str:
        shown = shown_interval(self.low, self.high, 3)
        interval = ", ".join(filter(None, [shown, self.interval]))
        return f"{self.of} / {self.to}: {self.value:.3f}{f' ({interval})' if interval else ''}"


def shown_interval(low: float | None, high: float | None, digits: int = 2) -> str:
    return "" if low is None or high is None else f"{low:.{digits}f} to {high:.{digits}f}"


def ratio_with_interval(
    of: tuple[str, Column, Column], to: tuple[str, Column, Column], units: Units = QUESTIONS
) -> Ratio:
    """Divide gains over costs of `of` by those of `to`; both are (name, gains, costs)."""
    columns = np.array([of[1], of[2], to[1], to[2]], np.float64)
    value = float(_ratios_of_sums(columns.sum(1, keepdims=True))[0])
    found = _bootstrap_interval(columns, units)
    return Ratio(of[0], to[0], value, found.low, found.high, found.over)


def rate_interval(gains: Column, costs: Column, units: Units = QUESTIONS) -> Interval:
    """Return the interval of all gains over all costs."""
    return _bootstrap_interval(np.array([gains, costs], np.float64), units)


def _bootstrap_interval(columns: npt.NDArray[np.float64], units: Units) -> Interval:
    if units.dependent:
        return Interval(over=f"no interval: {DEPENDENT}")
    columns = units.summed(columns)
    columns = columns[:, columns.any(0)]  # without units that took no pass
    count = columns.shape[1]
    if count < MIN_UNITS:
        return Interval(over=f"no interval: fewer than {MIN_UNITS} {units.name}")
    ends = np.percentile(_ratios_of_sums(_resample(columns)), PERCENTILES)
    low, high = (None if math.isnan(end) else float(end) for end in ends)
    return Interval(low, high, f"95 % over {count:,} {units.name}")


def ratios(
    columns: Sequence[tuple[str, Column, Column]],
    units: Units = QUESTIONS,
    dependent: Sequence[bool] | None = None,
    baseline: str | None = None,
) -> list[Ratio]:
    """Divide each of (name, gains, costs) by every later one, or all others by `baseline`.

    `dependent`: whether each learns from row to row.
    """
    learns = dependent or [units.dependent] * len(columns)
    both = list(zip(columns, learns, strict=True))
    if baseline is None:
        pairs = list(combinations(both, 2))
    else:
        base = [each for each in both if each[0][0] == baseline]
        pairs = [(each, one) for one in base for each in both if each[0][0] != baseline]
    return [
        ratio_with_interval(of, to, replace(units, dependent=one or other))
        for (of, one), (to, other) in pairs
    ]


def _resample(columns: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return sums over the drawn units, float64[len(columns), RESAMPLES]."""
    units, random = columns.shape[1], np.random.default_rng(RESAMPLING_SEED)
    most = max(MAX_DRAWN // units, 1)
    sizes = [min(most, RESAMPLES - done) for done in range(0, RESAMPLES, most)]
    drawn = (random.integers(units, size=(size, units)) for size in sizes)
    counts = (np.array([np.bincount(row, minlength=units) for row in rows]) for rows in drawn)
    return np.concatenate([columns @ each.T for each in counts], axis=1)


def _ratios_of_sums(sums: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return gains over costs; of four rows, the ratio of two such rates."""
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = sums[0] / sums[1]
        return rate if len(sums) == 2 else rate / (sums[2] / sums[3])  # type: ignore[no-any-return]


class Reliability:
    """Predicted and observed acceptance by tenths of the predicted probability.

    A score is for the whole path to its node, so all nodes count.
    """

    def __init__(self) -> None:
        self.nodes = np.zeros(SCORE_CLASSES, np.int64)
        self.predicted = np.zeros(SCORE_CLASSES)
        self.observed = np.zeros(SCORE_CLASSES, np.int64)

    def add(self, scores: np.ndarray, accepted: Sequence[int]) -> None:
        """Count a draft with `scores`, float32[n], and the indices of its `accepted` nodes."""
        if not len(scores):
            return
        decile = np.clip((scores * SCORE_CLASSES).astype(np.int64), 0, SCORE_CLASSES - 1)
        np.add.at(self.nodes, decile, 1)
        np.add.at(self.predicted, decile, scores)
        np.add.at(self.observed, decile[list(accepted)], 1)

    def rows(self) -> list[dict[str, float]]:
        return [
            {
                "decile": decile,
                "nodes": int(n),
                "predicted": float(self.predicted[decile] / n),
                "observed": float(self.observed[decile] / n),
            }
            for decile, n in enumerate(self.nodes)
            if n
        ]
