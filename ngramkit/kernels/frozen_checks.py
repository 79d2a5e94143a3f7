"""The check that the rows of a frozen table are as its format says: in order, distinct, counted.

The arrays may hold anything; only the offsets must rise and end where the followers do. Nothing
here knows about files.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ngramkit.kernels.arrays import Array

# What is wrong with a leader; WHOLE where nothing is.
WHOLE, FOREIGN, UNSORTED, NO_COUNT, OUTNUMBERED, UNORDERED, TWICE = range(7)


def first_bad_leader(
    begin: int,
    end: int,
    vocabulary: int,
    leaders: Array,
    leader_counts: Array,
    offsets: Array,
    followers: Array,
    follower_counts: Array,
) -> tuple[int, int]:
    """Return (row, fault) of the first bad leader of [begin, end), (-1, WHOLE) if there is none.

    leaders [L, LL] ids, leader_counts [L], offsets int64[L + 1], followers [F, FL] ids,
    follower_counts [F]; counts at most 2^53, so that float64 holds them.
    """
    if begin == end:
        return -1, WHOLE
    span = slice(offsets[begin], offsets[end])
    starts = offsets[begin:end] - offsets[begin]
    owners = np.repeat(np.arange(end - begin), np.diff(offsets[begin : end + 1]))
    own, ids, counts = leaders[begin:end], followers[span], follower_counts[span]
    sums = np.add.reduceat(counts, starts, dtype=np.float64)
    above = _rises(leaders[max(begin - 1, 0) : end])
    same_owner = owners[1:] == owners[:-1]
    ordered = (counts[1:] < counts[:-1]) | ((counts[1:] == counts[:-1]) & _rises(ids))
    order = np.lexsort((*ids.T[::-1], owners))  # each owner's followers stay together
    equal = np.all(ids[order[1:]] == ids[order[:-1]], axis=1)

    def any_of(bad: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return for each leader whether a follower of it is bad."""
        any_bad: npt.NDArray[np.bool_] = np.logical_or.reduceat(bad, starts)
        return any_bad

    faults = {
        FOREIGN: np.any(own >= vocabulary, axis=1) | any_of(np.any(ids >= vocabulary, axis=1)),
        UNSORTED: ~(above if begin else np.append(True, above)),
        NO_COUNT: any_of(counts == 0),
        OUTNUMBERED: sums > leader_counts[begin:end],
        UNORDERED: any_of(np.append(False, same_owner & ~ordered)),
        TWICE: any_of(np.append(False, same_owner & equal)),
    }
    rows = {fault: int(bad.argmax()) for fault, bad in faults.items() if bad.any()}
    if not rows:
        return -1, WHOLE
    fault = min(rows, key=lambda fault: (rows[fault], fault))
    return begin + rows[fault], fault


def _rises(rows: Array) -> npt.NDArray[np.bool_]:
    """Return whether each row but the first is lexicographically above the one before it,
    bool[n - 1]."""
    differs = rows[1:] != rows[:-1]
    column = differs.argmax(axis=1)
    at = np.arange(len(column))
    rises: npt.NDArray[np.bool_] = rows[1:][at, column] > rows[:-1][at, column]
    return rises
