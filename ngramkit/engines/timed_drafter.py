"""Drafts for one text at a time, sized by measured pass times (`budget.rule`).

A pass is the time between two calls, and writes the new tokens.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ngramkit.budget.costs import PassCosts
from ngramkit.budget.rule import AutoBudget
from ngramkit.drafters.base import DraftTree, TokenArray
from ngramkit.engines.batch import Asked, BatchDrafter, Keep
from ngramkit.engines.sessions import NEAR

Clock = Callable[[], float]  # seconds


class TimedDrafter:
    """Chains from `batch`, opened with `timed=True`, for one text after another, on one thread.

    With `pause` False it drafts in every step.
    """

    def __init__(self, batch: BatchDrafter, clock: Clock, *, pause: bool = True) -> None:
        self._batch, self._clock, self._pause = batch, clock, pause
        self.costs = PassCosts.on("cpu")
        self._budget: AutoBudget | None = None  # of the text
        self._text = np.empty(0, np.int32)  # when it was last drafted for
        self._size = 0  # tokens of the text in the last step
        self._asked = False  # for a draft in the last step
        self._drafted = 0  # tokens of that draft that are verified
        self._settled = 0  # tokens of the text that its session knows
        self._began = self._ended = 0.0  # the last draft, in seconds

    def chain(
        self,
        row: TokenArray,
        length: int,
        change: Keep | None = None,
        asked: Asked | None = None,
    ) -> DraftTree:
        """Return at most `length` tokens that may follow `row`, int32[n], the whole text so far.

        `change` replaces a drafted chain before it is cut.
        """
        budget = self._learn(row)
        self._size = len(row)
        self._asked = budget.opens() or not self._pause
        if not self._asked:
            self._skip(row, asked)
            return DraftTree.empty()
        self._began = self._clock()

        def keep(chain: DraftTree) -> DraftTree:
            return budget.cut(change(chain) if change else chain, len(row))

        # Scores may be too low, so tokens are drafted at half their price.
        price = budget.price(len(row)) / 2
        told = None if asked is None else [asked]
        (draft,) = self._batch.chain_batch([row], [length], price, keep, told)
        self._text, self._settled, self._drafted = row.copy(), len(row), len(draft)
        self._ended = self._clock()
        return draft

    def _learn(self, row: TokenArray) -> AutoBudget:
        new = len(row) - self._size
        if not self._asked:  # a comparison of lengths is enough if there is nothing to learn
            continues = new == 1
        else:
            continues = 0 < new <= self._drafted + 1
            continues = continues and np.array_equal(row[: self._size], self._text)
        if self._budget is None or not continues:  # a pass that read a prompt teaches nothing
            self._budget = AutoBudget(self.costs, self)
        elif self._asked:
            written, drafting = row[self._size :].tolist(), self._ended - self._began
            self._budget.learn(written, self._clock() - self._ended, drafting)
        return self._budget

    def _skip(self, row: TokenArray, asked: Asked | None) -> None:
        """Skip a step; every NEAR tokens the session reads the text."""
        near = 0 <= len(row) - self._settled < NEAR
        if not near:
            self._settled = len(row)
        self._batch.skip(None if near else row, asked)
