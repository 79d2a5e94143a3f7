"""How well scores keep what they promise: predicted against observed acceptance of draft nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

DECILES = 10


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
        """`scores` float32[n] of one draft, `accepted` the indices of its accepted nodes."""
        if not len(scores):
            return
        decile = np.clip((scores * DECILES).astype(np.int64), 0, DECILES - 1)
        np.add.at(self.nodes, decile, 1)
        np.add.at(self.predicted, decile, scores)
        np.add.at(self.observed, decile[list(accepted)], 1)

    def rows(self) -> list[dict[str, float]]:
        """One row per decile that holds nodes: its count, mean prediction, share accepted."""
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
