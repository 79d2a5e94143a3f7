"""Merge two suffix arrays, without sorting anything again.

The suffixes of the earlier tokens keep their order, and those of the later ones theirs; so what is
looked for is how many of the earlier ones stand before each later one. They are found from the last
to the first: the suffix `t, x` of the later tokens stands in the bucket of t before those whose
rest stands behind x (backward search, Ferragina and Manzini, 2000). That takes as long where texts
repeat each other for thousands of tokens as where they share nothing.

Every text ends with a separator, and behind one nothing is compared: the order of suffixes that
agree up to a separator is the earlier ones first. No search sees the difference.
"""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import allocating_entry, entry, part

NEAR = 8  # neighbours that are asked for the token before them, before its bucket is searched


def merge_suffix_arrays(
    tokens: Array, suffix_array: Array, added: Array, added_suffix_array: Array, begin: int = 0
) -> Array:
    """Return the suffix array i32 of tokens[begin:] and `added`, one behind the other.

    Both texts, u16 | u32 [n] and [m], end with the separator, the highest id of either, and are
    shorter together than 2**31; the suffix arrays are i32. Memory: 4 bytes per added token beside
    what is returned.

    [1, 3] and [2, 3, 1, 3] with suffix arrays [0, 1] and [2, 0, 3, 1] -> [0, 4, 2, 1, 5, 3]
    """
    size, merged_size = len(tokens), len(tokens) - begin + len(added)
    merged = np.empty(max(size, merged_size), np.int32)
    before = np.empty(len(added), np.int32)
    _count_earlier(tokens, suffix_array, added, merged, before)
    merged = merged[:merged_size]
    _interleave(suffix_array, added_suffix_array, before, begin, merged)
    return merged


@entry
def _count_earlier(
    tokens: Array, suffix_array: Array, added: Array, ranks: Array, before: Array
) -> None:
    """Set `before`, i32[len(added)], to how many suffixes of `tokens` stand before each of `added`.
    `ranks`, i32[len(tokens)] at least, is scratch."""
    size = len(tokens)
    for i in range(size):
        ranks[suffix_array[i]] = i
    separator = tokens[size - 1]
    rank = size
    for i in range(len(added) - 1, -1, -1):
        token = added[i]
        rank = size if token == separator else _step(tokens, suffix_array, ranks, token, rank)
        before[i] = rank


@part
def _step(tokens: Array, suffix_array: Array, ranks: Array, token: int, rank: int) -> int:
    """Return how many suffixes stand before `token` and what stands behind `rank` of them.

    A suffix near that place that follows the token tells it at once; in text that repeats itself
    there mostly is one.
    """
    size = len(tokens)
    for i in range(rank, min(rank + NEAR, size)):
        position = suffix_array[i]
        if position > 0 and tokens[position - 1] == token:
            return int(ranks[position - 1])
    for i in range(rank - 1, max(rank - 1 - NEAR, -1), -1):
        position = suffix_array[i]
        if position > 0 and tokens[position - 1] == token:
            return int(ranks[position - 1]) + 1
    low, high = 0, size
    while low < high:
        middle = (low + high) >> 1
        position = suffix_array[middle]
        first = tokens[position]
        if first < token or (first == token and ranks[position + 1] < rank):
            low = middle + 1
        else:
            high = middle
    return low


@entry
def _interleave(
    suffix_array: Array, added: Array, before: Array, begin: int, merged: Array
) -> None:
    """Fill `merged`; positions before `begin` are left out, all others are counted from there."""
    size, at, i = len(suffix_array), 0, 0
    for k in range(len(added) + 1):
        end = before[added[k]] if k < len(added) else size
        while i < end:
            position = suffix_array[i]
            if position >= begin:
                merged[at] = position - begin
                at += 1
            i += 1
        if k < len(added):
            merged[at] = added[k] + size - begin
            at += 1


@allocating_entry
def cut_suffix_array(suffix_array: Array, begin: int, end: int) -> Array:
    """Return the suffix array i32 of tokens[begin:end], where a separator ends that. That of
    tokens[0:] is given; memory beside what is returned: the same for what is cut off.

    [0, 3, 2, 1] from 2 to 4 -> [1, 0]
    """
    kept = np.empty(len(suffix_array) + 1, np.int32)
    at = 0
    for i in range(len(suffix_array)):
        position = suffix_array[i] - begin
        kept[at] = position  # written always, kept by the count: no branch to mispredict
        at += 0 <= position < end - begin
    return kept[:at].copy()
