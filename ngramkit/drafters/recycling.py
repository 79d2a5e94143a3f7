"""Token Recycling: the model's top-k after each token, the latest seen (arXiv:2408.08696).

The published tree has 80 nodes; here every budget has its own tree.
"""

from __future__ import annotations

import numpy as np

from ngramkit.drafters.base import NO_TOKENS, BaseDrafter, DraftTree, Evidence, Source, TokenArray
from ngramkit.drafters.options import RecyclingOptions
from ngramkit.kernels.recycling import (
    CANDIDATES_PER_TOKEN,
    fill_tree,
    likeliest_shape,
    overwrite_top_k,
)

# The probability of a candidate by rank. Not measured: chosen so that 80 nodes resemble the
# published tree: 8, 21, 25, 15, 8 and 3 nodes by level; these give 8, 23, 29, 13, 6 and 1.
CHANCE_BY_RANK = np.array([0.44, 0.13, 0.07, 0.045, 0.032, 0.025, 0.02, 0.017])
MAX_VOCABULARY = 1 << 20  # ids above are not learnt
INITIAL_SHAPE_NODES = 64  # grows with the budget


class Matrix:
    def __init__(self) -> None:
        self.clear()
        self._shape = likeliest_shape(CHANCE_BY_RANK, INITIAL_SHAPE_NODES)

    def clear(self) -> None:
        self._rows = np.full((1, CANDIDATES_PER_TOKEN), -1, np.int32)

    def learn(self, evidence: Evidence) -> None:
        tokens = np.ascontiguousarray(evidence.token_ids, np.int32)
        highest = min(int(tokens.max(initial=0)), MAX_VOCABULARY - 1)
        if highest >= len(self._rows):
            grown = np.full(
                (max(highest + 1, 2 * len(self._rows)), CANDIDATES_PER_TOKEN), -1, np.int32
            )
            grown[: len(self._rows)] = self._rows
            self._rows = grown
        overwrite_top_k(self._rows, tokens, np.ascontiguousarray(evidence.top_ids, np.int32))

    def draft(self, last: int, budget: int) -> DraftTree:
        if budget > len(self._shape[0]):
            self._shape = likeliest_shape(CHANCE_BY_RANK, 2 * budget)
        tokens, parents, scores = fill_tree(self._rows, last, *self._shape, budget)
        return DraftTree(tokens, parents, scores, np.full(len(tokens), Source.MODEL, np.uint8))


class Recycling(BaseDrafter):
    """Draft from the matrix. With `keep` it outlives a request, as published."""

    wants_evidence = True
    over = "the model's top-k"

    def __init__(self, *, options: RecyclingOptions = RecyclingOptions()) -> None:
        self.options = options
        self._matrix = Matrix()
        self._last = NO_TOKENS

    def start(self, prompt: TokenArray) -> None:
        if not self.options.keep:
            self._matrix.clear()
        self._last = prompt[-1:]

    def draft(self, budget: int) -> DraftTree:
        if not len(self._last):
            return DraftTree.empty()
        return self._matrix.draft(int(self._last[0]), budget)

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        if len(tokens):
            self._last = tokens[-1:]
        if evidence is not None:
            self._matrix.learn(evidence)
