"""Drafters that know nothing but the live context, and references. They are here to be compared
with.

`Context`: N-Grammys' context n-grams (arXiv:2411.03786, section 4.2). `PromptLookup`: prompt lookup
decoding as transformers' `prompt_lookup_num_tokens` does it.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import numpy as np
import numpy.typing as npt

from ngramkit.drafters.base import (
    Described,
    DraftTree,
    Evidence,
    LiveContext,
    Source,
    TokenArray,
    tree_of_chains,
)
from ngramkit.drafters.options import Limits, within_limits
from ngramkit.drafters.references import Cursor, Given


class Context(Described):
    """All earlier occurrences of the last `query` tokens; their next `width` tokens, by count.

    Ties go to the later occurrence. Where the query has none, it is shortened, down to one token.
    """

    scores_are_shares = True
    takes_references = True

    @within_limits
    def __init__(
        self,
        *,
        query: Annotated[int, Limits("how many of the last tokens are looked for", 1)] = 2,
        width: Annotated[int, Limits("how deep a draft goes", 1, 1024)] = 10,
    ) -> None:
        self.query, self.width = query, width
        self.over = f"query={query}, width={width}"

    def start(self, prompt: TokenArray, references: Given = ()) -> None:
        self._live = LiveContext(prompt)
        self._cursor = Cursor(references, prompt)

    def draft(self, budget: int) -> DraftTree:
        return self._cursor.before(self._own(budget), self.width, budget)

    def _own(self, budget: int) -> DraftTree:
        for size in range(self.query, 0, -1):
            hits = self._live.occurrences(size)
            if len(hits):
                return self._ranked(hits + size, budget)
        return DraftTree.empty()

    def _ranked(self, begins: npt.NDArray[np.intp], budget: int) -> DraftTree:
        tokens = self._live.tokens
        seen: Counter[tuple[int, ...]] = Counter()
        latest: dict[tuple[int, ...], int] = {}
        for begin in begins.tolist():
            continuation = tuple(tokens[begin : begin + self.width].tolist())
            seen[continuation] += 1
            latest[continuation] = begin
        ranked = sorted(seen, key=lambda c: (-seen[c], -latest[c]))
        total = len(begins)
        return tree_of_chains(((c, seen[c] / total) for c in ranked), budget, Source.CONTEXT)

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        self._live.append(tokens)
        self._cursor.accept(tokens)

    def finish(self) -> None:
        pass


class PromptLookup(Described):
    """The earliest occurrence of the longest n-gram, n from `max_ngram` down to 1: one chain."""

    scores_are_shares = True
    takes_references = True

    @within_limits
    def __init__(
        self,
        *,
        max_ngram: Annotated[int, Limits("the longest n-gram looked for", 1)] = 2,
        width: Annotated[int, Limits("how deep a draft goes", 1, 1024)] = 10,
    ) -> None:
        self.max_ngram, self.width = max_ngram, width
        self.over = f"max_ngram={max_ngram}, width={width}"

    def start(self, prompt: TokenArray, references: Given = ()) -> None:
        self._live = LiveContext(prompt)
        self._cursor = Cursor(references, prompt)

    def draft(self, budget: int) -> DraftTree:
        return self._cursor.before(self._own(budget), self.width, budget)

    def _own(self, budget: int) -> DraftTree:
        tokens = self._live.tokens
        for size in range(min(self.max_ngram, len(tokens) - 1), 0, -1):
            hits = self._live.occurrences(size)
            if len(hits):
                begin = int(hits[0]) + size
                chain = tokens[begin : begin + self.width].tolist()
                return tree_of_chains([(chain, 1.0)], budget, Source.CONTEXT)
        return DraftTree.empty()

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        self._live.append(tokens)
        self._cursor.accept(tokens)

    def finish(self) -> None:
        pass
