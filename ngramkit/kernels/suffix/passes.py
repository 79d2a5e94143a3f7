"""The linear passes around a suffix array: before it is sorted, after, and the proof that it is.

The sorting itself is pydivsufsort's. Nothing here knows about documents or files.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ngramkit.kernels.arrays import Array


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def token_counts(tokens: Array, size: int) -> Array:
    """int64[size]: how often each id below `size` occurs. Without bincount's int64 copy."""
    counts = np.zeros(size, np.int64)
    for i in range(len(tokens)):
        counts[tokens[i]] += 1
    return counts


@njit(cache=True, nogil=True)
def ranks(suffix_array: Array) -> Array:
    """The inverse: ranks[suffix_array[i]] = i. Empty where `suffix_array` is no permutation."""
    size = len(suffix_array)
    order = np.full(size, -1, suffix_array.dtype)
    for i in range(size):
        position = suffix_array[i]
        if position < 0 or position >= size or order[position] >= 0:
            return order[:0]
        order[position] = i
    return order


@njit(cache=True, nogil=True)
def first_disorder(tokens: Array, suffix_array: Array, order: Array) -> int:
    """The first index whose suffix is not above its neighbour's, -1 where all are.

    Suffixes compare by their first tokens and then by the ranks of their tails, so one linear pass
    proves the whole order, however long the repeats are.
    """
    for i in range(1, len(suffix_array)):
        low, high = suffix_array[i - 1], suffix_array[i]
        if tokens[low] < tokens[high]:
            continue
        low_tail = order[low + 1] if low + 1 < len(order) else -1
        high_tail = order[high + 1] if high + 1 < len(order) else -1
        if tokens[low] > tokens[high] or low_tail >= high_tail:
            return i
    return -1
