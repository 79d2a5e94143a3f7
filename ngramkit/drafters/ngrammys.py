"""N-Grammys' mix: what followed the last tokens earlier in the context, then the model's bigrams.

Stewart et al., 2024, arXiv:2411.03786: `rows` drafts of `width` tokens, those of the context first,
ranked by count; the extended model bigram fills the remaining rows.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from ngramkit.drafters.base import DraftTree, Evidence, Source, TokenArray, eos_of
from ngramkit.drafters.bigram import arrays_of
from ngramkit.drafters.described import Described, described
from ngramkit.drafters.live import LiveContext
from ngramkit.drafters.options import Limits, within_limits
from ngramkit.formats.model_bigram import ModelBigram
from ngramkit.kernels.ngrammys import mixed_tree

SOURCES = np.array([Source.CONTEXT, Source.MODEL], np.uint8)


class Ngrammys(Described):
    """The last `query` tokens are looked up in the context, fewer where they are new.

    Rows with a beginning in common share nodes. Where the budget is less than all rows, the nodes
    of highest score are kept; a score is an estimate of the probability, from counts and table.
    """

    @within_limits
    def __init__(
        self,
        bigram: ModelBigram,
        *,
        rows: Annotated[int, Limits("drafts side by side", 1, 4096)] = 10,
        width: Annotated[int, Limits("tokens of each", 1, 1024)] = 10,
        query: Annotated[int, Limits("how many of the last tokens are looked for", 1)] = 1,
    ) -> None:
        self.rows, self.width, self.query = rows, width, query
        self._table = arrays_of(bigram)
        self.over = described([bigram])
        self._eos = eos_of(bigram.tokenizer)

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
