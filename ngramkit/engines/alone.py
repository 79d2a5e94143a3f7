"""One text at a time: drafted for when that pays, by the time that the engine's passes take.

The rule is the decode loop's (`budget.rule`): what passes of each size cost here, what scores of
drafts have been worth, and pauses where drafts do not earn their time. An engine tells less than
the loop sees, so a pass is the time between two calls, and what it wrote the tokens between them.
No two processes share a clock, so this is for one that drafts alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ngramkit.budget.costs import MOST, PassCosts, Prior
from ngramkit.budget.rule import AutoBudget
from ngramkit.drafters.base import DraftTree, TokenArray
from ngramkit.engines.batch import BatchDrafter
from ngramkit.engines.sessions import NEAR

Clock = Callable[[], float]  # seconds
FORESEEN = 0.9  # of what a drafted token costs at least: less likely ones are not looked for
LOWEST, HIGHEST = 0.02, 0.95
EMPTY = DraftTree.empty()
RETRIED = 64  # steps, of which one is drafted for although nothing pays: it may do again


class Alone:
    """Drafts chains for one text after another, from `batch`, which neither pauses nor learns.

    `least` is what a drafted token costs, in passes, before any was timed. With `pause` False it
    never pauses. One thread calls it at a time.
    """

    def __init__(
        self, batch: BatchDrafter, least: float, clock: Clock, *, pause: bool = True
    ) -> None:
        self._batch, self._clock, self._pause = batch, clock, pause
        self.costs = PassCosts(Prior.by_row(least, MOST + 1))
        self._auto: AutoBudget | None = None
        self._text = np.empty(0, np.int32)  # when it was last drafted for
        self._size = 0  # of the text in the last step
        self._asked = False  # whether it was drafted for then
        self._drafted = 0  # tokens of that draft that are verified
        self._told = 0  # of the text, tokens that its session knows
        self._unasked = 0  # steps in which none could pay
        self._began = self._ended = 0.0  # of the last draft

    def chain(self, row: TokenArray, length: int) -> DraftTree:
        """At most `length` tokens that may follow `row`, int32[n]: all of a text so far."""
        auto = self._learnt(row)
        cutoff = self._cutoff(auto, len(row))
        self._asked, self._size = cutoff is not None, len(row)
        if cutoff is None:
            return self._rest(row)
        self._began = self._clock()
        (draft,) = self._batch.chain_batch(
            [row], [length], cutoff, lambda chain: auto.cut(chain, len(row))
        )
        self._text, self._told, self._drafted = row.copy(), len(row), len(draft)
        self._ended = self._clock()
        return draft

    def _learnt(self, row: TokenArray) -> AutoBudget:
        """The text's budget, which knows what came of its last draft."""
        came = len(row) - self._size
        if not self._asked:  # a glance is enough where nothing is to be learnt
            goes_on = came == 1
        else:
            goes_on = 0 < came <= self._drafted + 1
            goes_on = goes_on and np.array_equal(row[: self._size], self._text)
        if self._auto is None or not goes_on:  # a pass that read a prompt tells nothing
            self._auto = AutoBudget(self.costs, self)
        elif self._asked:
            written, drafting = row[self._size :].tolist(), self._ended - self._began
            self._auto.learn(written, self._clock() - self._ended, drafting)
        return self._auto

    def _rest(self, row: TokenArray) -> DraftTree:
        """Drafts pause; the text's session is told so often that it is found again at a glance."""
        near = 0 <= len(row) - self._told < NEAR
        if not near:
            self._told = len(row)
        self._batch.skipped(None if near else row)
        return EMPTY

    def _cutoff(self, auto: AutoBudget, size: int) -> float | None:
        """The score from which on tokens are looked for behind `size` tokens; None: drafts rest."""
        if not auto.opens() and self._pause:
            return None
        costs = self.costs.at(size)
        each = float(np.min((costs[1:] - 1) / np.arange(1, len(costs))))  # where it is cheapest
        if each >= 1:  # not even a sure token would pay
            self._unasked += 1
            if self._unasked % RETRIED and self._pause:
                return None
        return min(max(FORESEEN * each, LOWEST), HIGHEST)
