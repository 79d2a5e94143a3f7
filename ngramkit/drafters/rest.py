"""REST: what followed the longest match of the context in a datastore (arXiv:2311.08252).

The match is the longest suffix of the context found in any shard; the draft is the tree of its
most frequent continuations (section 3.2), with exact counts over all shards and all datastores.
Nothing is learnt from the model or from what is accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np

from ngramkit.basics.errors import UsageError
from ngramkit.drafters.base import (
    NOTHING,
    BaseDrafter,
    DraftTree,
    Evidence,
    LiveContext,
    TokenArray,
    describe,
    eos_of,
)
from ngramkit.drafters.options import within_limits
from ngramkit.formats.artifact import require_one_tokenizer
from ngramkit.formats.datastore import Datastore, search_table
from ngramkit.kernels.arrays import Array
from ngramkit.kernels.rest import draft, new_draft_memo

# The drafts of frequent contexts in a datastore, by the rules that decide them.
MEMOS: WeakKeyDictionary[Datastore, dict[bytes, Array]] = WeakKeyDictionary()


class Rest(BaseDrafter):
    """A drafter over datastores.

    A node's score is its share of the matches. Raises UsageError for bounds that make no sense,
    ArtifactError for datastores of different tokenizers.
    """

    scores_are_shares = True

    @within_limits("rest")
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
        if min_match > max_match:
            raise UsageError(
                f"min_match must be 1 to max_match, is {min_match}; max_match is {max_match}",
                option=("min_match", "max_match"),
            )
        require_one_tokenizer(datastores)
        self.over = describe(datastores)
        # Keeps the arrays behind the table's addresses alive.
        self._shards = [shard for datastore in datastores for shard in datastore.shards]
        self._table = search_table(self._shards)
        eos = eos_of(datastores[0].tokenizer)
        self._rules = np.array([max_match, min_match, continuation, eos], np.int64)
        self._memo = _memo_of(datastores, self._rules)
        self._live = LiveContext(NOTHING)
        self._bound = 0  # no suffix of the context longer than this can match

    def start(self, prompt: TokenArray) -> None:
        self._live = LiveContext(prompt)
        self._bound = len(prompt)

    def draft(self, budget: int) -> DraftTree:
        """Return the `budget` most frequent continuations; ties as in `suffix.continuations`."""
        *tree, self._bound = draft(
            self._table, self._live.tokens, self._bound, budget, self._rules, self._memo
        )
        return DraftTree(*tree)

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        self._live.append(tokens)
        self._bound += len(tokens)


def _memo_of(datastores: Sequence[Datastore], rules: Array) -> Array:
    """Return the drafts of frequent contexts; drafters of the same rules over one datastore share
    them."""
    if len(datastores) != 1:
        return new_draft_memo()
    shared = MEMOS.setdefault(datastores[0], {})
    return shared.setdefault(rules.tobytes(), new_draft_memo())
