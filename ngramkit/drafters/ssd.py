"""SSD: drafts from the model's own past requests ("space-like" speculative decoding).

A history can be stale, so scores follow the acceptance of past drafts (ngramkit.kernels.ssd).
Origins are matched separately, so that none hides the others.
"""

from __future__ import annotations

import numpy as np

from ngramkit.drafters.base import (
    NO_TOKENS,
    BaseDrafter,
    DraftTree,
    Evidence,
    LiveContext,
    Source,
    TokenArray,
    describe_artifacts,
    eos_of,
)
from ngramkit.drafters.options import SsdOptions
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.drafters.references import NO_REFERENCES, Cursor, Given
from ngramkit.formats.datastore import DatastoreShard
from ngramkit.formats.safetensors import Array
from ngramkit.kernels.ssd import (
    RECORDED_LENGTHS,
    draft_after_trusted_match,
    keep_best_of_two_drafts,
    learn_trust,
)
from ngramkit.kernels.suffix.search import shard_table


class _Origin:
    def __init__(self, rules: Array, least: float) -> None:
        self.drafted: tuple[Array, Array, Array, int] | None = None  # the last one, for `learn`
        self._rules = rules
        self._least = least
        # Acceptance by match length, see kernels.ssd.
        self._record = np.zeros((RECORDED_LENGTHS, 2))
        self._shards: tuple[DatastoreShard, ...] = ()  # of `_table`
        self._table = shard_table(())

    def draft(
        self, shards: tuple[DatastoreShard, ...], context: TokenArray, budget: int
    ) -> tuple[Array, Array, Array]:
        if shards is not self._shards:
            self._shards = shards
            self._table = shard_table(shards)
        token_ids, parents, scores, shares, match = draft_after_trusted_match(
            self._table, context, budget, self._rules, self._record, self._least
        )
        self.drafted = (token_ids, parents, shares, match)
        return token_ids, parents, scores

    def learn(self, written: TokenArray) -> None:
        if self.drafted is not None:
            learn_trust(*self.drafted, written, self._record)
            self.drafted = None


class Ssd(BaseDrafter):
    """Draft the most frequent continuations of the longest match in `past`, `query` tokens at most.

    Raises UsageError for options out of bounds.
    """

    takes_references = True

    def __init__(self, past: PastRequests, *, options: SsdOptions = SsdOptions()) -> None:
        self._past = past
        self.over = (
            f"{past.tokens:,} tokens of past requests, {describe_artifacts((), past.tokenizer)}"
        )
        rules = np.array([options.query, options.continuation, eos_of(past.tokenizer)], np.int64)
        self._continuation = options.continuation
        self._origins = [_Origin(rules, options.least_score) for _ in past.shards]
        self._live = LiveContext(NO_TOKENS)
        self._cursor = Cursor(NO_REFERENCES, NO_TOKENS)
        self._prompt_tokens = 0

    def start(self, prompt: TokenArray, references: Given = ()) -> None:
        self._past.refresh()
        self._live = LiveContext(prompt)
        self._cursor = Cursor(references, prompt)
        self._prompt_tokens = len(prompt)
        for origin in self._origins:
            origin.drafted = None

    def draft(self, budget: int) -> DraftTree:
        return self._cursor.before(self._draft_from_all_origins(budget), self._continuation, budget)

    def _draft_from_all_origins(self, budget: int) -> DraftTree:
        pairs = zip(self._origins, self._past.shards, strict=True)
        drafts = [o.draft(shards, self._live.tokens, budget) for o, shards in pairs if shards]
        drafts = [draft for draft in drafts if len(draft[0])]
        if not drafts:
            return DraftTree.empty()
        best = drafts[0]
        for other in drafts[1:]:
            best = keep_best_of_two_drafts(best, other, budget)
        token_ids, parents, scores = best
        source = np.full(len(token_ids), Source.HISTORY, np.uint8)
        return DraftTree(token_ids, parents, scores, source)

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        for origin in self._origins:
            origin.learn(tokens)
        self._live.append(tokens)
        self._cursor.accept(tokens)

    def finish(self) -> None:
        if self._live.length:
            self._past.remember(self._live.tokens, self._prompt_tokens)
        self._live, self._cursor = LiveContext(NO_TOKENS), Cursor(NO_REFERENCES, NO_TOKENS)
