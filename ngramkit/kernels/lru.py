"""Least-recently-used sets over flat arrays: O(1) find, insert, refresh and evict.

A `Pool` holds entries (a row of tokens and an owner). One open-addressing hash table finds them;
intrusive doubly linked lists, one per owner, keep them in order of use. Pools never allocate here:
the caller gives room (see `drafters.cacheback`). Deletion shifts later entries of a cluster back,
so there are no tombstones and no slow decay.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ngramkit.kernels.jit import entry, part

NONE = -1
USED, FREE, SIZE = 0, 1, 2  # indices into Pool.state


class Pool(NamedTuple):
    rows: Any  # int32[room, k], the tokens of an entry
    owners: Any  # int32[room]
    previous: Any  # int32[room], towards the most recent; of a free entry unused
    following: Any  # int32[room], towards the least recent; of a free entry the next free one
    newest: Any  # int32[owners], -1 in an empty list
    oldest: Any  # int32[owners]
    lengths: Any  # int32[owners]
    table: Any  # int32[2^m], an entry or -1; at most half full
    state: Any  # int64[3]: entries ever used, first free entry or -1, entries in the pool


@part
def find(pool, owner, row):
    """The owner's entry that holds `row` (i32[k]), else -1."""
    mask = len(pool.table) - 1
    at = _hash(owner, row) & mask
    while pool.table[at] != NONE:
        entry = pool.table[at]
        if pool.owners[entry] == owner and _same(pool.rows, entry, row):
            return entry
        at = (at + 1) & mask
    return NONE


@part
def insert(pool, owner, row):
    """Adds an entry that is not there yet as its owner's most recent one, and returns it."""
    if pool.state[FREE] != NONE:
        entry = pool.state[FREE]
        pool.state[FREE] = pool.following[entry]
    else:
        entry = pool.state[USED]
        pool.state[USED] += 1
    pool.state[SIZE] += 1
    pool.owners[entry] = owner
    for i in range(len(row)):
        pool.rows[entry, i] = row[i]
    place(pool, entry)
    _link(pool, entry)
    return entry


@part
def refresh(pool, entry):
    """Makes an entry its owner's most recent one."""
    if pool.newest[pool.owners[entry]] != entry:
        _unlink(pool, entry)
        _link(pool, entry)


@part
def remove(pool, entry):
    """Takes an entry out; its place is free for the next insertion."""
    _unlink(pool, entry)
    _displace(pool, entry)
    pool.following[entry] = pool.state[FREE]
    pool.state[FREE] = entry
    pool.state[SIZE] -= 1


@part
def place(pool, entry):
    """Enters an entry into the hash table; also used to fill a larger table."""
    mask = len(pool.table) - 1
    at = _hash(pool.owners[entry], pool.rows[entry]) & mask
    while pool.table[at] != NONE:
        at = (at + 1) & mask
    pool.table[at] = entry


@entry
def replace_all(pool):
    """Fills an empty hash table with every entry in a list."""
    for owner in range(len(pool.newest)):
        entry = pool.newest[owner]
        while entry != NONE:
            place(pool, entry)
            entry = pool.following[entry]


@part
def _displace(pool, entry):
    mask = len(pool.table) - 1
    at = _hash(pool.owners[entry], pool.rows[entry]) & mask
    while pool.table[at] != entry:
        at = (at + 1) & mask
    hole = at
    while True:
        at = (at + 1) & mask
        other = pool.table[at]
        if other == NONE:
            break
        home = _hash(pool.owners[other], pool.rows[other]) & mask
        if ((at - home) & mask) >= ((at - hole) & mask):
            pool.table[hole] = other
            hole = at
    pool.table[hole] = NONE


@part
def _link(pool, entry):
    owner = pool.owners[entry]
    first = pool.newest[owner]
    pool.previous[entry] = NONE
    pool.following[entry] = first
    if first != NONE:
        pool.previous[first] = entry
    else:
        pool.oldest[owner] = entry
    pool.newest[owner] = entry
    pool.lengths[owner] += 1


@part
def _unlink(pool, entry):
    owner, before, after = pool.owners[entry], pool.previous[entry], pool.following[entry]
    if before != NONE:
        pool.following[before] = after
    else:
        pool.newest[owner] = after
    if after != NONE:
        pool.previous[after] = before
    else:
        pool.oldest[owner] = before
    pool.lengths[owner] -= 1


@part
def _hash(owner, row):
    value = np.uint64(owner) + np.uint64(0x9E3779B97F4A7C15)
    for i in range(len(row)):
        value ^= np.uint64(row[i])
        value *= np.uint64(0xBF58476D1CE4E5B9)
        value ^= value >> np.uint64(29)
    return np.int64(value >> np.uint64(1))


@part
def _same(rows, entry, row):
    for i in range(len(row)):  # noqa: SIM110 -- numba compiles no all()
        if rows[entry, i] != row[i]:
            return False
    return True
