"""The linear passes around a suffix array: before it is sorted, after, and the proof that it is.

The sorting itself is pydivsufsort's. Nothing here knows about documents or files.
"""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import allocating_entry, entry


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


@entry
def symbols_before(tokens: Array, suffix_array: Array, begin: int, end: int, counts: Array) -> int:
    """Adds to counts[t] (int64[ids]) the suffixes of suffix_array[begin:end] that t stands before.

    Returns the first index there that is no position in `tokens`, -1 where all are.
    """
    size = len(tokens)
    for i in range(begin, end):
        position = np.int64(suffix_array[i])
        if position < 0 or position >= size:
            return i
        if position:
            counts[tokens[position - 1]] += 1
    return -1


@entry
def first_misplaced(
    tokens: Array, suffix_array: Array, cursors: Array, begin: int, end: int
) -> int:
    """The first index of [begin, end) at which `suffix_array` is seen to be wrong, else -1.

    `tokens` [n] hold only ids below len(cursors); `cursors` int64[ids] say where in its bucket the
    next suffix of each id must stand, and are moved on. `suffix_array` [n] may hold anything.

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
        if position == 0:
            continue
        token = tokens[position - 1]
        slot = cursors[token]
        if slot >= size or np.int64(suffix_array[slot]) != position - 1:
            return i
        cursors[token] = slot + 1
    return -1
