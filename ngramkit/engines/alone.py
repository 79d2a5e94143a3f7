"""One text at a time: drafted for when that pays, by the time that the engine's passes take.

The rule is the decode loop's (`decode.budget`): what passes of each size cost here, what scores of
drafts have been worth, and pauses where drafts do not earn their time. An engine tells less than
the loop sees, so a pass is the time between two calls, and what it wrote the tokens between them.
No two processes share a clock, so this is for one that drafts alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ngramkit.decode.budget import AutoBudget
from ngramkit.decode.pass_costs import PassCosts
from ngramkit.decode.priors import MOST, Prior
from ngramkit.drafters.base import DraftTree, TokenArray

Clock = Callable[[], float]  # seconds
FORESEEN = 0.9  # of what a drafted token costs at least: less likely ones are not looked for
LEAST, MOST_LIKELY = 0.02, 0.95


class Alone:
    """`least` is what a drafted token costs, in passes, before any was timed. In each step `opens`,
    then, whatever it says, `keeps`."""

    def __init__(self, least: float, clock: Clock) -> None:
        self._clock = clock
        self._costs = PassCosts(Prior.by_row(least, MOST + 1))
        self._auto: AutoBudget | None = None
        self._text: Any = None  # whose pass is under way
        self._size = self._drafted = 0
        self._began = self._ended = 0.0

    def opens(self, text: Any, row: TokenArray, written: TokenArray) -> bool:
        """Whether to draft for `text`, any object that stays its own. It is `row`, int32[n], of
        which `written` came since its last step."""
        self._began, drafting = self._clock(), self._ended - self._began
        goes_on = text is self._text and self._size + len(written) == len(row)
        if self._auto is not None and goes_on and 0 < len(written) <= self._drafted + 1:
            self._auto.learn(written.tolist(), self._began - self._ended, drafting)
        else:
            self._auto = AutoBudget(self._costs, self)  # a pass that read a prompt tells nothing
        self._text, self._size = text, len(row)
        return self._auto.opens()

    @property
    def cutoff(self) -> float:
        """The score from which on tokens are looked for."""
        costs = self._costs.at(self._size)
        each = (costs[1:] - 1) / np.arange(1, len(costs))
        return min(max(FORESEEN * float(each.min()), LEAST), MOST_LIKELY)

    def keeps(self, chain: DraftTree) -> DraftTree:
        """The part of it to be verified; the pass begins."""
        assert self._auto is not None
        kept = self._auto.cut(chain, self._size)
        self._drafted, self._ended = len(kept), self._clock()
        return kept
