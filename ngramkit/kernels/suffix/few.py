"""Next tokens of an interval that has only a handful of them, found one after another.

A text that repeats itself makes such intervals, and wide ones: a grid (`kernels.suffix.grid`, which
see for spans) would read the same token thousands of times.
"""

from __future__ import annotations

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import part
from ngramkit.kernels.suffix.grid import BEGIN, CHILD, END
from ngramkit.kernels.suffix.search import VOCABULARY, lower_bound, position_at, token_at

FEW = 4


@part
def begins_alike(table: Array, span: Array, depth: int) -> bool:
    """Whether the first half of every interval has one next token."""
    for i in range(len(span)):
        shard, low, high = table[span[i, 0]], span[i, 1], span[i, 2]
        first = token_at(shard, position_at(shard, low) + depth)
        if token_at(shard, position_at(shard, (low + high - 1) >> 1) + depth) != first:
            return False
    return True


@part
def all_of_few(
    table: Array, span: Array, depth: int, few: Array, tokens: Array, point: Array
) -> int:
    """All next tokens of an interval, ascending, where they are at most FEW.

    They go into `tokens`, int32[FEW or more], their intervals into `few`, int64[FEW, lanes, 2].
    `point` int64[lanes] is scratch. Returns how many there are, separators not counted; -1 where
    there are more.
    """
    lanes = len(span)
    for i in range(lanes):
        point[i] = span[i, 1]
    for found in range(FEW + 1):
        lowest = -1
        for i in range(lanes):
            if point[i] < span[i, 2]:
                shard = table[span[i, 0]]
                token = token_at(shard, position_at(shard, point[i]) + depth)
                if lowest < 0 or token < lowest:
                    lowest = token
        if lowest < 0 or lowest >= table[0, VOCABULARY]:
            return found
        if found == FEW:
            break
        tokens[found] = lowest
        for i in range(lanes):
            low = point[i]
            point[i] = lower_bound(table[span[i, 0]], low, span[i, 2], depth, lowest + 1)
            few[found, i, 0], few[found, i, 1] = low, point[i]
    return -1


@part
def one_of_few(few: Array, found: int, work: Array, lanes: int) -> tuple[int, int]:
    """One of them as a child: how many lanes hold it, and how many suffixes."""
    held = count = 0
    for i in range(lanes):
        low, high = few[found, i, 0], few[found, i, 1]
        if low < high:
            work[CHILD, held], work[BEGIN, held], work[END, held] = i, low, high
            count += high - low
            held += 1
    return held, count
