"""The score below which a drafted token is not worth verifying, learnt from acceptance.

Used where nobody has said how likely a drafted token must be accepted (min_probability). It counts
what became of drafted tokens and no time, so every rank of a tensor-parallel engine decides alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

LEVELS = 16  # of scores, equally wide
# Expected tokens that scores count as right by, in each level, before anything was observed.
BELIEF = 4.0
FADE = 0.998  # of what was observed, with each chain
# Every so many steps the threshold is lower, by this factor: so tokens below it are observed too.
PROBE, PROBED = 64, 0.7
LOWEST = 0.005  # the threshold is never below


class ScoreThreshold:
    """A record of accepted and rejected draft tokens, by level of their score."""

    def __init__(self) -> None:
        self._expected = np.zeros(LEVELS)  # sum of scores
        self._accepted = np.zeros(LEVELS)  # number of these tokens that were accepted
        self._steps = 0

    def observe(self, chains: Sequence[npt.NDArray[np.float32]], accepted: Sequence[int]) -> None:
        """Record a step: of the chain with the scores chains[i], float32[n], the first accepted[i]
        tokens were accepted, the others not."""
        lengths = np.array([len(scores) for scores in chains], np.int64)
        if not lengths.any():
            return
        scores = np.concatenate(chains)
        levels = np.minimum((scores * LEVELS).astype(np.int64), LEVELS - 1)
        ends = np.cumsum(lengths) - lengths + accepted  # of what was accepted of each chain
        right = np.arange(len(scores)) < np.repeat(ends, lengths)
        fade = FADE ** np.count_nonzero(lengths)
        self._expected = fade * self._expected + np.bincount(levels, scores, LEVELS)
        self._accepted = fade * self._accepted + np.bincount(levels, right, LEVELS)

    def step(self, cost: float) -> float:
        """Return this step's threshold, for tokens that cost `cost` passes. Call once a step."""
        self._steps += 1
        return PROBED * cost if self._steps % PROBE == 0 else self.learnt(cost)

    def learnt(self, cost: float) -> float:
        """Return the lowest score from which on tokens are accepted with probability `cost`."""
        every = (self._accepted.sum() + BELIEF) / (self._expected.sum() + BELIEF)
        worth = (self._accepted + BELIEF * every) / (self._expected + BELIEF)
        for level in range(LEVELS - 1, -1, -1):
            needed = cost / max(float(worth[level]), 1e-9)  # score, by this level's acceptance
            if needed >= (level + 1) / LEVELS:
                return max((level + 1) / LEVELS, LOWEST)
            if needed > level / LEVELS:
                return max(needed, LOWEST)
        return LOWEST
