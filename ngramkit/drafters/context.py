"""Baseline drafters that use only the live context and references.

`Context`: N-Grammys' context n-grams (arXiv:2411.03786, section 4.2). `PromptLookup`: as
transformers' `prompt_lookup_num_tokens`.
"""

from __future__ import annotations

from collections import Counter

from ngramkit.drafters.base import (
    BaseDrafter,
    DraftTree,
    Evidence,
    LiveContext,
    Source,
    TokenArray,
    tree_of_chains,
)
from ngramkit.drafters.options import ContextOptions, PromptLookupOptions
from ngramkit.drafters.references import Cursor, Given


class _ContextDrafter(BaseDrafter):
    scores_are_shares = True
    takes_references = True
    width: int

    def start(self, prompt: TokenArray, references: Given = ()) -> None:
        self._live = LiveContext(prompt)
        self._cursor = Cursor(references, prompt)

    def draft(self, budget: int) -> DraftTree:
        return self._cursor.before(self._from_context(budget), self.width, budget)

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        self._live.append(tokens)
        self._cursor.accept(tokens)

    def _from_context(self, budget: int) -> DraftTree:
        raise NotImplementedError


class Context(_ContextDrafter):
    """Draft the `width` tokens after earlier occurrences of the last `query` tokens, by count.

    Ties go to the later occurrence. A new query is shortened, down to one token.
    """

    def __init__(self, *, options: ContextOptions = ContextOptions()) -> None:
        self.query, self.width = options.query, options.width
        self.over = f"query={options.query}, width={options.width}"

    def _from_context(self, budget: int) -> DraftTree:
        tokens, begins = self._live.tokens, self._live.continuations(self.query)
        counts: Counter[tuple[int, ...]] = Counter()
        latest: dict[tuple[int, ...], int] = {}
        for begin in begins.tolist():
            continuation = tuple(tokens[begin : begin + self.width].tolist())
            counts[continuation] += 1
            latest[continuation] = begin
        ranked = sorted(counts, key=lambda c: (-counts[c], -latest[c]))
        total = len(begins)
        return tree_of_chains(((c, counts[c] / total) for c in ranked), budget, Source.CONTEXT)


class PromptLookup(_ContextDrafter):
    """Draft one chain after the earliest match of the longest n-gram, n at most `max_ngram`."""

    def __init__(self, *, options: PromptLookupOptions = PromptLookupOptions()) -> None:
        self.max_ngram, self.width = options.max_ngram, options.width
        self.over = f"max_ngram={options.max_ngram}, width={options.width}"

    def _from_context(self, budget: int) -> DraftTree:
        tokens, begins = self._live.tokens, self._live.continuations(self.max_ngram)
        chains = [(tokens[begin : begin + self.width].tolist(), 1.0) for begin in begins[:1]]
        return tree_of_chains(chains, budget, Source.CONTEXT)
