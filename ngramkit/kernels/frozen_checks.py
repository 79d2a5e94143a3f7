"""Check that the rows of a frozen table are in order, distinct and counted.

The offsets must rise and end where the followers do.
"""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import allocating_entry, part

# Faults of a leader; WHOLE if there is none.
WHOLE, FOREIGN, UNSORTED, NO_COUNT, OUTNUMBERED, UNORDERED, TWICE = range(7)


@allocating_entry
def first_bad_leader(
    begin: int,
    end: int,
    vocabulary: int,
    leaders: Array,
    leader_counts: Array,
    offsets: Array,
    followers: Array,
    follower_counts: Array,
    factor: int,
) -> tuple[int, int]:
    """Return (row, fault) of the first bad leader in [begin, end), or (-1, WHOLE).

    leaders [L, LL], leader_counts [L], offsets int64[L + 1], followers [F, FL], follower_counts
    [F]; counts below 2^63. `factor`, odd and random, keeps crafted tables from being slow to check.
    """
    most = 1
    for row in range(begin, end):
        most = max(most, offsets[row + 1] - offsets[row])
    room = 4
    while room < 2 * most:
        room *= 2
    places = np.full(room, -1, np.int64)  # rows of `followers`; free if before the leader's own
    for row in range(begin, end):
        bad = _check_leader(row, vocabulary, leaders)
        if bad == WHOLE:
            first, last = offsets[row], offsets[row + 1]
            counted = int(leader_counts[row])
            bad = _check_counts(first, last, counted, follower_counts)
        if bad == WHOLE:
            bad = _check_followers(
                first, last, vocabulary, followers, follower_counts, places, factor
            )
        if bad != WHOLE:
            return row, bad
    return -1, WHOLE


@part
def _check_leader(row, vocabulary, leaders):
    for column in range(leaders.shape[1]):
        if leaders[row, column] >= vocabulary:
            return FOREIGN
    if row and not _row_above(leaders, row, row - 1):
        return UNSORTED
    return WHOLE


@part
def _check_counts(first, last, counted, follower_counts):
    left = counted
    for i in range(first, last):
        count = int(follower_counts[i])
        if count <= 0:
            return NO_COUNT
        if count > left:
            return OUTNUMBERED
        left -= count
    return WHOLE


@part
def _check_followers(first, last, vocabulary, followers, follower_counts, places, factor):
    mask = len(places) - 1
    for i in range(first, last):
        mixed = np.uint64(0)
        for column in range(followers.shape[1]):
            token = followers[i, column]
            if token >= vocabulary:
                return FOREIGN
            mixed = (mixed + np.uint64(token) + np.uint64(1)) * np.uint64(factor)
            mixed ^= mixed >> np.uint64(29)
        if i > first:
            rises = follower_counts[i] > follower_counts[i - 1]
            if rises or (
                follower_counts[i] == follower_counts[i - 1] and not _row_above(followers, i, i - 1)
            ):
                return UNORDERED
        place = np.int64(mixed & np.uint64(mask))
        while places[place] >= first:
            if _same_row(followers, i, places[place]):
                return TWICE
            place = (place + 1) & mask
        places[place] = i
    return WHOLE


@part
def _row_above(rows, row, other):
    for column in range(rows.shape[1]):
        if rows[row, column] != rows[other, column]:
            return rows[row, column] > rows[other, column]
    return False


@part
def _same_row(rows, row, other):
    for column in range(rows.shape[1]):  # noqa: SIM110 -- numba does not compile all()
        if rows[row, column] != rows[other, column]:
            return False
    return True
