"""Where chains are cut, learnt: what scores have been worth, and what drafted tokens cost.

Used where nobody has said how likely a drafted token must be accepted (min_probability). `Cut`
counts what became of drafted tokens, nothing else, so every rank cuts alike. `PassCost` needs the
time, which no two ranks share: only where it is asked for (clock), and one process drafts.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ngramkit.drafters.base import DraftTree

Clock = Callable[[], float]  # seconds
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


MEMORY = 0.98  # of what passes took, with each pass
ENOUGH = 24.0  # passes, older ones counting less, before times say anything
OUTLIER = 4.0  # a pass of so many times the expected seconds tells of something else
CHEAPEST, DEAREST = 0.01, 0.95


class PassCost:
    """What a drafted token costs, in parts of what a token saves: a line through the seconds that
    passes of each number of drafted tokens took, least squares, older passes counting less."""

    def __init__(self) -> None:
        # By the number of rows: sums of weight, tokens, tokens squared, seconds, tokens * seconds.
        self._sums: dict[int, list[float]] = {}

    def add(self, rows: int, tokens: int, seconds: float) -> None:
        """A pass over `rows` requests with `tokens` drafted ones of them all took so long."""
        sums = self._sums.setdefault(rows, [0.0] * 5)
        line = _line(sums)
        if line is not None and seconds > OUTLIER * max(line[0] + line[1] * tokens, 0.0):
            return
        seen = (1.0, tokens, tokens * tokens, seconds, tokens * seconds)
        sums[:] = [MEMORY * old + new for old, new in zip(sums, seen, strict=True)]

    def least(self, rows: int, otherwise: float) -> float:
        """How likely a drafted token must be accepted to pay, with so many rows; `otherwise` where
        not enough is known. An accepted token saves one row's part of a pass."""
        line = _line(self._sums.get(rows, [0.0] * 5))
        if line is None or line[0] <= 0:
            return otherwise
        return min(max(rows * line[1] / line[0], CHEAPEST), DEAREST)


def _line(sums: list[float]) -> tuple[float, float] | None:
    """(seconds without drafts, seconds for each drafted token); None where too little is known."""
    weight, x, xx, y, xy = sums
    spread = weight * xx - x * x
    if weight < ENOUGH or spread <= 1e-9 * max(weight * xx, 1.0):
        return None
    slope = (weight * xy - x * y) / spread
    return (y - slope * x) / weight, slope


class Passes:
    """The engine's passes as a drafter sees them: the time between its calls."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._cost = clock, PassCost()
        self._ended: float | None = None
        self._rows = self._tokens = 0

    def begins(self, rows: int, *, plain: bool, otherwise: float) -> float:
        """What a drafted token costs, as PassCost.least, as a call begins for so many rows. The
        pass that just ended counts if it was over as many, all of them `plain`: not new."""
        if self._ended is not None and plain and rows == self._rows:
            self._cost.add(rows, self._tokens, self._clock() - self._ended)
        self._rows = rows
        return self._cost.least(rows, otherwise)

    def ends(self, tokens: int) -> None:
        """The call drafted so many tokens; the pass begins."""
        self._tokens, self._ended = tokens, self._clock()
