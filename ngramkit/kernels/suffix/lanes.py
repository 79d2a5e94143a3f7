"""Searches in several shards side by side, a step of each in turn.

A step of a bisection waits for memory twice: for an entry of the suffix array, then for the token
that it points to. Steps in different shards do not wait for each other, so all entries are asked
for first, then all tokens, and only then is anything decided: sixty-four searches take about as
long as eight that follow each other. See `kernels.suffix.search` for shard tables and intervals.
"""

from __future__ import annotations

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import part
from ngramkit.kernels.suffix.search import (
    bucket,
    compare,
    end_of_match,
    find,
    lower_bound,
    position_at,
    token_at,
)

# Rows of int64[ROWS, lanes]: a lane is a shard that takes part, and where its search has come to.
SHARD, LOW, HIGH, AT, SEEN = range(5)
ROWS = 5
FEW = 3  # so few shards are searched one after another


@part
def lower_bounds(table: Array, lanes: Array, count: int, depth: int, token: int) -> None:
    """`search.lower_bound` of [LOW, HIGH) in each of the first `count` lanes, into LOW."""
    if count <= FEW:
        for i in range(count):
            shard, low, high = table[lanes[SHARD, i]], lanes[LOW, i], lanes[HIGH, i]
            lanes[LOW, i] = lower_bound(shard, low, high, depth, token)
        return
    while _look(table, lanes, count, depth):
        for i in range(count):
            low, high = lanes[LOW, i], lanes[HIGH, i]
            middle = (low + high) >> 1
            below = (low < high) & (lanes[SEEN, i] < token)
            lanes[LOW, i] = middle + 1 if below else low
            lanes[HIGH, i] = high if below else middle


@part
def _look(table: Array, lanes: Array, count: int, depth: int) -> int:
    """The token at `depth` in the middle of every lane; returns how many are still searched."""
    searched = 0
    for i in range(count):
        low, high = lanes[LOW, i], lanes[HIGH, i]
        if low < high:
            lanes[AT, i] = position_at(table[lanes[SHARD, i]], (low + high) >> 1)
            searched += 1
    for i in range(count):
        if lanes[LOW, i] < lanes[HIGH, i]:
            lanes[SEEN, i] = token_at(table[lanes[SHARD, i]], lanes[AT, i] + depth)
    return searched


@part
def find_among(table: Array, pattern: Array, intervals: Array, lanes: Array, count: int) -> int:
    """`search.find` in the shards of the first `count` lanes, into int64[shards, 2]; returns how
    many suffixes there are in all. Overwrites the lanes."""
    if count <= FEW or len(pattern) == 1:
        total = 0
        for i in range(count):
            s = lanes[SHARD, i]
            intervals[s, 0], intervals[s, 1] = find(table[s], pattern)
            total += intervals[s, 1] - intervals[s, 0]
        return total
    searched = 0
    for i in range(count):
        s = lanes[SHARD, i]
        low, high = bucket(table[s], pattern[0])
        intervals[s, 0] = intervals[s, 1] = 0
        if low < high:
            lanes[SHARD, searched], lanes[LOW, searched], lanes[HIGH, searched] = s, low, high
            intervals[s, 1] = high  # the first index known to be above the pattern
            searched += 1
    _first_matches(table, pattern, intervals, lanes, searched)
    total = 0
    for i in range(searched):
        s, low = lanes[SHARD, i], lanes[LOW, i]
        high = end_of_match(table[s], pattern, low, intervals[s, 1])
        intervals[s, 0], intervals[s, 1] = low, high
        total += high - low
    return total


@part
def _first_matches(
    table: Array, pattern: Array, intervals: Array, lanes: Array, count: int
) -> None:
    """The first suffix of every lane that is not below `pattern`, into LOW."""
    while _look(table, lanes, count, 1):
        for i in range(count):
            low, high = lanes[LOW, i], lanes[HIGH, i]
            if low < high:
                s, middle = lanes[SHARD, i], (low + high) >> 1
                order = compare(table[s], lanes[AT, i], pattern, 1)
                lanes[LOW, i] = middle + 1 if order < 0 else low
                lanes[HIGH, i] = high if order < 0 else middle
                intervals[s, 1] = middle if order > 0 else intervals[s, 1]
