"""What followed the last tokens in a frozen table: a corpus's short orders, without the corpus.

The table holds windows of LL + FL tokens (see formats.frozen_table), so it counts successors of
LL, LL + 1, ..., LL + FL - 1 tokens. What it dropped, rare leaders and rare followers, is not there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.blend.corpus import MEMO_ROWS, Memo, begin_row, keep, new_memo, recall
from ngramkit.kernels.blend.table import LEVELS, N_LEVELS, clear, hashed, row_of, slot_of
from ngramkit.kernels.jit import part
from ngramkit.kernels.pointers import load_i64, unsigned_at

# Columns of `where`: five addresses, three item sizes, two lengths of n-grams, two of arrays.
LEADERS, LEADER_COUNTS, OFFSETS, FOLLOWERS, FOLLOWER_COUNTS = range(5)
ID_BYTES, LEADER_COUNT_BYTES, FOLLOWER_COUNT_BYTES = range(5, 8)
LEADER_LEN, FOLLOWER_LEN, SIZE, FOLLOWERS_SIZE = range(8, 12)


class Frozen(NamedTuple):
    """A frozen table; SIZE 0 where there is none."""

    where: Array  # int64[12]
    memo: Memo


def frozen_row(
    leaders: Array, leader_counts: Array, offsets: Array, followers: Array, follower_counts: Array
) -> Array:
    """int64[12], `where` of these arrays; they must outlive it."""
    arrays = (leaders, leader_counts, offsets, followers, follower_counts)
    sizes = [array.itemsize for array in (leaders, leader_counts, follower_counts)]
    lengths = [leaders.shape[1], followers.shape[1], len(leaders), len(followers)]
    return np.array([*(array.ctypes.data for array in arrays), *sizes, *lengths], np.int64)


def new_frozen(where: Array | None) -> Frozen:
    """The table behind `where` (see frozen_row) must outlive it."""
    if where is None:
        return Frozen(np.zeros(FOLLOWERS_SIZE + 1, np.int64), new_memo(1))
    return Frozen(where, new_memo(MEMO_ROWS))


@part
def count_frozen(frozen, recent, into, aside):
    """Adds what followed `recent` in the table. `aside` is a second table, for its sums."""
    where, memo = frozen.where, frozen.memo
    for level in range(N_LEVELS):
        order = LEVELS[level]
        more = order - where[LEADER_LEN]  # tokens of the follower that are context
        if more < 0:
            continue
        if more >= where[FOLLOWER_LEN] or recent[order - 1] < 0:
            return
        key = hashed(recent, order)
        slot = slot_of(key, len(memo.keys))
        if memo.keys[slot] != key:
            _look_up(where, recent, order, more, memo, slot, key, aside)
        if memo.sizes[slot, 0]:
            recall(memo, slot, into, level)


@part
def _look_up(where, recent, order, more, memo, slot, key, aside):
    """One context's row of the memo: the leader's followers that begin with its last tokens."""
    row = _find(where, recent, order)
    if row < 0:
        begin_row(memo, slot, key, np.float32(0))
        return
    clear(aside)
    total = np.float32(0)
    begin = max(load_i64(where[OFFSETS], row), 0)  # whatever a file says, nothing outside is read
    for index in range(begin, min(load_i64(where[OFFSETS], row + 1), where[FOLLOWERS_SIZE])):
        at = index * where[FOLLOWER_LEN]
        same = True
        for i in range(more):
            found = unsigned_at(where[FOLLOWERS], where[ID_BYTES], at + i)
            same = same and found == recent[more - 1 - i]
        if same:
            times = unsigned_at(where[FOLLOWER_COUNTS], where[FOLLOWER_COUNT_BYTES], index)
            successor = row_of(aside, unsigned_at(where[FOLLOWERS], where[ID_BYTES], at + more))
            total += times
            if successor >= 0:
                aside.counts[successor, 0] += times
    if more == 0:  # all that followed, the followers that were not kept too
        total = np.float32(unsigned_at(where[LEADER_COUNTS], where[LEADER_COUNT_BYTES], row))
    begin_row(memo, slot, key, np.float32(total))
    for successor in range(aside.state[0]):
        keep(memo, slot, aside.tokens[successor], aside.counts[successor, 0])


@part
def _find(where, recent, order):
    """The row of the leader that the last `order` tokens begin with, -1 where it was not kept."""
    low, high = np.int64(0), where[SIZE]
    while low < high:
        middle = (low + high) >> 1
        if _order(where, middle, recent, order) < 0:
            low = middle + 1
        else:
            high = middle
    return low if low < where[SIZE] and _order(where, low, recent, order) == 0 else np.int64(-1)


@part
def _order(where, row, recent, order):
    """Below, at or above 0, as the row's leader is below, equal to or above the context's."""
    for i in range(where[LEADER_LEN]):
        found = unsigned_at(where[LEADERS], where[ID_BYTES], row * where[LEADER_LEN] + i)
        difference = found - recent[order - 1 - i]
        if difference != 0:
            return difference
    return np.int64(0)
