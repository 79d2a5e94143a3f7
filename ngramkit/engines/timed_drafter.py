"""Drafts for one text at a time, as long as they pay by the time that the engine's passes take.

The rule is the decode loop's (`budget.rule`): what passes of each size cost here, what scores of
drafts have been worth, and pauses where drafts do not earn their time. An engine tells less than
the loop sees, so a pass is the time between two calls, and what it wrote the tokens between them.
No two processes share a clock, so this is for a process that drafts alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ngramkit.budget.costs import MOST, STEP, PassCosts, Prior
from ngramkit.budget.rule import AutoBudget
from ngramkit.drafters.base import DraftTree, TokenArray
from ngramkit.engines.batch import BatchDrafter, Keep
from ngramkit.engines.sessions import NEAR

Clock = Callable[[], float]  # seconds
SLACK = 0.9  # tokens are drafted from this share of their least cost on
LOWEST, HIGHEST = 0.02, 0.95  # scores from which on tokens are drafted
# Probability from which on a chain is verified that is longer than any before: a repeated answer
# may pay for a large pass where small ones do not pay.
CERTAIN = 0.8
RETRIED = 64  # steps, of which one is drafted for although nothing pays: it may do again


class TimedDrafter:
    """Chains for one text after another, from `batch`, which neither pauses nor learns.

    Passes are expected to cost what the decode loop expects on a CPU, until they are timed: a
    guess so dear that no draft pays would never be corrected. With `pause` False it never pauses.
    One thread calls it at a time.
    """

    def __init__(self, batch: BatchDrafter, clock: Clock, *, pause: bool = True) -> None:
        self._batch, self._clock, self._pause = batch, clock, pause
        self.costs = PassCosts(Prior.by_device("cpu", MOST + 1))
        self._budget: AutoBudget | None = None  # of the text
        self._text = np.empty(0, np.int32)  # when it was last drafted for
        self._size = 0  # tokens of the text in the last step
        self._asked = False  # for a draft in the last step
        self._drafted = 0  # tokens of that draft that are verified
        self._settled = 0  # tokens of the text that its session knows
        self._hopeless = 0  # steps in which no token could pay
        self._began = self._ended = 0.0  # the last draft, in seconds

    def chain(self, row: TokenArray, length: int, change: Keep | None = None) -> DraftTree:
        """Return at most `length` tokens that may follow `row`, int32[n]: all of a text so far.
        `change` returns what is drafted in place of a chain, before its cost is judged."""
        budget = self._learn(row)
        cost = self._token_cost(budget, len(row))
        self._asked, self._size = cost is not None, len(row)
        if cost is None:
            self._skip(row)
            return DraftTree.empty()
        self._began = self._clock()

        def keep(chain: DraftTree) -> DraftTree:
            chain = change(chain) if change else chain
            untimed = 0 < self.costs.reach(len(row)) < STEP * len(chain)  # no pass was as large
            if untimed and chain.scores[-1] >= CERTAIN:
                return budget.whole(chain, len(row))
            return budget.cut(chain, len(row))

        (draft,) = self._batch.chain_batch([row], [length], cost, keep)
        self._text, self._settled, self._drafted = row.copy(), len(row), len(draft)
        self._ended = self._clock()
        return draft

    def _learn(self, row: TokenArray) -> AutoBudget:
        """Return the text's budget, after it learnt what became of the last draft."""
        new = len(row) - self._size
        if not self._asked:  # a comparison of lengths is enough where nothing is to be learnt
            continues = new == 1
        else:
            continues = 0 < new <= self._drafted + 1
            continues = continues and np.array_equal(row[: self._size], self._text)
        if self._budget is None or not continues:  # a pass that read a prompt tells nothing
            self._budget = AutoBudget(self.costs, self)
        elif self._asked:
            written, drafting = row[self._size :].tolist(), self._ended - self._began
            self._budget.learn(written, self._clock() - self._ended, drafting)
        return self._budget

    def _token_cost(self, budget: AutoBudget, size: int) -> float | None:
        """Return what a token behind `size` tokens costs, in passes; None while drafts pause."""
        if not budget.opens() and self._pause:
            return None
        costs = self.costs.at(size)
        least = float(np.min((costs[1:] - 1) / np.arange(1, len(costs))))  # at the cheapest size
        if least >= 1:  # not even a sure token would pay
            self._hopeless += 1
            if self._hopeless % RETRIED and self._pause:
                return None
        return min(max(SLACK * least, LOWEST), HIGHEST)

    def _skip(self, row: TokenArray) -> None:
        """Skip a step; the session takes in the text often enough to be found quickly."""
        near = 0 <= len(row) - self._settled < NEAR
        if not near:
            self._settled = len(row)
        self._batch.skip(None if near else row)
