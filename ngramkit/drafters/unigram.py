"""Drafts the tokens that a model's embeddings make likely anywhere: the same ones every time.

N-Grammys' model-derived unigram (Stewart et al., 2024, arXiv:2411.03786). Knows no context at all.
"""

from __future__ import annotations

import numpy as np

from ngramkit.drafters.base import DraftTree, Evidence, Source, TokenArray
from ngramkit.drafters.described import Described, described
from ngramkit.formats.model_unigram import ModelUnigram


class Unigram(Described):
    """A tree of one level: the best `budget` tokens of the table."""

    def __init__(self, unigram: ModelUnigram) -> None:
        self.over = described([unigram])
        self._tree = DraftTree(
            token_ids=unigram.tokens.astype(np.int32),
            parents=np.full(unigram.k, -1, np.int32),
            scores=np.exp(unigram.scores),
            source=np.full(unigram.k, Source.MODEL, np.uint8),
        )

    def start(self, prompt: TokenArray) -> None:
        pass

    def draft(self, budget: int) -> DraftTree:
        tree = self._tree
        return DraftTree(
            tree.token_ids[:budget],
            tree.parents[:budget],
            tree.scores[:budget],
            tree.source[:budget],
        )

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        pass

    def finish(self) -> None:
        pass
