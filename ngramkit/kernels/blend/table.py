"""The table that successors of one context are counted in, by column.

The first columns are the corpora's levels, then come the live context's: level i counts the
successors of the last LEVELS[i] tokens.

`recent` is everywhere i32[DEPTH]: the last tokens, the newest first, NO_TOKEN before the first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import part

LEVELS = np.array([1, 2, 3, 4, 6, 8], np.int64)
N_LEVELS = 6
COLUMNS = 2 * N_LEVELS
PAIR = 1  # the corpora's column of the last two tokens
DEPTH = 8  # the longest order told apart
# The highest level that a match of m tokens reaches: LEVELS[REACHED[m]] <= m.
REACHED = np.array([-1, 0, 1, 2, 3, 3, 4, 4, 5], np.int64)
CANDIDATES = 512
BUFFER = 1024  # occurrences read or sampled at a time, at most
NEVER = -1


SCAN, SAMPLE, HOPS, EOS = range(4)  # columns of Sources.limits


class Candidates(NamedTuple):
    """Successors of one context, with their counts by column."""

    tokens: Array  # int32[CANDIDATES]
    counts: Array  # float32[CANDIDATES, COLUMNS]
    newest: Array  # int32[CANDIDATES], where it last followed the last token live, or NEVER
    source: Array  # uint8[CANDIDATES], drafters.base.Source: who held it first
    known: Array  # uint8[CANDIDATES], see `erase`
    slot: Array  # int32[V + 1], a token's row ...
    stamp: Array  # int32[V + 1], ... if this is the current stamp
    totals: Array  # float32[COLUMNS], of all successors, those without a row too
    distinct: Array  # float32[COLUMNS]
    state: Array  # int64[3], rows in use, current stamp, source of new rows
    positions: Array  # int64[BUFFER], scratch
    successors: Array  # int64[BUFFER], scratch


def new_candidates(vocabulary: int) -> Candidates:
    return Candidates(
        tokens=np.empty(CANDIDATES, np.int32),
        counts=np.empty((CANDIDATES, COLUMNS), np.float32),
        newest=np.empty(CANDIDATES, np.int32),
        source=np.empty(CANDIDATES, np.uint8),
        known=np.empty(CANDIDATES, np.uint8),
        slot=np.zeros(vocabulary + 1, np.int32),
        stamp=np.zeros(vocabulary + 1, np.int32),
        totals=np.zeros(COLUMNS, np.float32),
        distinct=np.zeros(COLUMNS, np.float32),
        state=np.zeros(3, np.int64),
        positions=np.empty(BUFFER, np.int64),
        successors=np.empty(BUFFER, np.int64),
    )


@part
def clear(into):
    """Begins a new table."""
    into.state[0] = 0
    into.state[1] += 1
    for column in range(COLUMNS):
        into.totals[column] = 0
        into.distinct[column] = 0


@part
def erase(into):
    """The corpora's columns are empty again, for the next of them; the candidates stay, and whether
    one had counts in the column PAIR is `known`."""
    for column in range(N_LEVELS):
        into.totals[column] = 0
        into.distinct[column] = 0
    for row in range(into.state[0]):
        into.known[row] |= into.counts[row, PAIR] > 0
        for column in range(N_LEVELS):
            into.counts[row, column] = 0


@part
def row_of(into, token):
    """The candidate's row, a new one where it has none yet; -1 where the table is full, or where
    it is no id: whatever a file says, nothing is written outside."""
    if token < 0 or token >= len(into.stamp):
        return np.int64(-1)
    if into.stamp[token] == into.state[1]:
        return np.int64(into.slot[token])
    row = into.state[0]
    if row == CANDIDATES:
        return np.int64(-1)
    into.state[0] = row + 1
    into.stamp[token] = into.state[1]
    into.slot[token] = row
    into.tokens[row] = token
    into.newest[row] = NEVER
    into.source[row] = into.state[2]
    into.known[row] = 0
    for column in range(COLUMNS):
        into.counts[row, column] = 0
    return row


@part
def count(into, token, first, last):
    """One more occurrence of `token`, in the columns first..last."""
    row = row_of(into, token)
    for column in range(first, last + 1):
        into.totals[column] += 1
        if row >= 0:
            if into.counts[row, column] == 0:
                into.distinct[column] += 1
            into.counts[row, column] += 1
    return row


@part
def hashed(recent, order):
    # Far from any token, or an order that equals its newest token would cancel it.
    key = np.uint64(order) * np.uint64(0xD6E8FEB86659FD93)
    for i in range(order):
        key = (key ^ np.uint64(recent[i])) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    return key | np.uint64(1)


@part
def slot_of(key, rows):
    """A key's row, of as many as a power of two. A key is odd, so its last bit tells nothing."""
    return np.int64(key >> np.uint64(1)) & (rows - 1)
