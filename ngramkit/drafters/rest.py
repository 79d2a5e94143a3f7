"""REST: what followed the longest match of the context in a datastore (arXiv:2311.08252).

The match is the longest suffix of the context that any shard holds; the draft is the tree of its
most frequent continuations (section 3.2), with exact counts over all shards and all datastores.
Knows nothing of the model, and learns nothing from what is accepted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ngramkit.drafters.base import DraftTree, Evidence, TokenArray
from ngramkit.errors import UsageError, require_between
from ngramkit.formats.datastore import Datastore
from ngramkit.kernels.rest import draft
from ngramkit.kernels.suffix.continuations import DEPTHS
from ngramkit.kernels.suffix.search import shard_table

NO_TOKEN = -1


class Rest:
    """Drafts from datastores, as `drafters.base.Drafter` says.

    `max_match` and `min_match` bound the match, in tokens; `continuation` the tree's depth. A
    node's score is its share of the matches. Raises UsageError for bounds that make no sense and
    for datastores of different tokenizers.
    """

    scores_are_shares = True

    def __init__(
        self,
        datastores: Sequence[Datastore],
        *,
        max_match: int = 16,
        min_match: int = 1,
        continuation: int = 10,
    ) -> None:
        if not datastores:
            raise UsageError(
                "the rest drafter needs a datastore", "build one: ngramkit build-datastore"
            )
        if not 1 <= min_match <= max_match:
            raise UsageError(
                f"min_match must be 1 to max_match, is {min_match}; max_match is {max_match}",
                option=("min_match", "max_match"),
            )
        require_between("continuation", continuation, 1, DEPTHS - 1)
        first = datastores[0]
        for other in datastores[1:]:
            first.tokenizer.require(other.tokenizer, str(first.path))
        self._shards = [
            (shard.tokens, shard.suffix_array, shard.first_token)
            for datastore in datastores
            for shard in datastore.shards
        ]
        self._table = shard_table(self._shards)
        eos = first.tokenizer.eos
        self._rules = np.array(
            [max_match, min_match, continuation, NO_TOKEN if eos is None else eos], np.int64
        )
        self._context = np.empty(1 << 12, np.int32)
        self._size = 0
        self._bound = max_match  # no suffix of the context longer than this can match

    def start(self, prompt: TokenArray) -> None:
        self._size = 0
        self.accept(prompt)
        self._bound = int(self._rules[0])

    def draft(self, budget: int) -> DraftTree:
        """The `budget` most frequent continuations; ties as in `kernels.suffix.continuations`."""
        token_ids, parents, scores, source, match = draft(
            self._table, self._context, self._size, self._bound, budget, self._rules
        )
        self._bound = match
        return DraftTree(token_ids, parents, scores, source)

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        size = self._size + len(tokens)
        if size > len(self._context):
            grown = np.empty(max(size, 2 * len(self._context)), np.int32)
            grown[: self._size] = self._context[: self._size]
            self._context = grown
        self._context[self._size : size] = tokens
        self._size = size
        self._bound += len(tokens)

    def finish(self) -> None:
        """Nothing is learnt."""
