"""Searching suffix arrays: from a token to its bucket, from a bucket to longer patterns.

A *shard table*, int64[shards, 7], stands for the arrays of all shards at once (see `shard_table`),
so that one compiled version serves every number of shards, token width and suffix-array width, and
a call costs the same however many there are. An *interval* [low, high) is a range of the suffix
array; at `depth` d all its suffixes agree on their first d tokens and are sorted by the next.

A shard must end with a separator, the highest of its ids, and patterns must hold none. Buckets are
cut to the suffix array, whatever a file says, so all intervals lie in it; that its values are
positions in the text is proven when an artifact is opened (`formats.checks`), not here: a look at
each of them cost 3 to 6 % of a draft. Whoever holds a table keeps the arrays behind it alive.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import entry, part
from ngramkit.kernels.pointers import load_i32, load_i64, load_u16, load_u32

TOKENS, TOKEN_BYTES, SUFFIXES, SUFFIX_BYTES, BUCKETS, VOCABULARY, SIZE = range(7)


def shard_table(shards: Sequence[tuple[Array, Array, Array]]) -> Array:
    """int64[shards, 7]: addresses and item sizes of (tokens, suffix_array, first_token) each."""
    rows = [
        (
            tokens.ctypes.data,
            tokens.itemsize,
            suffix_array.ctypes.data,
            suffix_array.itemsize,
            first_token.ctypes.data,
            len(first_token) - 2,
            min(len(tokens), len(suffix_array)),
        )
        for tokens, suffix_array, first_token in shards
    ]
    return np.array(rows, np.int64).reshape(-1, 7)


@part
def token_at(shard: Array, position: int) -> int:
    """The token at a text position of one shard (a row of the table)."""
    if shard[TOKEN_BYTES] == 2:
        return load_u16(shard[TOKENS], position)
    return load_u32(shard[TOKENS], position)


@part
def position_at(shard: Array, index: int) -> int:
    """suffix_array[index]"""
    if shard[SUFFIX_BYTES] == 4:
        return load_i32(shard[SUFFIXES], index)
    return load_i64(shard[SUFFIXES], index)


@part
def bucket(shard: Array, token: int) -> tuple[int, int]:
    """The interval of all suffixes that begin with `token`; empty outside the vocabulary."""
    if token < 0 or token >= shard[VOCABULARY]:
        return 0, 0
    low, high = load_i64(shard[BUCKETS], token), load_i64(shard[BUCKETS], token + 1)
    high = min(high, shard[SIZE])
    return (low, high) if 0 <= low < high else (0, 0)


@part
def lower_bound(shard: Array, low: int, high: int, depth: int, token: int) -> int:
    """The first index of [low, high) whose token at `depth` is `token` or above; else high."""
    while low < high:
        middle = (low + high) >> 1
        if token_at(shard, position_at(shard, middle) + depth) < token:
            low = middle + 1
        else:
            high = middle
    return low


@part
def narrow(shard: Array, low: int, high: int, depth: int, token: int) -> tuple[int, int]:
    """The part of an interval at `depth` whose next token is `token`: an interval one deeper.

    Its end is near its begin: it is found by galloping.
    """
    low = lower_bound(shard, low, high, depth, token)
    begin, step = low, 1
    while low + step <= high and (
        token_at(shard, position_at(shard, low + step - 1) + depth) <= token
    ):
        low += step
        step <<= 1
    return begin, lower_bound(shard, low, min(high, low + step - 1), depth, token + 1)


@part
def compare(shard: Array, position: int, pattern: Array, known: int) -> int:
    """Below, at or above zero as the suffix at `position` is below, begins with or is above
    `pattern`, int32[m], of which the first `known` tokens are known to agree."""
    for i in range(known, len(pattern)):
        difference: int = token_at(shard, position + i) - pattern[i]
        if difference != 0:
            return difference
    return 0


@part
def find(shard: Array, pattern: Array) -> tuple[int, int]:
    """The interval of all suffixes that begin with `pattern`, int32[m], m >= 1."""
    low, high = bucket(shard, pattern[0])
    if len(pattern) == 1:
        return low, high
    above = high
    while low < high:
        middle = (low + high) >> 1
        order = compare(shard, position_at(shard, middle), pattern, 1)
        if order < 0:
            low = middle + 1
        else:
            high = middle
            if order > 0:
                above = middle
    return low, end_of_match(shard, pattern, low, above)


look_up = entry(find.py_func)  # for Python


@part
def end_of_match(shard: Array, pattern: Array, low: int, above: int) -> int:
    """Where the suffixes from `low` on stop beginning with `pattern`; none does from `above` on."""
    step = 1
    begin = low
    while begin < above and compare(shard, position_at(shard, begin), pattern, 1) == 0:
        low = begin + 1
        begin += step
        step <<= 1
    high = min(begin, above)
    while low < high:
        middle = (low + high) >> 1
        if compare(shard, position_at(shard, middle), pattern, 1) == 0:
            low = middle + 1
        else:
            high = middle
    return low
