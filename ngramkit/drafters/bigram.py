"""Drafts from what the model itself holds likely after the last token, whatever came before it.

N-Grammys' model-derived bigram and its extension (Stewart et al., 2024, arXiv:2411.03786). A draft
costs one row of the table.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from ngramkit.drafters.base import DraftTree, Evidence, Source, TokenArray, eos_of
from ngramkit.drafters.described import Described, described
from ngramkit.drafters.options import Limits, within_limits
from ngramkit.formats.container import Array
from ngramkit.formats.model_bigram import ModelBigram
from ngramkit.kernels.arrays import NO_TOKEN
from ngramkit.kernels.ngrammys import bigram_rows, probabilities_by_bits, tree_of_rows


class BigramArrays(NamedTuple):
    """A table as the kernels take it: numba has no 16-bit floats."""

    next_tokens: Array  # uint16 | uint32 [V, k]
    log_probs: Array  # uint16 [V, k], the bits
    extended: Array  # uint16 | uint32 [V, k, w]
    probabilities: Array  # float32[65536], by the bits of a log-probability


def arrays_of(table: ModelBigram) -> BigramArrays:
    bits = table.log_probs.view(np.uint16)
    return BigramArrays(table.next_tokens, bits, table.extended, probabilities_by_bits())


class Bigram(Described):
    """At most `rows` drafts (default: all of the table's) of at most `width` tokens (likewise).

    Of their tokens those of highest probability, as far as the budget goes: each is the product of
    the table's along its row.
    """

    @within_limits
    def __init__(
        self,
        bigram: ModelBigram,
        *,
        rows: Annotated[int | None, Limits("drafts side by side", 1)] = None,
        width: Annotated[int | None, Limits("tokens of each", 1)] = None,
    ) -> None:
        self.rows, self.width = rows or bigram.k, width or bigram.width
        self._table = arrays_of(bigram)
        self.over = described([bigram])
        self._eos = eos_of(bigram.tokenizer)
        self._last = NO_TOKEN

    def start(self, prompt: TokenArray) -> None:
        self._last = int(prompt[-1])

    def draft(self, budget: int) -> DraftTree:
        # No row beyond the budget can hold one of the best: its first token would be one of them.
        found = bigram_rows(*self._table, self._last, min(self.rows, budget), self.width, self._eos)
        sources = np.full(len(found[0]), Source.MODEL, np.uint8)
        tree: tuple[Any, ...] = tree_of_rows(*found, sources, budget)
        return DraftTree(*tree)

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        self._last = int(tokens[-1])

    def finish(self) -> None:
        pass
