"""SSD: drafts from the model's own past requests ("space-like" speculative decoding).

People ask the same things again, and models give similar answers: what followed the last tokens in
a past prompt or answer is likely to follow now. The draft is the tree of the most frequent
continuations of the longest suffix match, at most `query` tokens long, in the past requests. A
finished request joins them.

A history can be stale. The acceptance of past drafts decides how far later ones are trusted
(ngramkit.kernels.ssd), and nodes of a low score are not drafted. Past requests that were there at
start, those that came since, and the newest of these are matched and trusted separately, so that
none hides the others: the draft is the best nodes of all. References (`drafters.references`) go
before all of it, and never join the past requests.
"""

from __future__ import annotations

import numpy as np

from ngramkit.drafters.base import (
    NOTHING,
    BaseDrafter,
    DraftTree,
    Evidence,
    LiveContext,
    Source,
    TokenArray,
    describe,
    eos_of,
)
from ngramkit.drafters.options import within_limits
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.drafters.references import NONE, Cursor, Given
from ngramkit.formats.datastore import DatastoreShard, search_table
from ngramkit.formats.safetensors import Array
from ngramkit.kernels.ssd import LENGTHS, draft, learn, merge_drafts


class _Origin:
    """Past requests of one origin, and the record of what became of drafts from them."""

    def __init__(self, rules: Array, least: float) -> None:
        self.drafted: tuple[Array, Array, Array, int] | None = None  # the last one, for `learn`
        self._rules = rules
        self._least = least
        self._record = np.zeros((LENGTHS, 2))  # acceptance by match length, see kernels.ssd
        self._shards: tuple[DatastoreShard, ...] = ()  # of `_table`
        self._table = search_table(())

    def draft(
        self, shards: tuple[DatastoreShard, ...], context: TokenArray, budget: int
    ) -> tuple[Array, Array, Array]:
        """Return token_ids, parents and scores of a draft; `shards` is not empty."""
        if shards is not self._shards:
            self._shards = shards
            self._table = search_table(shards)
        token_ids, parents, scores, shares, match = draft(
            self._table, context, budget, self._rules, self._record, self._least
        )
        self.drafted = (token_ids, parents, shares, match)
        return token_ids, parents, scores

    def learn(self, written: TokenArray) -> None:
        if self.drafted is not None:
            learn(*self.drafted, written, self._record)
            self.drafted = None


class Ssd(BaseDrafter):
    """A drafter over past requests; `past` decides what is searched and what joins it.

    Raises UsageError for bounds that make no sense.
    """

    takes_references = True

    @within_limits("ssd")
    def __init__(
        self,
        past: PastRequests,
        *,
        query: int = 10,
        continuation: int = 24,
        least_score: float = 0.01,
    ) -> None:
        self._past = past
        self.over = f"{past.tokens:,} tokens of past requests, {describe((), past.tokenizer)}"
        rules = np.array([query, continuation, eos_of(past.tokenizer)], np.int64)
        self._continuation = continuation
        self._origins = [_Origin(rules, least_score) for _ in past.shards]
        self._live = LiveContext(NOTHING)
        self._cursor = Cursor(NONE, NOTHING)
        self._prompt_tokens = 0

    def start(self, prompt: TokenArray, references: Given = ()) -> None:
        self._past.refresh()
        self._live = LiveContext(prompt)
        self._cursor = Cursor(references, prompt)
        self._prompt_tokens = len(prompt)
        for origin in self._origins:
            origin.drafted = None

    def draft(self, budget: int) -> DraftTree:
        return self._cursor.before(self._from_past(budget), self._continuation, budget)

    def _from_past(self, budget: int) -> DraftTree:
        pairs = zip(self._origins, self._past.shards, strict=True)
        drafts = [o.draft(shards, self._live.tokens, budget) for o, shards in pairs if shards]
        drafts = [draft for draft in drafts if len(draft[0])]
        if not drafts:
            return DraftTree.empty()
        best = drafts[0]
        for other in drafts[1:]:
            best = merge_drafts(best, other, budget)
        token_ids, parents, scores = best
        source = np.full(len(token_ids), Source.HISTORY, np.uint8)
        return DraftTree(token_ids, parents, scores, source)

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        for origin in self._origins:
            origin.learn(tokens)
        self._live.append(tokens)
        self._cursor.accept(tokens)

    def finish(self) -> None:
        """Add the request to the past ones."""
        if self._live.length:
            self._past.remember(self._live.tokens, self._prompt_tokens)
        self._live, self._cursor = LiveContext(NOTHING), Cursor(NONE, NOTHING)
