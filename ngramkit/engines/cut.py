"""Where chains are cut, learnt: what scores have been worth.

Used where nobody has said how likely a drafted token must be accepted (min_probability). It counts
what became of drafted tokens, nothing else, so every rank of a tensor-parallel engine cuts alike.
"""

from __future__ import annotations

import numpy as np

from ngramkit.drafters.base import DraftTree

LEVELS = 16  # of scores, equally wide
BELIEF = (
    4.0  # expected tokens that scores count as right by, in each level, before anything is known
)
FADE = 0.998  # of what is known, with each judged chain
PROBE = 64  # every so many steps chains are cut elsewhere, so that what is known stays true:
PROBED = 0.7  # at so much of the cost, where scores may be worth more or less than they were
LOWEST = 0.005  # cuts are never below


class Cut:
    """What scores of drafted tokens are worth: how many of them came true, by level."""

    def __init__(self) -> None:
        self._foreseen = np.zeros(LEVELS)  # the sum of scores
        self._true = np.zeros(LEVELS)  # and how many of those tokens were accepted
        self._steps = 0

    def judge(self, chain: DraftTree, accepted: int) -> None:
        """The first `accepted` tokens of a chain came true, the others did not."""
        if not len(chain):
            return
        levels = np.minimum((chain.scores * LEVELS).astype(np.int64), LEVELS - 1)
        self._foreseen *= FADE
        self._true *= FADE
        np.add.at(self._foreseen, levels, chain.scores)
        np.add.at(self._true, levels[:accepted], 1.0)

    def at(self, least: float) -> float:
        """The score from which on tokens come true with probability `least` and more; less now and
        then, to find out. Asked once a step."""
        self._steps += 1
        return PROBED * least if self._steps % PROBE == 0 else self.learnt(least)

    def learnt(self, least: float) -> float:
        """The lowest score above which every level's tokens come true often enough."""
        every = (self._true.sum() + BELIEF) / (self._foreseen.sum() + BELIEF)
        worth = (self._true + BELIEF * every) / (self._foreseen + BELIEF)
        for level in range(LEVELS - 1, -1, -1):
            from_here = least / max(float(worth[level]), 1e-9)
            if from_here >= (level + 1) / LEVELS:  # no score of this level is worth that
                return max((level + 1) / LEVELS, LOWEST)
            if from_here > level / LEVELS:
                return max(from_here, LOWEST)
        return LOWEST
