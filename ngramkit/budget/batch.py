"""The controller of a serving engine: how many drafted tokens of all requests a pass verifies.

It uses no clock, so every rank of a tensor-parallel engine decides the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ngramkit.budget.costs import FADE
from ngramkit.budget.pass_times import PassTimes
from ngramkit.kernels.draft_cut import BELIEF

Scores = npt.NDArray[np.float32]


class BatchBudget:
    """Verifies the likeliest drafted tokens, as many as write the most tokens in a pass's time.

    `cost`: of passes by their tokens; or of a drafted token in passes, then each token whose score
    is not below it is verified. With `corrects` scores are corrected by their acceptance.
    """

    def __init__(self, cost: PassTimes | float, *, corrects: bool = True) -> None:
        self.cost, self._corrects = cost, corrects
        self.price = cost if isinstance(cost, int | float) else 0.0  # of a drafted token, in tokens
        self._expected = self._accepted = 0.0  # sum of verified scores; accepted tokens
        self._requests = 0
        self._times: npt.NDArray[np.float64] = np.ones(1)  # by drafted tokens, for this pass

    @property
    def _correction(self) -> float:
        """Return the sum of verified scores over the number of accepted tokens."""
        if not self._corrects:
            return 1.0
        return (self._expected + BELIEF) / (self._accepted + BELIEF)

    def step(self, lengths: Sequence[int], context: float = 0.0) -> float:
        """Return the least score worth drafting; call once a pass.

        `lengths`: maximum tokens of each request's chain; `context`: their mean length in tokens.
        Observations fade, so that scores which never paid are tried again.
        """
        self._expected *= FADE
        self._accepted *= FADE
        if isinstance(self.cost, int | float):
            return self.cost * self._correction
        self._requests = sum(length > 0 for length in lengths)
        if not self._requests:
            return 0.0
        tokens = np.arange(self._requests, self._requests + sum(lengths) + 1, dtype=np.float64)
        times = self.cost.times(tokens, self._requests, context)
        self._times = times / times[0]
        # The best pass writes at least a token per request and plain pass's time; so a token whose
        # probability is below the least time that one can take is not in it.
        return self._requests * float(np.diff(self._times).min()) * self._correction

    def cut(self, chains: Sequence[Scores]) -> list[int]:
        """Return how many tokens of each chain to verify; `chains`: their scores, float32[n].

        Scores do not rise along a chain, so the likeliest tokens of all are beginnings of chains.
        """
        if isinstance(self.cost, int | float) or not any(map(len, chains)):
            return [len(chain) for chain in chains]
        scores = np.concatenate(chains)
        likeliest = np.argsort(-scores, kind="stable")  # so that equal scores of a chain keep order
        expected = np.cumsum(scores[likeliest], dtype=np.float64) / self._correction
        spent = self._times[1 : len(scores) + 1]
        rates = (self._requests + expected) / spent
        best = int(np.argmax(rates))
        if rates[best] <= self._requests:
            return [0] * len(chains)
        self.price = self._requests * float(spent[best] - 1) / (best + 1)
        owners = np.repeat(np.arange(len(chains)), [len(chain) for chain in chains])
        kept = np.bincount(owners[likeliest[: best + 1]], minlength=len(chains))
        return list(map(int, kept))

    def observe(self, chains: Sequence[Scores], accepted: Sequence[int]) -> None:
        """Learn from verified chains' scores, float32[n], and numbers of accepted tokens."""
        self._expected += sum(float(chain.sum()) for chain in chains if len(chain))
        self._accepted += sum(accepted)
