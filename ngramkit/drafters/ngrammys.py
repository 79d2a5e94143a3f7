"""N-Grammys (Stewart et al., 2024, arXiv:2411.03786): context n-grams and model-derived tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from ngramkit.drafters.base import (
    BaseDrafter,
    DraftTree,
    Evidence,
    LiveContext,
    Source,
    TokenArray,
    describe_artifacts,
    eos_of,
)
from ngramkit.drafters.options import BigramOptions, NgrammysOptions
from ngramkit.formats.model_bigram import ModelBigram
from ngramkit.formats.model_unigram import ModelUnigram
from ngramkit.formats.safetensors import Array
from ngramkit.kernels.arrays import NO_TOKEN
from ngramkit.kernels.ngrammys import (
    best_nodes_of_rows,
    bigram_rows,
    context_then_bigram_tree,
    probabilities_by_bits,
)

SOURCES = np.array([Source.CONTEXT, Source.MODEL], np.uint8)


class Ngrammys(BaseDrafter):
    """Draft `rows` chains of `width` tokens: context n-grams by count, then the model's bigrams.

    The last `query` tokens are looked up, fewer if they are new. Common prefixes share nodes. The
    nodes of highest score, an estimated probability, are kept.
    """

    def __init__(
        self, bigram: ModelBigram, *, options: NgrammysOptions = NgrammysOptions()
    ) -> None:
        self.options = options
        self._table = _arrays_of(bigram)
        self.over = describe_artifacts([bigram])
        self._eos = eos_of(bigram.tokenizer)

    def start(self, prompt: TokenArray) -> None:
        self._live = LiveContext(prompt)

    def draft(self, budget: int) -> DraftTree:
        if not self._live.length:
            return DraftTree.empty()
        tree: tuple[Any, ...] = context_then_bigram_tree(
            self._live.tokens,
            self._live.continuations(self.options.query),
            *self._table,
            self.options.rows,
            self.options.width,
            self._eos,
            SOURCES,
            budget,
        )
        return DraftTree(*tree)

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        self._live.append(tokens)


def _arrays_of(table: ModelBigram) -> tuple[Array, Array, Array, Array]:
    """Return next_tokens, log_probs as bits uint16[V, k], extended, probabilities by bits.

    numba has no 16-bit floats.
    """
    bits = table.log_probs.view(np.uint16)
    return table.next_tokens, bits, table.extended, probabilities_by_bits()


class Bigram(BaseDrafter):
    """Draft from one row of a model's bigram table.

    `rows`: drafts, default all of the row; `width`: tokens of each, default all. The most probable
    nodes are kept.
    """

    def __init__(self, bigram: ModelBigram, *, options: BigramOptions = BigramOptions()) -> None:
        self.rows, self.width = options.rows or bigram.k, options.width or bigram.width
        self._table = _arrays_of(bigram)
        self.over = describe_artifacts([bigram])
        self._eos = eos_of(bigram.tokenizer)
        self._last = NO_TOKEN

    def start(self, prompt: TokenArray) -> None:
        self._last = int(prompt[-1]) if len(prompt) else NO_TOKEN

    def draft(self, budget: int) -> DraftTree:
        # No row beyond the budget can hold one of the best: its first token would be one of them.
        rows = bigram_rows(*self._table, self._last, min(self.rows, budget), self.width, self._eos)
        sources = np.full(len(rows[0]), Source.MODEL, np.uint8)
        tree: tuple[Any, ...] = best_nodes_of_rows(*rows, sources, budget)
        return DraftTree(*tree)

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        self._last = int(tokens[-1])


class Unigram(BaseDrafter):
    """Draft one level of tokens that a model's embeddings make likely in any context."""

    def __init__(self, unigram: ModelUnigram) -> None:
        self.over = describe_artifacts([unigram])
        self._columns: tuple[Any, ...] = (
            unigram.tokens.astype(np.int32),
            np.full(unigram.k, -1, np.int32),
            np.exp(unigram.scores),
            np.full(unigram.k, Source.MODEL, np.uint8),
        )

    def start(self, prompt: TokenArray) -> None:
        pass

    def draft(self, budget: int) -> DraftTree:
        return DraftTree(*(column[:budget] for column in self._columns))

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        pass
