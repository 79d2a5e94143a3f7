"""The controller of a serving engine: the least score worth drafting, for all requests of a pass.

It uses no clock, so every rank of a tensor-parallel engine decides alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ngramkit.budget.costs import FADE, TokenCost
from ngramkit.kernels.draft_cut import BELIEF


class BatchBudget:
    """The price of a drafted token: fixed, or by `TokenCost` for each pass.

    With `corrects` scores are corrected by their acceptance.
    """

    def __init__(self, cost: TokenCost | float, *, corrects: bool = True) -> None:
        self._cost, self._corrects = cost, corrects
        self.price = cost if isinstance(cost, float) else 0.0  # of a token in the last step
        self._expected = self._accepted = 0.0  # sum of verified scores; accepted tokens

    def step(self, requests: int) -> float:
        """Return the least score worth drafting; call once a step.

        Observations fade, so that scores which never paid are tried again.
        """
        if isinstance(self._cost, TokenCost):
            self.price = self._cost.price(requests)
        self._expected *= FADE
        self._accepted *= FADE
        if not self._corrects:
            return self.price
        return self.price * (self._expected + BELIEF) / (self._accepted + BELIEF)

    def observe(self, chains: Sequence[npt.NDArray[np.float32]], accepted: Sequence[int]) -> None:
        """Learn from chains with scores float32[n] and their numbers of accepted tokens."""
        count, right = len(chains), sum(accepted)
        self._expected += sum(float(chain.sum()) for chain in chains if len(chain))
        self._accepted += right
        if isinstance(self._cost, TokenCost):
            self._cost.observe(count, count + sum(map(len, chains)), count + right)
