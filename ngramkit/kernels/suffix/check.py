"""Verify that an array is the suffix array of its tokens, with several threads.

Memory: 8 bytes per id of the vocabulary and thread.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ngramkit.kernels.arrays import Array, read_only
from ngramkit.kernels.jit import entry

MIN_SUFFIXES_PER_THREAD = 1 << 20  # suffixes per thread, at least


def first_wrong_position(
    tokens: Array, suffix_array: Array, bounds: Array, workers: int = 1, *, merged: bool = False
) -> int:
    """Return an index at which `suffix_array` is wrong, or -1 if it is right.

    `tokens` u16 | u32 [n >= 1] hold ids below `ids`, `bounds` int64[ids + 1] are the bucket bounds,
    `suffix_array` i32 | i64 [n] may hold anything. With `merged`, suffixes that begin with the last
    token, a separator, may be in any order.
    """
    tokens, suffix_array = read_only(tokens), read_only(suffix_array)
    size, last = len(tokens), int(tokens[-1])
    if len(suffix_array) != size:
        return 0
    begins = bounds[:-1].copy()  # the index of each id's next suffix
    first, free = int(begins[last]), last if merged else -1
    if merged:
        begins[last] = bounds[last + 1]
        if not np.array_equal(
            np.sort(suffix_array[first:][: begins[last] - first]), np.flatnonzero(tokens == last)
        ):
            return first
    elif int(suffix_array[first]) != size - 1:  # the last suffix is the least of its bucket
        return first
    else:
        begins[last] += 1
    parts = min(workers, size // MIN_SUFFIXES_PER_THREAD)
    parts = parts if parts > 2 else 1  # counting takes 0.7 of the check: two gain nothing
    edges = [size * part // parts for part in range(parts + 1)]
    counts = np.zeros((parts, len(begins)), np.int64)
    with ThreadPoolExecutor(parts) as pool:

        def count(part: int) -> int:
            span = edges[part], edges[part + 1]
            return int(_count_preceding_tokens(tokens, suffix_array, free, *span, counts[part]))

        def look(part: int) -> int:
            span = edges[part], edges[part + 1]
            return int(_first_wrong_in_part(tokens, suffix_array, free, counts[part], *span))

        if parts > 1:
            outside = [wrong for wrong in pool.map(count, range(parts)) if wrong >= 0]
            if outside:
                return min(outside)
        for part in range(parts):  # counts become sums over earlier parts
            here = counts[part].copy()
            counts[part] = begins
            begins += here
        wrong = [index for index in pool.map(look, range(parts)) if index >= 0]
    short = np.flatnonzero(counts[-1] != bounds[1:])
    return min(wrong) if wrong else int(bounds[1:][short[0]] - 1) if len(short) else -1


@entry
def _count_preceding_tokens(
    tokens: Array, suffix_array: Array, free: int, begin: int, end: int, counts: Array
) -> int:
    """Count the tokens before suffix_array[begin:end], except `free`, in counts int64[ids].

    Returns the first index that holds no position in `tokens`, or -1.
    """
    size = len(tokens)
    for i in range(begin, end):
        position = np.int64(suffix_array[i])
        if position < 0 or position >= size:
            return i
        if position and tokens[position - 1] != free:
            counts[tokens[position - 1]] += 1
    return -1


@entry
def _first_wrong_in_part(
    tokens: Array, suffix_array: Array, free: int, cursors: Array, begin: int, end: int
) -> int:
    """Return the first index in [begin, end) that shows `suffix_array` to be wrong, or -1.

    `cursors` int64[ids], the index of each bucket's next suffix, are advanced. In sorted order, the
    position before suffix i, whose token is t, must be the next in t's bucket (Burkhardt and
    Karkkainen, 2003). If all agree and all buckets end up full, the array is right.
    """
    size = len(tokens)
    for i in range(begin, end):
        position = np.int64(suffix_array[i])
        if position < 0 or position >= size:
            return i
        if position == 0 or tokens[position - 1] == free:
            continue
        token = tokens[position - 1]
        slot = cursors[token]
        if slot >= size or np.int64(suffix_array[slot]) != position - 1:
            return i
        cursors[token] = slot + 1
    return -1
