"""Cacheback: recent n-grams, then n-grams frequent in a corpus (arXiv:2511.21699).

Leaders have LL tokens, followers FL. The paper's total draft length includes the last accepted
token: TDL 96 is a budget of 95.
"""

from __future__ import annotations

import numpy as np

from ngramkit.basics.errors import UsageError
from ngramkit.drafters.base import (
    NO_TOKENS,
    BaseDrafter,
    DraftTree,
    Evidence,
    TokenArray,
    describe_artifacts,
)
from ngramkit.drafters.options import CachebackOptions
from ngramkit.formats.frozen_table import FrozenTable
from ngramkit.kernels.cacheback import (
    NONE,
    SIZE,
    USED,
    Pool,
    add_dynamic_then_frozen,
    learn_and_evict,
    refill_table,
)
from ngramkit.kernels.frozen_lookup import locate_arrays

LEADER_LEN, FOLLOWER_LEN = 1, 3
MAX_ENTRIES = (1 << 31) - 1  # entries are numbered in 32 bits
DEEPER_SHARE = 6  # the paper's 16 of 96; a smaller budget keeps the proportion
# Measured on recorded answers of a chat model: the share of known leaders whose dynamic followers
# have the next token at all, how that falls with the rank of recency, and the probability that each
# further token of a follower is then right.
DYNAMIC_SHARE, FALL_WITH_RANK, AGREEMENT_PROBABILITY = 0.6, 1.5, 0.67
MIN_CAPACITY = 256  # entries
ENTRIES = ("rows", "owners", "previous", "following")  # one value per entry
FOLLOWER_LISTS = ("newest", "oldest", "lengths")  # one value per owner


class Cacheback(BaseDrafter):
    """Draft from an optional frozen table and a dynamic one with LRU eviction.

    `leader_len` and `follower_len` default to the frozen table's, else 1 and 3. `leaders` and
    `followers` (per leader) bound the dynamic table (LC, FC). `deeper` (CRT) nodes, at most a
    sixth, are kept for the second and deeper levels. With `keep` the dynamic table outlives a
    request.

    Raises UsageError if the lengths are not the frozen table's, or a capacity is out of bounds.
    """

    def __init__(
        self,
        frozen_table: FrozenTable | None = None,
        *,
        options: CachebackOptions = CachebackOptions(),
    ) -> None:
        self.options = options
        leaders, followers = options.leaders, options.followers
        lengths = _leader_and_follower_lengths(frozen_table, options)
        self._frozen = frozen_table  # keeps the arrays alive that `_where` locates
        self._where = locate_arrays(None if frozen_table is None else frozen_table.table)
        self.over = describe_artifacts([frozen_table] if frozen_table else [])
        self.leader_len, self.follower_len = lengths
        if leaders * followers > MAX_ENTRIES:
            raise UsageError(
                f"leaders times followers must be at most {MAX_ENTRIES:,}, got "
                f"{leaders * followers:,}",
                option=("leaders", "followers"),
            )
        falling = np.arange(1, followers + 1) ** -FALL_WITH_RANK
        self._shares = DYNAMIC_SHARE * falling / falling.sum()  # float64[FC], by rank
        self._table = self._new_table()
        self._tail = NO_TOKENS  # int32[up to LL + FL - 1], no whole window yet

    def start(self, prompt: TokenArray) -> None:
        if not self.options.keep:
            self._table = self._new_table()
        self._tail = NO_TOKENS
        self._learn(np.asarray(prompt, np.int32))

    def draft(self, budget: int) -> DraftTree:
        if budget < 1 or len(self._tail) < self.leader_len:
            return DraftTree.empty()
        first_level = budget - min(self.options.deeper, (budget + 1) // DEEPER_SHARE)
        return DraftTree(
            *add_dynamic_then_frozen(
                self._table.leader_pool,
                self._table.follower_pool,
                self._where,
                self._shares,
                AGREEMENT_PROBABILITY,
                self._tail,
                budget,
                first_level,
            )
        )

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        self._learn(np.asarray(tokens, np.int32))

    def _learn(self, tokens: TokenArray) -> None:
        table, options = self._table, self.options
        table.make_room(len(tokens))
        window = self.leader_len + self.follower_len
        context = np.concatenate([self._tail, tokens])
        learn_and_evict(
            table.leader_pool, table.follower_pool, options.leaders, options.followers, context
        )
        self._tail = context[max(len(context) - window + 1, 0) :]

    def _new_table(self) -> DynamicTable:
        options = self.options
        return DynamicTable(self.leader_len, self.follower_len, options.leaders, options.followers)


def _leader_and_follower_lengths(
    frozen: FrozenTable | None, options: CachebackOptions
) -> tuple[int, int]:
    if frozen is None:
        return options.leader_len or LEADER_LEN, options.follower_len or FOLLOWER_LEN
    lengths = (frozen.leader_len, frozen.follower_len)
    named = (options.leader_len or lengths[0], options.follower_len or lengths[1])
    if named != lengths:
        raise UsageError(
            f"leader_len and follower_len must be {lengths[0]} and {lengths[1]}, as in "
            f"{frozen.path}, got {named[0]} and {named[1]}",
            "Leave leader_len and follower_len out, or build another table.",
            option=("leader_len", "follower_len"),
        )
    return lengths


class DynamicTable:
    def __init__(self, leader_len: int, follower_len: int, leaders: int, followers: int) -> None:
        self._leaders, self._followers = leaders, followers
        self.leader_pool = _new_pool(leader_len, min(MIN_CAPACITY, leaders), 1)
        room = len(self.leader_pool.rows)
        self.follower_pool = _new_pool(follower_len, min(MIN_CAPACITY, room * followers), room)

    def make_room(self, windows: int) -> None:
        self.leader_pool = _grow_pool(self.leader_pool, windows, self._leaders, 1)
        owners = len(self.leader_pool.rows)
        most = self._leaders * self._followers
        self.follower_pool = _grow_pool(self.follower_pool, windows, most, owners)


def _new_pool(length: int, room: int, owners: int) -> Pool:
    size = 1 << max(2 * room - 1, 1).bit_length()
    return Pool(
        rows=np.zeros((room, length), np.int32),
        owners=np.zeros(room, np.int32),
        previous=np.full(room, NONE, np.int32),
        following=np.full(room, NONE, np.int32),
        newest=np.full(owners, NONE, np.int32),
        oldest=np.full(owners, NONE, np.int32),
        lengths=np.zeros(owners, np.int32),
        table=np.full(size, NONE, np.int32),
        state=np.array([0, NONE, 0], np.int64),
    )


def _grow_pool(pool: Pool, more: int, most: int, owners: int) -> Pool:
    needed = min(int(pool.state[SIZE]) + more, most)
    room = len(pool.rows)
    if needed <= room and owners == len(pool.newest):
        return pool
    if needed > room:
        room = min(max(2 * room, needed), most)
    grown = _new_pool(pool.rows.shape[1], room, owners)
    used = int(pool.state[USED])
    for name in ENTRIES:
        getattr(grown, name)[:used] = getattr(pool, name)[:used]
    for name in FOLLOWER_LISTS:
        getattr(grown, name)[: len(pool.newest)] = getattr(pool, name)
    grown.state[:] = pool.state
    refill_table(grown)
    return grown
