"""Cacheback's tables and draft tree (arXiv:2511.21699).

A `Pool` keeps entries in LRU order, per owner, with O(1) operations. Deletion shifts later entries
of the hash table back, so there are no tombstones. Callers allocate pools.

The dynamic table is two pools: leaders, owned by 0, and followers, owned by their leader's entry.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ngramkit.kernels.arrays import DYNAMIC, FROZEN
from ngramkit.kernels.frozen_lookup import (
    find_leader,
    follower_bounds,
    follower_count,
    follower_token,
    leader_count,
)
from ngramkit.kernels.jit import allocating_entry, entry, part

NONE = -1
USED, FREE, SIZE = 0, 1, 2  # indices into Pool.state


class Pool(NamedTuple):
    rows: Any  # int32[room, k], the tokens of an entry
    owners: Any  # int32[room]
    previous: Any  # int32[room], the next more recent entry; unused in free entries
    following: Any  # int32[room], the next less recent entry; the next free one in free entries
    newest: Any  # int32[owners], -1 in an empty list
    oldest: Any  # int32[owners]
    lengths: Any  # int32[owners]
    table: Any  # int32[2^m], an entry or -1; at most half full
    state: Any  # int64[3]: entries ever used, first free entry or -1, entries in the pool


@part
def find_entry(pool, owner, row):
    """Return the owner's entry that holds `row` (i32[k]), else -1."""
    return pool.table[_find_slot(pool, owner, row)]


@part
def _find_slot(pool, owner, row):
    """Return an entry's slot, or the empty slot for it."""
    mask = len(pool.table) - 1
    at = _hash_row(owner, row) & mask
    while pool.table[at] != NONE:
        entry = pool.table[at]
        if pool.owners[entry] == owner and _same_row(pool.rows, entry, row):
            break
        at = (at + 1) & mask
    return at


@part
def insert_entry(pool, owner, row):
    """Add a new entry as its owner's most recent one; return it."""
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
    place_in_table(pool, entry)
    _link_as_newest(pool, entry)
    return entry


@part
def make_newest(pool, entry):
    if pool.newest[pool.owners[entry]] != entry:
        _unlink(pool, entry)
        _link_as_newest(pool, entry)


@part
def remove_entry(pool, entry):
    _unlink(pool, entry)
    _remove_from_table(pool, entry)
    pool.following[entry] = pool.state[FREE]
    pool.state[FREE] = entry
    pool.state[SIZE] -= 1


@part
def place_in_table(pool, entry):
    """Insert an entry into the hash table."""
    pool.table[_find_slot(pool, pool.owners[entry], pool.rows[entry])] = entry


@entry
def refill_table(pool):
    """Fill an empty hash table with all listed entries."""
    for owner in range(len(pool.newest)):
        entry = pool.newest[owner]
        while entry != NONE:
            place_in_table(pool, entry)
            entry = pool.following[entry]


@part
def _remove_from_table(pool, entry):
    mask = len(pool.table) - 1
    hole = at = _find_slot(pool, pool.owners[entry], pool.rows[entry])
    while True:
        at = (at + 1) & mask
        other = pool.table[at]
        if other == NONE:
            break
        home = _hash_row(pool.owners[other], pool.rows[other]) & mask
        if ((at - home) & mask) >= ((at - hole) & mask):
            pool.table[hole] = other
            hole = at
    pool.table[hole] = NONE


@part
def _link_as_newest(pool, entry):
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
def _hash_row(owner, row):
    value = np.uint64(owner) + np.uint64(0x9E3779B97F4A7C15)
    for i in range(len(row)):
        value ^= np.uint64(row[i])
        value *= np.uint64(0xBF58476D1CE4E5B9)
        value ^= value >> np.uint64(29)
    return np.int64(value >> np.uint64(1))


@part
def _same_row(rows, entry, row):
    for i in range(len(row)):  # noqa: SIM110 -- numba does not compile all()
        if rows[entry, i] != row[i]:
            return False
    return True


# The two tables, learning n-grams, and the draft tree.


@entry
def learn_and_evict(leaders, followers, most_leaders, most_followers, tokens):
    """Insert each window of `tokens` (i32[n]), its leader and its follower.

    The pools need room for one more entry per window, up to their capacities.
    """
    leader_len, follower_len = leaders.rows.shape[1], followers.rows.shape[1]
    for i in range(len(tokens) - leader_len - follower_len + 1):
        row = tokens[i : i + leader_len]
        leader = find_entry(leaders, 0, row)
        if leader == NONE:
            if leaders.state[SIZE] == most_leaders:
                _evict_oldest_leader(leaders, followers)
            leader = insert_entry(leaders, 0, row)
        else:
            make_newest(leaders, leader)
        row = tokens[i + leader_len : i + leader_len + follower_len]
        follower = find_entry(followers, leader, row)
        if follower != NONE:
            make_newest(followers, follower)
            continue
        if followers.lengths[leader] == most_followers:
            remove_entry(followers, followers.oldest[leader])
        insert_entry(followers, leader, row)


@part
def _evict_oldest_leader(leaders, followers):
    """Evict the least recently used leader and its followers; amortised O(1)."""
    leader = leaders.oldest[0]
    while followers.oldest[leader] != NONE:
        remove_entry(followers, followers.oldest[leader])
    remove_entry(leaders, leader)


@allocating_entry
def add_dynamic_then_frozen(
    leaders, followers, where, shares, agreement, tail, budget, first_level
):
    """Return the draft tree after `tail` (i32[n], at least a leader), breadth first by follower.

    A leader adds its dynamic followers, most recent first, then its frozen ones, most frequent
    first. `where` locates the frozen table (`frozen_lookup`). `first_level` limits the nodes of the
    first level, `budget` the tree. `shares` (f64[FC]) is the probability of a dynamic follower's
    first token by recency, `agreement` that of each further one. The leader's frozen followers get
    the rest.

    Returns token_ids i32[n], parents i32[n], scores f32[n], source u8[n].
    """
    tree = (
        np.empty(budget, np.int32),
        np.empty(budget, np.int32),
        np.zeros(budget, np.float32),
        np.empty(budget, np.uint8),
    )
    children = np.full(_table_size(budget), -1, np.int32)
    queue = np.empty(budget + 1, np.int32)
    queued = np.zeros(budget, np.bool_)
    queue[0] = -1
    row = np.empty(leaders.rows.shape[1], np.int32)
    path = np.empty(followers.rows.shape[1], np.int32)
    left = 1.0 - shares.sum()
    size, head, end = 0, 0, 1
    while head < end and size < budget:
        node = queue[head]
        limit = budget if head else first_level
        head += 1
        _last_tokens(tree, tail, node, row)
        leader = find_entry(leaders, 0, row)
        at = find_leader(where, row[::-1], len(row))  # the leader's row in the frozen table
        chance = np.float64(tree[2][node]) if node >= 0 else 1.0
        if leader != NONE:
            make_newest(leaders, leader)
            follower, rank = followers.newest[leader], 0
            while follower != NONE and size < limit:
                size, last = _add_path(
                    tree, children, size, limit, node, followers.rows[follower],
                    chance * shares[rank], agreement, DYNAMIC,
                )  # fmt: skip
                end = _enqueue_once(queue, queued, end, last)
                follower = followers.following[follower]
                rank += 1
            chance *= left
        if at >= 0:
            begin, stop = follower_bounds(where, at)
            for frozen in range(begin, stop):
                if size >= limit:
                    break
                for i in range(len(path)):
                    path[i] = follower_token(where, frozen, i)
                share = follower_count(where, frozen) / leader_count(where, at)
                size, last = _add_path(
                    tree, children, size, limit, node, path, chance * share, 1.0, FROZEN
                )
                end = _enqueue_once(queue, queued, end, last)
    return tree[0][:size], tree[1][:size], tree[2][:size], tree[3][:size]


@part
def _add_path(tree, children, size, limit, parent, tokens, chance, agreement, source):
    """Add a follower below `parent`, up to `limit`; return the tree's size and the last node."""
    token_ids, parents, scores, sources = tree
    mask = len(children) - 1
    for i in range(len(tokens)):
        token = np.int32(tokens[i])
        at = (parent * 0x9E3779B1 + token * 0x85EBCA77) >> 7 & mask
        while children[at] >= 0:
            node = children[at]
            if parents[node] == parent and token_ids[node] == token:
                break
            at = (at + 1) & mask
        if children[at] < 0:
            if size == limit:
                break
            children[at] = size
            token_ids[size], parents[size], sources[size] = token, parent, source
            size += 1
        parent = children[at]
        scores[parent] += np.float32(chance)
        chance *= agreement
    return size, parent


@part
def _enqueue_once(queue, queued, end, node):
    if node >= 0 and not queued[node]:
        queued[node] = True
        queue[end] = node
        return end + 1
    return end


@part
def _last_tokens(tree, tail, node, row):
    """Fill `row` with the last tokens of the path to `node`."""
    at = len(row) - 1
    while at >= 0 and node >= 0:
        row[at] = tree[0][node]
        node = tree[1][node]
        at -= 1
    for i in range(at + 1):
        row[at - i] = tail[len(tail) - 1 - i]


@part
def _table_size(budget):
    size = 16
    while size < 4 * budget:
        size *= 2
    return size
