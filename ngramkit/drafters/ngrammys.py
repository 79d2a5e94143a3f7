"""N-Grammys' mix: what followed the last tokens earlier in the context, then the model's bigrams.

Stewart et al., 2024, arXiv:2411.03786: `rows` drafts of `width` tokens, those of the context first,
ranked by count; the extended model bigram fills the remaining rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ngramkit.drafters.base import DraftTree, Evidence, Source, TokenArray
from ngramkit.drafters.bigram import NO_EOS, arrays_of
from ngramkit.drafters.live import LiveContext
from ngramkit.errors import require_between
from ngramkit.formats.model_bigram import ModelBigram
from ngramkit.kernels.ngrammys import mixed_tree

SOURCES = np.array([Source.CONTEXT, Source.MODEL], np.uint8)


class Ngrammys:
    """The last `query` tokens are looked up in the context, fewer where they are new.

    Rows with a beginning in common share nodes. Where the budget is less than all rows, the nodes
    of highest score are kept; a score is an estimate of the probability, from counts and table.
    """

    def __init__(
        self, table: ModelBigram, *, rows: int = 10, width: int = 10, query: int = 1
    ) -> None:
        require_between("rows", rows, 1)
        require_between("width", width, 1)
        require_between("query", query, 1)
        self.rows, self.width, self.query = rows, width, query
        self._table = arrays_of(table)
        self._eos = NO_EOS if table.tokenizer.eos is None else table.tokenizer.eos

    def start(self, prompt: TokenArray) -> None:
        self._live = LiveContext(prompt)

    def draft(self, budget: int) -> DraftTree:
        tree: tuple[Any, ...] = mixed_tree(
            self._live.tokens,
            self._begins(),
            *self._table,
            self.rows,
            self.width,
            self._eos,
            SOURCES,
            budget,
        )
        return DraftTree(*tree)

    def _begins(self) -> TokenArray:
        """int64[m]: where a continuation of the longest query that was seen before begins."""
        for size in range(self.query, 0, -1):
            hits = self._live.occurrences(size)
            if len(hits):
                break
        return (hits + size).astype(np.int64, copy=False)

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        self._live.append(tokens)

    def finish(self) -> None:
        pass
