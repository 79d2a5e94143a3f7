"""The longest end of a context that any of many shards holds, and where it stands in each.

See `kernels.suffix.search` for shard tables and intervals.
"""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import allocating_part
from ngramkit.kernels.suffix.lanes import ROWS, SHARD, find_among
from ngramkit.kernels.suffix.search import VOCABULARY

STRIDE = 3  # tokens


@allocating_part
def find_all(table: Array, pattern: Array, intervals: Array) -> int:
    """`find` in every shard, into int64[shards, 2]; returns how many suffixes there are in all."""
    shards = len(table)
    lanes = np.empty((ROWS, shards), np.int64)
    for s in range(shards):
        lanes[SHARD, s] = s
    return find_among(table, pattern, intervals, lanes, shards)


@allocating_part
def longest_match(table: Array, context: Array, longest: int, intervals: Array) -> int:
    """The length of the longest suffix of `context` (int32[n]), up to `longest`, that some shard
    holds, 0 where none does; its intervals in every shard go into int64[shards, 2].

    Where a suffix matches every shorter one does, so the length is found by bisection; in strides
    of a few tokens, because few matches are longer. For the same reason a shard that lacks a suffix
    is not asked for longer ones: most shards are left out early, however many there are.
    """
    shards, size = len(table), len(context)
    low, high = 0, min(longest, size)
    trial = np.zeros((shards, 2), np.int64)
    lanes = np.empty((ROWS, shards), np.int64)
    for s in range(shards):
        intervals[s, 0] = intervals[s, 1] = 0
    for back in range(high):  # ids outside the vocabulary match nothing
        if not 0 <= context[size - 1 - back] < table[0, VOCABULARY]:
            high = back
            break
    while low < high:
        middle = min((low + high + 1) >> 1, low + STRIDE)
        count = 0
        for s in range(shards):
            trial[s, 0] = trial[s, 1] = 0
            if low == 0 or intervals[s, 0] < intervals[s, 1]:
                lanes[SHARD, count] = s
                count += 1
        if find_among(table, context[size - middle :], trial, lanes, count):
            low = middle
            for s in range(shards):
                intervals[s, 0], intervals[s, 1] = trial[s, 0], trial[s, 1]
        else:
            high = middle - 1
    return low
