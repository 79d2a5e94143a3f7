"""The next tokens of a wide interval that has only a handful of them, found one after another.

A text that repeats itself makes such intervals; a grid over them would read the same token
thousands of times. See `kernels.suffix.search` for shard tables and intervals.
"""

from __future__ import annotations

from numba import njit

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.suffix.search import VOCABULARY, lower_bound, position_at, token_at

FEW = 4


@njit(cache=True, nogil=True)
def begins_alike(table: Array, span: Array, depth: int) -> bool:
    """Whether the first half of every shard's interval, int64[shards, 2], has one next token."""
    for s in range(len(table)):
        shard, low, high = table[s], span[s, 0], span[s, 1]
        if low < high:
            first = token_at(shard, position_at(shard, low) + depth)
            middle = (low + high - 1) >> 1
            if token_at(shard, position_at(shard, middle) + depth) != first:
                return False
    return True


@njit(cache=True, nogil=True)
def all_of_few(table: Array, span: Array, depth: int, few: Array, tokens: Array) -> int:
    """All next tokens of an interval, ascending, where they are at most FEW.

    They go into `tokens`, int32[FEW or more], their intervals into `few`, int64[FEW, shards, 2].
    Returns how many there are, separators not counted; -1 where there are more.
    """
    shards = len(table)
    point = span[:, 0].copy()
    for found in range(FEW + 1):
        lowest = -1
        for s in range(shards):
            if point[s] < span[s, 1]:
                token = token_at(table[s], position_at(table[s], point[s]) + depth)
                if lowest < 0 or token < lowest:
                    lowest = token
        if lowest < 0 or lowest == table[0, VOCABULARY]:
            return found
        if found == FEW:
            break
        tokens[found] = lowest
        for s in range(shards):
            low = point[s]
            point[s] = lower_bound(table[s], low, span[s, 1], depth, lowest + 1)
            few[found, s, 0], few[found, s, 1] = low, point[s]
    return -1
