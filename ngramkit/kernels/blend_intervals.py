"""Suffix-array intervals, narrowed one token at a time.

An interval [low, high) of `suffix_array` holds the positions where some k tokens occur. All of
them share those k tokens, so they are sorted by the token that follows: token k.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def narrow(tokens, suffixes, low, high, k, token):  # type: ignore[no-untyped-def]
    """The part of [low, high) whose suffixes have `token` at offset `k`; empty: (x, x)."""
    begin, end = low, high
    while begin < end:
        middle = (begin + end) >> 1
        if np.int64(tokens[suffixes[middle] + k]) < token:
            begin = middle + 1
        else:
            end = middle
    first = begin
    # The run is short beside the interval more often than not: gallop to its end.
    stride = 1
    while begin + stride < high and np.int64(tokens[suffixes[begin + stride] + k]) <= token:
        begin += stride
        stride <<= 1
    end = min(high, begin + stride)
    while begin < end:
        middle = (begin + end) >> 1
        if np.int64(tokens[suffixes[middle] + k]) <= token:
            begin = middle + 1
        else:
            end = middle
    return first, begin


@njit(cache=True, nogil=True)
def bucket(first_token, token):  # type: ignore[no-untyped-def]
    """The interval of all suffixes that begin with `token`; empty for an id outside the table."""
    if token < 0 or token + 1 >= len(first_token):
        return np.int64(0), np.int64(0)
    return np.int64(first_token[token]), np.int64(first_token[token + 1])


@njit(cache=True, nogil=True)
def occurs(tokens, suffixes, first_token, phrase):  # type: ignore[no-untyped-def]
    """Whether `phrase` (i32[n], n >= 1) stands somewhere in `tokens`."""
    low, high = bucket(first_token, np.int64(phrase[0]))
    for k in range(1, len(phrase)):
        if low >= high:
            return False
        low, high = narrow(tokens, suffixes, low, high, k, np.int64(phrase[k]))
    return low < high
