"""Drafts of frequent contexts, kept: what follows the same match again is the same tree.

To count exactly what followed a word that stands a hundred thousand times takes milliseconds where
many shards hold it, and text comes back to such words. A row holds one draft and is overwritten by
the next; threads may share the rows, since a row is believed only if its checksum fits.
"""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import allocating_part, part
from ngramkit.kernels.suffix.continuations import COUNT, DEPTH, PARENT, TOKEN

ROWS = 1 << 12
LENGTH = 16  # tokens of a match at most
NODES = 128  # of a draft at most
# Columns of int64[ROWS, WORDS]: then come the match, and of each node two words.
SUM, SIZE, TOTAL, BUDGET, MATCHED, PATTERN = range(6)
FIRST = PATTERN + LENGTH
WORDS = FIRST + 2 * NODES
DEPTH_BITS = 6  # beside a node's parent


def new_known(rows: int = ROWS) -> Array:
    """Room for drafts; pages are taken as they are touched, 2.3 KB a row at most."""
    return np.zeros((rows, WORDS), np.int64)


@part
def _mixed(value: int, word: int) -> int:
    """A running hash, one word on."""
    value = (value ^ word) * 0x2545F4914F6CDD1D
    return value ^ (value >> 29)


@part
def _slot(known: Array, pattern: Array, budget: int) -> int:
    key = _mixed(budget, len(pattern))
    for i in range(len(pattern)):
        key = _mixed(key, pattern[i])
    return (key & 0x7FFFFFFFFFFFFFFF) % len(known)


@part
def _checksum(row: Array, size: int) -> int:
    """Of everything in use; never 0, which an empty row has."""
    value = 1
    for i in range(SUM + 1, FIRST + 2 * size):
        value = _mixed(value, row[i])
    return value | 1


@allocating_part
def recall(known: Array, pattern: Array, budget: int) -> tuple[Array, int]:
    """What `remember` was given for this match, int32[m], and budget; no nodes where it is lost."""
    nothing = np.empty((0, 4), np.int64)
    if len(pattern) > LENGTH or budget > NODES:
        return nothing, 0
    row = known[_slot(known, pattern, budget)].copy()  # another thread may write it
    size = row[SIZE]
    if row[BUDGET] != budget or row[MATCHED] != len(pattern) or not 0 < size <= NODES:
        return nothing, 0
    for i in range(len(pattern)):
        if row[PATTERN + i] != pattern[i]:
            return nothing, 0
    if row[SUM] != _checksum(row, size):
        return nothing, 0
    found = np.empty((size, 4), np.int64)
    for i in range(size):
        word = row[FIRST + 2 * i]
        found[i, TOKEN], below = word >> 32, word & 0xFFFFFFFF
        found[i, PARENT], found[i, DEPTH] = (below >> DEPTH_BITS) - 1, below & (1 << DEPTH_BITS) - 1
        found[i, COUNT] = row[FIRST + 2 * i + 1]
    return found, row[TOTAL]


@part
def remember(known: Array, pattern: Array, budget: int, found: Array, total: int) -> None:
    """Keeps `found` and `total` of `continuations.top_prefixes` for this match."""
    if len(pattern) > LENGTH or budget > NODES or not 0 < len(found) <= NODES:
        return
    row = known[_slot(known, pattern, budget)]
    row[SIZE], row[TOTAL], row[BUDGET], row[MATCHED] = len(found), total, budget, len(pattern)
    for i in range(LENGTH):
        row[PATTERN + i] = pattern[i] if i < len(pattern) else 0
    for i in range(len(found)):
        below = (found[i, PARENT] + 1) << DEPTH_BITS | found[i, DEPTH]
        row[FIRST + 2 * i] = found[i, TOKEN] << 32 | below
        row[FIRST + 2 * i + 1] = found[i, COUNT]
    row[SUM] = _checksum(row, len(found))
