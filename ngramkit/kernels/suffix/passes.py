"""The linear passes around a suffix array: before it is sorted, after, and the proof that it is.

The sorting itself is pydivsufsort's. Nothing here knows about documents or files.
"""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.compile import allocating_entry, entry


@entry
def keep_aligned(byte_positions: Array, positions: Array, width: int) -> int:
    """Byte positions that are multiples of `width`, divided by it, in their order.

    `positions` may begin at the same address as `byte_positions`, with items as wide or narrower:
    what is written never passes what is read. Returns how many there are, at most len(positions).

    [4, 1, 0, 3, 2] with width 2 -> positions [2, 0, 1], returns 3
    """
    kept = i = 0
    while kept < len(positions) and i < len(byte_positions):
        position = byte_positions[i]
        quotient = position // width
        # Written always, kept by the count: a branch here would be mispredicted every other time.
        positions[kept] = quotient
        kept += quotient * width == position
        i += 1
    return kept


@allocating_entry
def token_counts(tokens: Array, size: int) -> Array:
    """int64[size]: how often each id below `size` occurs. Without bincount's int64 copy."""
    counts = np.zeros(size, np.int64)
    for i in range(len(tokens)):
        if tokens[i] < size:
            counts[tokens[i]] += 1
    return counts


@allocating_entry
def first_misplaced(tokens: Array, suffix_array: Array, cursors: Array) -> int:
    """The first index at which `suffix_array` is seen to be wrong, -1 where it is right.

    `tokens` [n] hold only ids below len(cursors) - 1; `cursors` int64[ids + 1] say where each id's
    bucket begins, and are used up. `suffix_array` may hold anything.

    Taken in order, suffixes put the positions before them in order: the position before suffix i,
    whose token is t, must be the next one in t's bucket (Burkhardt and Karkkainen, 2003). Each
    index is so named once, by another one; where all agree the array is a permutation in the right
    order, however long the repeats are. One pass, and no array of ranks.
    """
    size = len(tokens)
    if size == 0 or len(suffix_array) != size:
        return 0
    ends = cursors[1:].copy()
    last = cursors[tokens[size - 1]]  # nothing follows it: the least of its bucket
    if suffix_array[last] != size - 1:
        return int(last)
    cursors[tokens[size - 1]] += 1
    for i in range(size):
        position = suffix_array[i]
        if position < 0 or position >= size:
            return i
        if position == 0:
            continue
        token = tokens[position - 1]
        slot = cursors[token]
        if slot >= size or suffix_array[slot] != position - 1:
            return i
        cursors[token] = slot + 1
    for token in range(len(ends)):
        if cursors[token] != ends[token]:
            return int(ends[token] - 1)
    return -1
