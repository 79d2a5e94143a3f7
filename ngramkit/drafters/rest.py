"""REST: continuations of the longest match of the context in a datastore (arXiv:2311.08252).

The draft is the tree of the most frequent ones (section 3.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from weakref import WeakKeyDictionary

import numpy as np

from ngramkit.basics.errors import UsageError
from ngramkit.drafters.base import (
    NO_TOKENS,
    BaseDrafter,
    DraftTree,
    Evidence,
    LiveContext,
    TokenArray,
    describe_artifacts,
    eos_of,
)
from ngramkit.drafters.options import RestOptions
from ngramkit.formats.datastore import Datastore
from ngramkit.kernels.rest import match_longest_then_shorter
from ngramkit.kernels.suffix.search import shard_table

MEMOIZED_ABOVE_OCCURRENCES = 511  # occurrences of a match beyond which its draft is memoized
MAX_MEMOIZED_DRAFTS, MAX_MEMOIZED_NODES = 4096, 128  # nodes: of each draft
UNBOUNDED = 1 << 62
Memo = dict[tuple[int, bytes], DraftTree]  # by budget and match
# Drafts after frequent matches in a datastore, by the drafter's options. Texts repeat such matches,
# and counting after one that occurs a hundred thousand times takes milliseconds.
_MEMOS: WeakKeyDictionary[Datastore, dict[bytes, Memo]] = WeakKeyDictionary()


class Rest(BaseDrafter):
    """Draft from datastores; a node's score is its share of the matches.

    Raises UsageError for options out of bounds.
    """

    scores_are_shares = True

    def __init__(
        self, datastores: Sequence[Datastore], *, options: RestOptions = RestOptions()
    ) -> None:
        if options.min_match > options.max_match:
            raise UsageError(
                f"min_match must be 1 to max_match ({options.max_match}), got {options.min_match}",
                option=("min_match", "max_match"),
            )
        self.over = describe_artifacts(datastores)
        # Keeps the arrays alive whose addresses the table holds.
        self._shards = [shard for datastore in datastores for shard in datastore.shards]
        self._table = shard_table(self._shards)
        eos = eos_of(datastores[0].tokenizer)
        self._rules = np.array([*astuple(options), eos], np.int64)
        self._max_match = options.max_match
        shared = _MEMOS.setdefault(datastores[0], {}) if len(datastores) == 1 else {}
        self._memo = shared.setdefault(self._rules.tobytes(), {})
        self._live = LiveContext(NO_TOKENS)
        self._bound = 0  # no suffix of the context longer than this can match

    def start(self, prompt: TokenArray) -> None:
        self._live = LiveContext(prompt)
        self._bound = len(prompt)

    def draft(self, budget: int) -> DraftTree:
        context = self._live.tokens
        most = MEMOIZED_ABOVE_OCCURRENCES if budget <= MAX_MEMOIZED_NODES else UNBOUNDED
        tree, match, frequent = match_longest_then_shorter(
            self._table, context, self._bound, budget, self._rules, most
        )
        # A match of the maximum length may be cut short, so it does not bound the next one.
        self._bound = match if match < self._max_match else len(context)
        return self._draft_memoized(context[-frequent:], budget) if frequent else DraftTree(*tree)

    def _draft_memoized(self, match: TokenArray, budget: int) -> DraftTree:
        key = budget, match.tobytes()
        tree = self._memo.get(key)
        if tree is None:
            columns, _, _ = match_longest_then_shorter(
                self._table, match, len(match), budget, self._rules, UNBOUNDED
            )
            tree = DraftTree(*columns)
            if len(self._memo) >= MAX_MEMOIZED_DRAFTS:
                self._memo.clear()
            self._memo[key] = tree
        return tree

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        self._live.append(tokens)
        self._bound += len(tokens)
