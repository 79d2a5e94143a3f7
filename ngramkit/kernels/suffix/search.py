"""Search suffix arrays.

A *shard table* int64[shards, 7] describes the arrays of all shards, so that one compiled version
serves all widths. Its holder keeps them alive. In an *interval* [low, high) of the suffix array at
`depth` d, suffixes agree on d tokens and are sorted by the next.

A shard must end with a separator, its highest id; patterns must hold none. Positions are verified
when an artifact is opened; here this would cost 3 to 6 % of a draft.

Searches in several shards advance together, so that loads overlap: 64 take about as long as 8 in
sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import allocating_part, entry, part
from ngramkit.kernels.packed_arguments import load_i32, load_i64, load_u16, load_u32

TOKENS, TOKEN_BYTES, SUFFIXES, SUFFIX_BYTES, BUCKETS, VOCABULARY, SIZE = range(7)

# Rows of int64[ROWS, lanes]: a lane is one shard and the state of its search.
SHARD, LOW, HIGH, AT, SEEN = range(5)
ROWS = 5
MAX_SHARDS_IN_TURN = 3  # shards that are searched one after another, at most

STRIDE = 3  # tokens
MAX_READ_SUFFIXES = 8  # suffixes that are read one by one, at most


def shard_table(shards: Sequence[tuple[Array, Array, Array]]) -> Array:
    """Return int64[shards, 7] for (tokens, suffix_array, first_token); the last may be empty."""
    rows = [
        (
            tokens.ctypes.data,
            tokens.itemsize,
            suffix_array.ctypes.data,
            suffix_array.itemsize,
            first_token.ctypes.data if len(first_token) else 0,
            len(first_token) - 2 if len(first_token) else int(tokens[-1]),
            min(len(tokens), len(suffix_array)),
        )
        for tokens, suffix_array, first_token in shards
    ]
    return np.array(rows, np.int64).reshape(-1, 7)


@part
def token_at(shard, position):
    """Return the token at a text position of a shard."""
    if shard[TOKEN_BYTES] == 2:
        return load_u16(shard[TOKENS], position)
    return load_u32(shard[TOKENS], position)


@part
def document_token(shard, position):
    """Return the token at a text position; -1 for separators and outside the text."""
    if position < 0 or position >= shard[SIZE]:
        return np.int64(-1)
    token = np.int64(token_at(shard, position))
    return token if token < shard[VOCABULARY] else np.int64(-1)


@part
def match_before(shard, end, recent, most):
    """Return how many tokens before `end`, at most `most`, agree with `recent`."""
    match = np.int64(0)
    while match < most:
        token = document_token(shard, end - 1 - match)
        if token < 0 or token != recent[match]:
            break
        match += 1
    return match


@part
def position_at(shard, index):
    if shard[SUFFIX_BYTES] == 4:
        return load_i32(shard[SUFFIXES], index)
    return load_i64(shard[SUFFIXES], index)


@part
def lower_bound(shard, low, high, depth, token):
    """Return the first index of [low, high) whose token is at least `token`, or high."""
    while low < high:
        middle = (low + high) >> 1
        if token_at(shard, position_at(shard, middle) + depth) < token:
            low = middle + 1
        else:
            high = middle
    return low


@part
def narrow_interval(shard, low, high, depth, token):
    """Return the part of an interval whose next token is `token`; gallops to its near end."""
    if high - low <= MAX_READ_SUFFIXES:
        while low < high and token_at(shard, position_at(shard, low) + depth) < token:
            low += 1
        begin = low
        while low < high and token_at(shard, position_at(shard, low) + depth) == token:
            low += 1
        return begin, low
    low = lower_bound(shard, low, high, depth, token)
    begin, step = low, 1
    while low + step <= high and (
        token_at(shard, position_at(shard, low + step - 1) + depth) <= token
    ):
        low += step
        step <<= 1
    return begin, lower_bound(shard, low, min(high, low + step - 1), depth, token + 1)


@part
def first_token_interval(shard, token):
    """Return the interval of suffixes that begin with `token`."""
    if token < 0 or token >= shard[VOCABULARY]:
        return 0, 0
    if shard[BUCKETS] == 0:
        return narrow_interval(shard, 0, shard[SIZE], 0, token)
    low, high = load_i64(shard[BUCKETS], token), load_i64(shard[BUCKETS], token + 1)
    high = min(high, shard[SIZE])
    return (low, high) if 0 <= low < high else (0, 0)


@part
def compare_suffix(shard, position, pattern, skipped):
    """Return below, equal to or above 0 as a suffix compares to `pattern` as a prefix."""
    for i in range(skipped, len(pattern)):
        difference = token_at(shard, position + i) - pattern[i]
        if difference != 0:
            return difference
    return 0


@part
def find_in_shard(shard, pattern):
    """Return the interval of suffixes that begin with `pattern`, int32[m >= 1]."""
    low, high = first_token_interval(shard, pattern[0])
    if len(pattern) == 1:
        return low, high
    above = high
    while low < high:
        middle = (low + high) >> 1
        order = compare_suffix(shard, position_at(shard, middle), pattern, 1)
        if order < 0:
            low = middle + 1
        else:
            high = middle
            if order > 0:
                above = middle
    return low, end_of_match(shard, pattern, low, above)


find_from_python = entry(find_in_shard.py_func)  # for Python


@part
def end_of_match(shard, pattern, low, above):
    step = 1
    begin = low
    while begin < above and compare_suffix(shard, position_at(shard, begin), pattern, 1) == 0:
        low = begin + 1
        begin += step
        step <<= 1
    high = min(begin, above)
    while low < high:
        middle = (low + high) >> 1
        if compare_suffix(shard, position_at(shard, middle), pattern, 1) == 0:
            low = middle + 1
        else:
            high = middle
    return low


@part
def lower_bounds(table, lanes, count, depth, token):
    if count <= MAX_SHARDS_IN_TURN:
        for i in range(count):
            shard, low, high = table[lanes[SHARD, i]], lanes[LOW, i], lanes[HIGH, i]
            lanes[LOW, i] = lower_bound(shard, low, high, depth, token)
        return
    while _read_middles(table, lanes, count, depth):
        for i in range(count):
            low, high = lanes[LOW, i], lanes[HIGH, i]
            middle = (low + high) >> 1
            below = (low < high) & (lanes[SEEN, i] < token)
            lanes[LOW, i] = middle + 1 if below else low
            lanes[HIGH, i] = high if below else middle


@part
def _read_middles(table, lanes, count, depth):
    """Read the token in the middle of each lane; return the number of unfinished lanes."""
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
def find_in_some_shards(table, pattern, intervals, lanes, count):
    """Set intervals of `pattern` in the lanes' shards; return the number of suffixes."""
    if count <= MAX_SHARDS_IN_TURN or len(pattern) == 1:
        total = 0
        for i in range(count):
            s = lanes[SHARD, i]
            intervals[s, 0], intervals[s, 1] = find_in_shard(table[s], pattern)
            total += intervals[s, 1] - intervals[s, 0]
        return total
    searched = 0
    for i in range(count):
        s = lanes[SHARD, i]
        low, high = first_token_interval(table[s], pattern[0])
        intervals[s, 0] = intervals[s, 1] = 0
        if low < high:
            lanes[SHARD, searched], lanes[LOW, searched], lanes[HIGH, searched] = s, low, high
            intervals[s, 1] = high  # the first index known to be above the pattern
            searched += 1
    _bisect_first_matches(table, pattern, intervals, lanes, searched)
    total = 0
    for i in range(searched):
        s, low = lanes[SHARD, i], lanes[LOW, i]
        high = end_of_match(table[s], pattern, low, intervals[s, 1])
        intervals[s, 0], intervals[s, 1] = low, high
        total += high - low
    return total


@part
def _bisect_first_matches(table, pattern, intervals, lanes, count):
    while _read_middles(table, lanes, count, 1):
        for i in range(count):
            low, high = lanes[LOW, i], lanes[HIGH, i]
            if low < high:
                s, middle = lanes[SHARD, i], (low + high) >> 1
                order = compare_suffix(table[s], lanes[AT, i], pattern, 1)
                lanes[LOW, i] = middle + 1 if order < 0 else low
                lanes[HIGH, i] = high if order < 0 else middle
                intervals[s, 1] = middle if order > 0 else intervals[s, 1]


@allocating_part
def find_in_all_shards(table, pattern, intervals):
    shards = len(table)
    lanes = np.empty((ROWS, shards), np.int64)
    for s in range(shards):
        lanes[SHARD, s] = s
    return find_in_some_shards(table, pattern, intervals, lanes, shards)


@allocating_part
def longest_match(table, context, longest, intervals):
    """Return the length of the longest suffix of `context` in any shard, up to `longest`.

    Sets its intervals int64[shards, 2]. The length is bisected, in strides because few matches are
    long.
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
        if find_in_some_shards(table, context[size - middle :], trial, lanes, count):
            low = middle
            for s in range(shards):
                intervals[s, 0], intervals[s, 1] = trial[s, 0], trial[s, 1]
        else:
            high = middle - 1
    return low
