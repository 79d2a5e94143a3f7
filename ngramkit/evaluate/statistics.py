"""Statistics of results: a paired bootstrap over questions, and the calibration of scores.

Bootstrap (Efron 1979): both drafters answered the same questions. Questions are drawn again and
again, with repetition, and the ratio of the two is taken of each drawing: its 2.5th and 97.5th
percentiles say how far the figure depends on which questions were asked. Same inputs, same
interval. Of fewer than FEWEST questions nothing can be said that way, and no interval is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

RESAMPLES = 2000
PERCENTILES = (2.5, 97.5)
FEWEST = 5  # questions
DECILES = 10  # of predicted probabilities

Column = Sequence[float]


@dataclass(frozen=True)
class Ratio:
    """`of` over `to`, nan where nothing was counted, with its 95 % interval, None of fewer than
    FEWEST questions."""

    of: str
    to: str
    value: float
    low: float | None
    high: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; None, which JSON knows, in place of nan."""
        return {key: None if value != value else value for key, value in asdict(self).items()}

    def __str__(self) -> str:
        return f"{self.of} / {self.to}: {self.value:.3f} ({shown_interval(self.low, self.high, 3)})"


def shown_interval(low: float | None, high: float | None, digits: int = 2) -> str:
    """Return the interval as text, or why there is none."""
    if low is None or high is None:
        return f"fewer than {FEWEST} questions"
    return f"{low:.{digits}f} to {high:.{digits}f}"


def ratio(
    of: tuple[str, Column, Column], to: tuple[str, Column, Column], *, seed: int = 0
) -> Ratio:
    """Divide gains over costs of one by those of the other; both are (name, gains, costs)."""
    columns = np.array([of[1], of[2], to[1], to[2]], np.float64)
    value = float(_ratios(columns.sum(1, keepdims=True))[0])
    if columns.shape[1] < FEWEST:
        return Ratio(of[0], to[0], value, None, None)
    low, high = np.percentile(_ratios(_resample(columns, seed)), PERCENTILES)
    return Ratio(of[0], to[0], value, float(low), float(high))


def ratios(columns: Sequence[tuple[str, Column, Column]]) -> list[Ratio]:
    """Divide each of (name, gains, costs) by every later one."""
    return [ratio(of, to) for of, to in combinations(columns, 2)]


def _resample(columns: npt.NDArray[np.float64], seed: int) -> npt.NDArray[np.float64]:
    """Return sums over the drawn questions, float64[4, RESAMPLES]."""
    questions, random = columns.shape[1], np.random.default_rng(seed)
    drawn = (random.integers(questions, size=questions) for _ in range(RESAMPLES))
    return np.array([columns[:, each].sum(1) for each in drawn]).T


def _ratios(sums: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return sums[0] / sums[1] / (sums[2] / sums[3])  # type: ignore[no-any-return]


class Reliability:
    """Predicted against observed acceptance, by tenths of the predicted probability.

    A node whose parent was rejected was not tested by itself, but its score speaks of the whole
    path, so every node counts: it came true if the path to it was accepted.
    """

    def __init__(self) -> None:
        self.nodes = np.zeros(DECILES, np.int64)
        self.predicted = np.zeros(DECILES)
        self.observed = np.zeros(DECILES, np.int64)

    def add(self, scores: np.ndarray, accepted: Sequence[int]) -> None:
        """Count a draft with `scores`, float32[n], and the indices of its `accepted` nodes."""
        if not len(scores):
            return
        decile = np.clip((scores * DECILES).astype(np.int64), 0, DECILES - 1)
        np.add.at(self.nodes, decile, 1)
        np.add.at(self.predicted, decile, scores)
        np.add.at(self.observed, decile[list(accepted)], 1)

    def rows(self) -> list[dict[str, float]]:
        """Return a row per decile that has nodes: their count, mean prediction, share accepted."""
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
