"""The scores from which on a drafted token pays, learnt from acceptance.

What a token costs is `engines.token_cost`. Tokens are counted and no time, so every rank of a
tensor-parallel engine decides alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

LEVELS = 16  # of scores, equally wide
# Expected tokens that scores count as right by, in each level, before anything was observed.
BELIEF = 4.0
FADE_OF_LEVELS = 0.998  # of what was observed, with each chain
# Every so many steps the threshold is lower, by this factor: so tokens below it are observed too.
PROBE, PROBED = 64, 0.7
LOWEST = 0.005  # the threshold is never below


class ScoreThreshold:
    """The score below which a drafted token is not worth verifying, learnt from acceptance.

    Used where nobody has said how likely a drafted token must be accepted (min_probability).
    """

    def __init__(self) -> None:
        self._expected = np.zeros(LEVELS)  # sum of scores
        self._accepted = np.zeros(LEVELS)  # number of these tokens that were accepted
        self._steps = 0

    def observe(self, chains: Sequence[npt.NDArray[np.float32]], accepted: Sequence[int]) -> None:
        """Record a step: of the chain with the scores chains[i], float32[n], the first accepted[i]
        tokens were accepted, the others not."""
        # Most chains of a large batch are empty.
        pairs = [pair for pair in zip(chains, accepted, strict=True) if len(pair[0])]
        if not pairs:
            return
        scores = np.concatenate([chain for chain, _ in pairs])
        levels = np.minimum((scores * LEVELS).astype(np.int64), LEVELS - 1)
        right = [i < count for chain, count in pairs for i in range(len(chain))]
        fade = FADE_OF_LEVELS ** len(pairs)
        self._expected = fade * self._expected + np.bincount(levels, scores, LEVELS)
        self._accepted = fade * self._accepted + np.bincount(levels, right, LEVELS)

    def step(self, cost: float) -> float:
        """Return this step's threshold, for tokens that cost `cost` passes. Call once a step."""
        self._steps += 1
        return PROBED * cost if self._steps % PROBE == 0 else self.learnt(cost)

    def learnt(self, cost: float) -> float:
        """Return the lowest score from which on tokens are accepted with probability `cost`."""
        every = (self._accepted.sum() + BELIEF) / (self._expected.sum() + BELIEF)
        worth: list[float] = (
            (self._accepted + BELIEF * every) / (self._expected + BELIEF)
        ).tolist()
        for level in range(LEVELS - 1, -1, -1):
            needed = cost / max(worth[level], 1e-9)  # score, by this level's acceptance
            if needed >= (level + 1) / LEVELS:
                return max((level + 1) / LEVELS, LOWEST)
            if needed > level / LEVELS:
                return max(needed, LOWEST)
        return LOWEST
