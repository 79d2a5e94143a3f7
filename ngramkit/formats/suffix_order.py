"""The proof that a suffix array is one, by as many threads as there are; see kernels.suffix.passes.

Each thread takes a range of the array. What it must begin with, how many suffixes of each id stand
before its range, is counted first, by all threads too; one thread alone needs no counts. Memory: 8
bytes per id of the vocabulary and thread.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ngramkit.formats.container import Array

LEAST = 1 << 20  # suffixes that are worth a thread


def first_misplaced(tokens: Array, suffix_array: Array, bounds: Array, workers: int = 1) -> int:
    """An index at which `suffix_array` is wrong, the first that is seen; -1 where it is right.

    `tokens` u16 | u32 [n, at least 1] hold only ids below `ids`; `bounds` int64[ids + 1] say where
    each id's suffixes begin. `suffix_array` i32 | i64 [n] may hold anything.
    """
    from ngramkit.kernels.suffix import passes

    size, last = len(tokens), int(tokens[-1])
    if len(suffix_array) != size:
        return 0
    begins = bounds[:-1].copy()  # where the next suffix of each id must stand
    if int(suffix_array[begins[last]]) != size - 1:  # nothing follows it: the least of its bucket
        return int(begins[last])
    begins[last] += 1
    parts = min(workers, size // LEAST)
    parts = parts if parts > 2 else 1  # counting first costs 0.7 of the proof: two gain nothing
    edges = [size * part // parts for part in range(parts + 1)]
    counts = np.zeros((parts, len(begins)), np.int64)
    with ThreadPoolExecutor(parts) as pool:

        def count(part: int) -> int:
            span = edges[part], edges[part + 1]
            return int(passes.symbols_before(tokens, suffix_array, *span, counts[part]))

        def look(part: int) -> int:
            span = edges[part], edges[part + 1]
            return int(passes.first_misplaced(tokens, suffix_array, counts[part], *span))

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
