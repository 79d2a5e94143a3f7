"""The proof that an array is the suffix array of its tokens, by several threads.

Each thread takes a range of the array. How many suffixes of each id stand before its range is
counted first, by all threads too; one thread alone needs no counts. Memory: 8 bytes per id of the
vocabulary and thread.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import entry

LEAST = 1 << 20  # suffixes that are worth a thread


def first_misplaced(
    tokens: Array, suffix_array: Array, bounds: Array, workers: int = 1, *, merged: bool = False
) -> int:
    """Return an index at which `suffix_array` is wrong, -1 where it is right.

    `tokens` u16 | u32 [n, at least 1] hold only ids below `ids`; `bounds` int64[ids + 1] say where
    each id's suffixes begin. `suffix_array` i32 | i64 [n] may hold anything. With `merged`, the
    suffixes that begin with the last token, a separator, may stand in any order among themselves.
    """
    size, last = len(tokens), int(tokens[-1])
    if len(suffix_array) != size:
        return 0
    begins = bounds[:-1].copy()  # where the next suffix of each id must stand
    first, free = int(begins[last]), last if merged else -1
    if merged:
        begins[last] = bounds[last + 1]
        if not np.array_equal(
            np.sort(suffix_array[first:][: begins[last] - first]), np.flatnonzero(tokens == last)
        ):
            return first
    elif int(suffix_array[first]) != size - 1:  # nothing follows it: the least of its bucket
        return first
    else:
        begins[last] += 1
    parts = min(workers, size // LEAST)
    parts = parts if parts > 2 else 1  # counting first costs 0.7 of the proof: two gain nothing
    edges = [size * part // parts for part in range(parts + 1)]
    counts = np.zeros((parts, len(begins)), np.int64)
    with ThreadPoolExecutor(parts) as pool:

        def count(part: int) -> int:
            span = edges[part], edges[part + 1]
            return int(_symbols_before(tokens, suffix_array, free, *span, counts[part]))

        def look(part: int) -> int:
            span = edges[part], edges[part + 1]
            return int(_first_misplaced(tokens, suffix_array, free, counts[part], *span))

        if parts > 1:
            outside = [wrong for wrong in pool.map(count, range(parts)) if wrong >= 0]
            if outside:
                return min(outside)
        for part in range(parts):  # counts become the sums of all before
            here = counts[part].copy()
            counts[part] = begins
            begins += here
        wrong = [index for index in pool.map(look, range(parts)) if index >= 0]
    short = np.flatnonzero(counts[-1] != bounds[1:])
    return min(wrong) if wrong else int(bounds[1:][short[0]] - 1) if len(short) else -1


@entry
def _symbols_before(
    tokens: Array, suffix_array: Array, free: int, begin: int, end: int, counts: Array
) -> int:
    """Count in counts[t], int64[ids], before how many suffixes of suffix_array[begin:end] the token
    t stands, for every t but `free`.

    Returns the first index there that holds no position in `tokens`, -1 where all hold one.
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
def _first_misplaced(
    tokens: Array, suffix_array: Array, free: int, cursors: Array, begin: int, end: int
) -> int:
    """Return the first index of [begin, end) at which `suffix_array` is seen to be wrong, else -1.

    `tokens` [n] hold only ids below len(cursors); `cursors` int64[ids] say where in its bucket the
    next suffix of each id must stand, and are moved on. `suffix_array` [n] may hold anything. Where
    those of the id `free` stand is known already.

    Taken in order, suffixes put the positions before them in order: the position before suffix i,
    whose token is t, must be the next one in t's bucket (Burkhardt and Karkkainen, 2003). Each
    index is so named once, by another one; where all agree, and each bucket is full in the end, the
    array is a permutation in the right order, however long the repeats are. No array of ranks.
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
