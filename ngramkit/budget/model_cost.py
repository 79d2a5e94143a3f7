"""The time of a pass by formula, before any is measured.

A pass reads weights and computes with them; the two times are added, as for a machine that does not
overlap them. That is an upper bound: at best a pass takes the longer of the two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ngramkit.budget.model_size import ModelSize

Floats = npt.NDArray[np.float64]
DENSE = ModelSize()

# Tokens whose arithmetic takes as long as reading the weights once, at the width of the arithmetic.
# By their data sheets 153, 295 and 400 on an A100, H100 and L4 in bfloat16; no engine reaches them.
# On a core of an AMD EPYC a pass over 16 rows of SmolLM2-135M takes 1.67 times a pass over one row.
FREE_TOKENS = {"cuda": 128, "cpu": 24}


def free_tokens(device: str) -> float:
    """Return FREE_TOKENS of a device; any but "cpu" counts as "cuda"."""
    return FREE_TOKENS.get(device, FREE_TOKENS["cuda"])


@dataclass(frozen=True)
class ModelCost:
    """The cost of a pass over T tokens: free R(T) + T A, with R weights read and A used by a token.

    It uses no clock, so every rank of a tensor-parallel engine decides the same. Without a size the
    model is dense: 1 + T / free.
    """

    free: float = FREE_TOKENS["cuda"]
    size: ModelSize | None = None

    def times(
        self, tokens: Floats, requests: Floats | float = 1, context: Floats | float = 0.0
    ) -> Floats:
        """Return the times of passes over `tokens`, float64[n], of any unit.

        `requests` of `context` tokens on average share a pass.
        """
        size = self.size or DENSE
        read = size.read(tokens) + requests * context * size.cached
        computed = tokens * (size.used + context * size.attended)
        times: Floats = self.free * read + computed
        return times

    def curve(self, rows: int) -> Floats:
        """Return one request's times for 0 to `rows` draft tokens, in passes, float64[rows + 1]."""
        times = self.times(np.arange(1.0, rows + 2))
        relative: Floats = times / times[0]
        return relative
