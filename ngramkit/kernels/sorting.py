"""Sorting few values, and binary search. numba's own sorts take longer to compile than their
callers."""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.jit import part


@part
def best_first(values, order):
    """Set `order` to the indices of `values`, the highest value first, equal ones in their order.
    Fast where values are few, or nearly in order already."""
    for place in range(len(values)):
        at = place
        while at > 0 and values[order[at - 1]] < values[place]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = place


# Binary search over sorted rows of tokens.


@part
def find_row(rows, query):
    """Return the row of sorted `rows` (u16 | u32 [n, k]) that equals `query` (i32[k]), else -1.

    A query of another length or with a negative id equals none.
    """
    count, width = rows.shape
    if len(query) != width:
        return -1
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if _below(rows, middle, query):
            low = middle + 1
        else:
            high = middle
    if low == count:
        return -1
    for i in range(width):
        if np.int64(rows[low, i]) != np.int64(query[i]):
            return -1
    return low


@part
def _below(rows, row, query):
    for i in range(rows.shape[1]):
        left, right = np.int64(rows[row, i]), np.int64(query[i])
        if left != right:
            return left < right
    return False
