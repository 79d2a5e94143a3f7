"""Look up leaders and followers of a frozen table by the addresses of its arrays.

So one compiled version serves all widths. The caller keeps the arrays alive.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import part
from ngramkit.kernels.packed_arguments import load_i64, unsigned_at

# Columns of `where`: five addresses, three item sizes, two lengths of n-grams, two of arrays.
LEADERS, LEADER_COUNTS, OFFSETS, FOLLOWERS, FOLLOWER_COUNTS = range(5)
ID_BYTES, LEADER_COUNT_BYTES, FOLLOWER_COUNT_BYTES = range(5, 8)
LEADER_LEN, FOLLOWER_LEN, SIZE, FOLLOWERS_SIZE = range(8, 12)


def locate_arrays(table: Mapping[str, Array] | None) -> Array:
    """Return `where` int64[12] of the arrays in formats.frozen_table; SIZE is 0 without a table."""
    if table is None:
        return np.zeros(FOLLOWERS_SIZE + 1, np.int64)
    leaders, followers = table["leaders"], table["followers"]
    arrays = leaders, table["leader_counts"], table["follower_offsets"], followers
    addresses = [array.ctypes.data for array in (*arrays, table["follower_counts"])]
    sizes = [table[name].itemsize for name in ("leaders", "leader_counts", "follower_counts")]
    lengths = [leaders.shape[1], followers.shape[1], len(leaders), len(followers)]
    return np.array([*addresses, *sizes, *lengths], np.int64)


@part
def find_leader(where, recent, order):
    """Return the row of the leader that the last `order` tokens begin with, or -1.

    `recent` has the last tokens, newest first.
    """
    low, high = np.int64(0), where[SIZE]
    while low < high:
        middle = (low + high) >> 1
        if _compare_leader(where, middle, recent, order) < 0:
            low = middle + 1
        else:
            high = middle
    found = low < where[SIZE] and _compare_leader(where, low, recent, order) == 0
    return low if found else np.int64(-1)


@part
def _compare_leader(where, row, recent, order):
    for i in range(where[LEADER_LEN]):
        token = unsigned_at(where[LEADERS], where[ID_BYTES], row * where[LEADER_LEN] + i)
        difference = token - recent[order - 1 - i]
        if difference != 0:
            return difference
    return np.int64(0)


@part
def leader_count(where, row):
    return unsigned_at(where[LEADER_COUNTS], where[LEADER_COUNT_BYTES], row)


@part
def follower_bounds(where, row):
    """Return the first and the end of a leader's followers, inside the array of a damaged file."""
    begin = max(load_i64(where[OFFSETS], row), 0)
    return begin, min(load_i64(where[OFFSETS], row + 1), where[FOLLOWERS_SIZE])


@part
def follower_token(where, follower, i):
    return unsigned_at(where[FOLLOWERS], where[ID_BYTES], follower * where[FOLLOWER_LEN] + i)


@part
def follower_count(where, follower):
    return unsigned_at(where[FOLLOWER_COUNTS], where[FOLLOWER_COUNT_BYTES], follower)
