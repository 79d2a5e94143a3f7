"""Cacheback's tables and draft tree (arXiv:2511.21699).

A `Pool` is a set of entries (a row of tokens and an owner) in order of use, with O(1) find, insert,
refresh and evict. One open-addressing hash table finds entries; intrusive doubly linked lists, one
per owner, keep them in order. Pools never allocate here: the caller gives room (see
`drafters.cacheback`). Deletion shifts later entries of a cluster back, so there are no tombstones
and no slow decay.

The dynamic table is two pools: leaders, all owned by 0, and followers, each owned by its leader's
entry. The frozen table is the arrays of its format.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ngramkit.kernels.arrays import DYNAMIC, FROZEN, Array
from ngramkit.kernels.jit import allocating_entry, entry, part

NONE = -1
USED, FREE, SIZE = 0, 1, 2  # indices into Pool.state


class Pool(NamedTuple):
    """Entries in order of use, by owner."""

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
def find_row(pool, owner, row):
    """Return the owner's entry that holds `row` (i32[k]), else -1."""
    return pool.table[_slot(pool, owner, row)]


@part
def _slot(pool, owner, row):
    """Return where in the hash table an entry stands, or would be entered."""
    mask = len(pool.table) - 1
    at = _hash(owner, row) & mask
    while pool.table[at] != NONE:
        entry = pool.table[at]
        if pool.owners[entry] == owner and _same(pool.rows, entry, row):
            break
        at = (at + 1) & mask
    return at


@part
def insert(pool, owner, row):
    """Add an entry that is not there yet as its owner's most recent one; return it."""
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
    """Make an entry its owner's most recent one."""
    if pool.newest[pool.owners[entry]] != entry:
        _unlink(pool, entry)
        _link(pool, entry)


@part
def remove_row(pool, entry):
    """Take an entry out; its place is free for the next insertion."""
    _unlink(pool, entry)
    _displace(pool, entry)
    pool.following[entry] = pool.state[FREE]
    pool.state[FREE] = entry
    pool.state[SIZE] -= 1


@part
def place(pool, entry):
    """Enter an entry into the hash table."""
    pool.table[_slot(pool, pool.owners[entry], pool.rows[entry])] = entry


@entry
def replace_all(pool):
    """Fill an empty hash table with every entry in a list."""
    for owner in range(len(pool.newest)):
        entry = pool.newest[owner]
        while entry != NONE:
            place(pool, entry)
            entry = pool.following[entry]


@part
def _displace(pool, entry):
    """Take an entry out of the hash table."""
    mask = len(pool.table) - 1
    hole = at = _slot(pool, pool.owners[entry], pool.rows[entry])
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
    """Put an entry at its owner's newest end."""
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
    """Take an entry out of its owner's list."""
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


# The two tables, learning n-grams, and the draft tree.


class FrozenArrays(NamedTuple):
    """A frozen table's arrays, as its format has them; see ngramkit.formats.frozen_table."""

    leaders: Array  # u16|u32[L, LL], sorted
    leader_counts: Array  # u[L]
    follower_offsets: Array  # u64[L + 1]
    followers: Array  # u16|u32[F, FL]
    follower_counts: Array  # u[F]


@entry
def learn(leaders, followers, most_leaders, most_followers, tokens):
    """Insert every window of `tokens` (i32[n]): its leader, then its follower, as most recent.

    The pools need room for one more entry per window, up to their capacities.
    """
    leader_len, follower_len = leaders.rows.shape[1], followers.rows.shape[1]
    for i in range(len(tokens) - leader_len - follower_len + 1):
        row = tokens[i : i + leader_len]
        leader = find_row(leaders, 0, row)
        if leader == NONE:
            if leaders.state[SIZE] == most_leaders:
                _evict(leaders, followers)
            leader = insert(leaders, 0, row)
        else:
            refresh(leaders, leader)
        row = tokens[i + leader_len : i + leader_len + follower_len]
        follower = find_row(followers, leader, row)
        if follower != NONE:
            refresh(followers, follower)
            continue
        if followers.lengths[leader] == most_followers:
            remove_row(followers, followers.oldest[leader])
        insert(followers, leader, row)


@part
def _evict(leaders, followers):
    """Evict the least recently used leader and its followers: each was inserted once, so this is
    O(1) per insertion."""
    leader = leaders.oldest[0]
    while followers.oldest[leader] != NONE:
        remove_row(followers, followers.oldest[leader])
    remove_row(leaders, leader)


@allocating_entry
def grow_tree(leaders, followers, frozen, shares, agreement, tail, budget, first_level):
    """Return the draft tree after `tail` (i32[n], at least a leader): breadth first, one level a
    follower.

    Every queried leader gives its dynamic followers, most recent first, then its frozen ones, most
    frequent first; a follower's end is queried in the next level. The first level stops at
    `first_level` nodes, the tree at `budget`; the follower that meets the limit is cut there.
    `shares` (f64[FC]) is the probability of the first token of a dynamic follower by its rank of
    recency; each further token of it is right with the probability `agreement`. Where the leader
    is in the dynamic table, its frozen followers get the rest of the shares.

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
    left = 1.0 - shares.sum()
    size, head, end = 0, 0, 1
    while head < end and size < budget:
        node = queue[head]
        limit = budget if head else first_level
        head += 1
        _last_tokens(tree, tail, node, row)
        leader = find_row(leaders, 0, row)
        at = _find_row(frozen.leaders, row)  # in the frozen table
        chance = np.float64(tree[2][node]) if node >= 0 else 1.0
        if leader != NONE:
            refresh(leaders, leader)
            follower, rank = followers.newest[leader], 0
            while follower != NONE and size < limit:
                size, last = _add_path(
                    tree, children, size, limit, node, followers.rows[follower],
                    chance * shares[rank], agreement, DYNAMIC,
                )  # fmt: skip
                end = _enqueue(queue, queued, end, last)
                follower = followers.following[follower]
                rank += 1
            chance *= left
        if at >= 0:
            begin: Any = max(np.int64(frozen.follower_offsets[at]), 0)
            stop: Any = min(np.int64(frozen.follower_offsets[at + 1]), len(frozen.followers))
            for i in range(begin, stop):
                if size >= limit:
                    break
                size, last = _add_path(
                    tree, children, size, limit, node, frozen.followers[i],
                    chance * (frozen.follower_counts[i] / frozen.leader_counts[at]), 1.0, FROZEN,
                )  # fmt: skip
                end = _enqueue(queue, queued, end, last)
    return tree[0][:size], tree[1][:size], tree[2][:size], tree[3][:size]


@part
def _find_row(rows, query):
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


@part
def _add_path(tree, children, size, limit, parent, tokens, chance, agreement, source):
    """Add a follower under `parent`, as far as `limit` allows, and its chance, times `agreement` at
    every further token, to the nodes on the way. Return the size of the tree and the last node."""
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
def _enqueue(queue, queued, end, node):
    """Append a node to the queue unless it is in it; return its end."""
    if node >= 0 and not queued[node]:
        queued[node] = True
        queue[end] = node
        return end + 1
    return end


@part
def _last_tokens(tree, tail, node, row):
    """Fill `row` with the last tokens of the path that ends in `node`, its context before it."""
    at = len(row) - 1
    while at >= 0 and node >= 0:
        row[at] = tree[0][node]
        node = tree[1][node]
        at -= 1
    for i in range(at + 1):
        row[at - i] = tail[len(tail) - 1 - i]


@part
def _table_size(budget):
    """Return the slots of a hash table for so many children."""
    size = 16
    while size < 4 * budget:
        size *= 2
    return size
