"""One text at a time: drafted for when that pays, by the time that the engine's passes take.

The rule is the decode loop's (`budget.auto`): what passes of each size cost here, what scores of
drafts have been worth, and pauses where drafts do not earn their time. An engine tells less than
the loop sees, so a pass is the time between two calls, and what it wrote the tokens between them.
No two processes share a clock, so this is for one that drafts alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ngramkit.budget.auto import AutoBudget
from ngramkit.budget.pass_costs import PassCosts
from ngramkit.budget.priors import MOST, Prior
from ngramkit.drafters.base import DraftTree, TokenArray
from ngramkit.engines.batch import BatchDrafter
from ngramkit.engines.sessions import NEAR

Clock = Callable[[], float]  # seconds
FORESEEN = 0.9  # of what a drafted token costs at least: less likely ones are not looked for
LOWEST, HIGHEST = 0.02, 0.95
EMPTY = DraftTree.empty()
NEVER = 2.0  # no token is as likely
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
        self._asked = self._asks(auto, len(row)) or not self._pause
        self._size = len(row)
        if not self._asked:
            return self._rest(row)
        self._began = self._clock()
        draft = self._draft(auto, row, length)
        self._text, self._drafted = row.copy(), len(draft)
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

    def _asks(self, auto: AutoBudget, size: int) -> bool:
        """Whether to draft behind `size` tokens."""
        if not auto.opens():
            return False
        if self._cheapest(size) < 1:
            return True
        self._unasked += 1  # not even a sure token would pay
        return self._unasked % RETRIED == 0

    def _draft(self, auto: AutoBudget, row: TokenArray, length: int) -> DraftTree:
        (chain,) = self._batch.chain_batch([row], [length], self._cutoff(len(row)))
        kept = auto.cut(chain, len(row))
        self._batch.verified(kept)
        self._told = len(row)
        return kept

    def _rest(self, row: TokenArray) -> DraftTree:
        """Drafts pause; the text's session is told so often that it is found again at a glance."""
        if 0 <= len(row) - self._told < NEAR:
            self._batch.skipped()
            return EMPTY
        self._told = len(row)
        return self._batch.chain_batch([row], [1], NEVER)[0]

    def _cutoff(self, size: int) -> float:
        """The score from which on tokens are looked for."""
        return min(max(FORESEEN * self._cheapest(size), LOWEST), HIGHEST)

    def _cheapest(self, size: int) -> float:
        """What a drafted token costs at least, in passes, in the draft where it costs least."""
        costs = self.costs.at(size)
        return float(np.min((costs[1:] - 1) / np.arange(1, len(costs))))
