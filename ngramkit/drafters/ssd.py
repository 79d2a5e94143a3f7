"""SSD: drafts from the model's own past requests ("space-like" speculative decoding).

People ask the same things again, and models answer alike: what followed the last tokens in an
earlier prompt or output is a good guess of what follows now. The draft is the tree of the most
frequent continuations of the longest match, at most `query` tokens long, in the past requests.
When the request is over, it joins them.

A history can be stale. What became of earlier drafts decides how far later ones are trusted
(ngramkit.kernels.ssd), and what is not worth its place in a pass is not drafted. What was there at
first, what came since, and the newest of that are matched and trusted apart, so that none hides
the others: the draft is the best nodes of all.
"""

from __future__ import annotations

import math

import numpy as np

from ngramkit.drafters.base import DraftTree, Evidence, Source, TokenArray
from ngramkit.drafters.live import LiveContext
from ngramkit.drafters.past_requests import CAPACITY, NEWEST, REBUILD, PastRequests
from ngramkit.errors import UsageError, require_between
from ngramkit.formats.container import Array
from ngramkit.formats.datastore import DatastoreShard, search_table
from ngramkit.formats.history import History
from ngramkit.formats.manifest import TokenizerRecord
from ngramkit.kernels.ssd import LENGTHS, draft, learn, merge
from ngramkit.kernels.suffix.continuations import DEPTHS

NO_TOKEN = -1


class _Origin:
    """Drafts from the requests of one origin, and how far they can be trusted."""

    def __init__(self, rules: Array, least: float) -> None:
        self.drafted: tuple[Array, Array, Array, int] | None = None  # what `learn` compares
        self._rules = rules
        self._least = least
        self._record = np.zeros((LENGTHS, 2))  # what became of drafts, by match length
        self._shards: tuple[DatastoreShard, ...] = ()  # those that `_table` stands for
        self._table = search_table(())

    def draft(
        self, shards: tuple[DatastoreShard, ...], context: TokenArray, budget: int
    ) -> tuple[Array, Array, Array]:
        """token_ids, parents, scores; `shards` is not empty."""
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


class Ssd:
    """Drafts from past requests, as `drafters.base.Drafter` says.

    With a `history`, from all that it holds, and every finished request is added to it; without
    one, from this object's own requests, whose `tokenizer` must then be given. `history_tokens` is
    how many tokens are searched; `remember` False forgets every request; `read_only` learns, but
    leaves the folder alone. `query` and `continuation` are in tokens. A node less probable than
    `least_score` is not drafted. `rebuild_tokens`, `rebuild_seconds`, `newest_tokens` and
    `background` as in PastRequests.

    Raises UsageError for bounds that make no sense, or without history and tokenizer.
    """

    def __init__(
        self,
        history: History | None = None,
        *,
        tokenizer: TokenizerRecord | None = None,
        history_tokens: int = CAPACITY,
        query: int = 10,
        continuation: int = 24,
        least_score: float = 0.01,
        remember: bool = True,
        read_only: bool = False,
        rebuild_tokens: int = REBUILD,
        rebuild_seconds: float = math.inf,
        newest_tokens: int = NEWEST,
        background: bool = True,
    ) -> None:
        tokenizer = history.tokenizer if history else tokenizer
        if tokenizer is None:
            raise UsageError(
                "the ssd drafter needs a history or a tokenizer", "give a history", option="history"
            )
        require_between("query", query, 1)
        require_between("continuation", continuation, 1, DEPTHS - 1)
        require_between("history_tokens", history_tokens, 1)
        self._past = PastRequests(
            history,
            separator=tokenizer.vocabulary,
            capacity=history_tokens,
            rebuild_tokens=rebuild_tokens,
            rebuild_seconds=rebuild_seconds,
            newest_tokens=newest_tokens,
            background=background,
            read_only=read_only,
        )
        self._remember = remember
        eos = NO_TOKEN if tokenizer.eos is None else tokenizer.eos
        self._rules = np.array([query, continuation, eos], np.int64)
        self._prompt_tokens = 0
        self._live = LiveContext(np.empty(0, np.int32))
        self._origins = [_Origin(self._rules, least_score) for _ in self._past.shards]

    def start(self, prompt: TokenArray) -> None:
        self._past.refresh()
        self._live = LiveContext(prompt)
        self._prompt_tokens = len(prompt)
        for origin in self._origins:
            origin.drafted = None

    def draft(self, budget: int) -> DraftTree:
        pairs = zip(self._origins, self._past.shards, strict=True)
        drafts = [o.draft(shards, self._live.tokens, budget) for o, shards in pairs if shards]
        drafts = [draft for draft in drafts if len(draft[0])]
        if not drafts:
            return DraftTree.empty()
        best = drafts[0]
        for other in drafts[1:]:
            best = merge(best, other, budget)
        token_ids, parents, scores = best
        source = np.full(len(token_ids), Source.HISTORY, np.uint8)
        return DraftTree(token_ids, parents, scores, source)

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        for origin in self._origins:
            origin.learn(tokens)
        self._live.append(tokens)

    def finish(self) -> None:
        """The request joins the past ones."""
        if self._remember and self._live.length:
            self._past.remember(self._live.tokens, self._prompt_tokens)
        self._live = LiveContext(np.empty(0, np.int32))
