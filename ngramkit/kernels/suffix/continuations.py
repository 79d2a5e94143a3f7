"""The most frequent continuations of an interval, as a tree, with exact counts.

Best first: what is emitted next is the most frequent prefix left, ties to the shallower one, then
to the parent emitted earlier, then to the lower token. A prefix's count is the width of its
interval, summed over the shards, so no match is ever enumerated. The children of a wide interval
are found through a grid: one of at least T suffixes cannot hide between points T/2 apart, and its
ends then are a bisection inside two cells. T falls only as far as the budget asks. See
`kernels.suffix.search` for shard tables and intervals.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.suffix.few import FEW, all_of_few, begins_alike
from ngramkit.kernels.suffix.grid import (
    HIGH,
    LOW,
    NEXT,
    POINT,
    bisect,
    next_token,
    sample,
    step_over,
)
from ngramkit.kernels.suffix.search import VOCABULARY, position_at, token_at

NARROW = 64  # suffixes; so few are read one by one, which memory serves in parallel
PROBES = 4096  # grid points per node at most; above, rare children may be missed
DEPTHS = 32  # one more than the deepest node
ROOT = -1

TOKEN, PARENT, DEPTH, COUNT = range(4)


@njit(cache=True, nogil=True)
def top_prefixes(
    table: Array, root: Array, depth: int, budget: int, deepest: int, eos: int
) -> tuple[Array, int]:
    """int64[n, 4] (token, parent, depth, count), n <= budget, and the root's total count.

    `root` is int64[shards, 2], the intervals of a match of `depth` tokens. Nodes are at most
    `deepest` (below 32) tokens deep; none follows `eos` and none is a separator.
    """
    shards = len(table)
    ready = np.empty((budget, 3), np.int64)  # key, key, slot: emitted nodes, then candidates
    nodes = np.empty((budget + 1, 4), np.int64)  # by slot; the last is the root
    spans = np.empty((budget + 1, shards, 2), np.int64)  # by slot
    waiting = np.empty((budget + 1, 3), np.int64)  # key, rank, bound: nodes with children to find
    tokens = np.empty(PROBES + shards, np.int32)
    work = np.empty((6, shards), np.int64)  # see kernels.suffix.grid

    total = 0
    for s in range(shards):
        spans[budget, s] = root[s]
        total += root[s, 1] - root[s, 0]
    nodes[budget] = (0, ROOT, 0, total)
    emitted = size = waits = 0
    if total and budget and deepest:
        waits = _wait(waiting, waits, 1 - total * DEPTHS, ROOT, total)
    while emitted < budget:
        if waits and (emitted == size or waiting[waits - 1, 0] <= ready[emitted, 0]):
            waits -= 1
            rank, bound = waiting[waits, 1], waiting[waits, 2]
            slot = ready[rank, 2] if rank >= 0 else budget
            size, bound = _children(
                table, depth, slot, rank, bound, ready, size, nodes, spans, tokens, work
            )
            key = nodes[slot, DEPTH] + 1 - bound * DEPTHS
            if bound > 0 and _may_enter(ready, size, key):
                waits = _wait(waiting, waits, key, rank, bound)
        elif emitted < size:
            slot = ready[emitted, 2]
            node = nodes[slot]
            key = node[DEPTH] + 1 - node[COUNT] * DEPTHS
            if node[DEPTH] < deepest and node[TOKEN] != eos and _may_enter(ready, size, key):
                waits = _wait(waiting, waits, key, emitted, node[COUNT])
            emitted += 1
        else:
            break
    found = np.empty((emitted, 4), np.int64)
    for rank in range(emitted):
        found[rank] = nodes[ready[rank, 2]]
    return found, total


@njit(cache=True, nogil=True)
def _may_enter(ready: Array, size: int, key: int) -> bool:
    """Whether a candidate of this key can still be among the best."""
    return bool(size < len(ready) or key <= ready[size - 1, 0])


@njit(cache=True, nogil=True)
def _wait(waiting: Array, waits: int, key: int, rank: int, bound: int) -> int:
    """Files a node whose children of at most `bound` suffixes are still to be found; best last."""
    i = waits
    while i > 0 and waiting[i - 1, 0] < key:
        waiting[i, 0], waiting[i, 1] = waiting[i - 1, 0], waiting[i - 1, 1]
        waiting[i, 2] = waiting[i - 1, 2]
        i -= 1
    waiting[i, 0], waiting[i, 1], waiting[i, 2] = key, rank, bound
    return waits + 1


@njit(cache=True, nogil=True)
def _offer(ready: Array, size: int, depth: int, count: int, order: int) -> int:
    """Makes room for a candidate among the best: its index in `ready`, or -1 if it is none.

    A full list gives up its last entry, and that entry's slot.
    """
    key = depth - count * DEPTHS
    i, slot = size, size
    if size == len(ready):
        i = size - 1
        if not _before(key, order, ready[i, 0], ready[i, 1]):
            return -1
        slot = ready[i, 2]
    while i > 0 and _before(key, order, ready[i - 1, 0], ready[i - 1, 1]):
        ready[i, 0], ready[i, 1], ready[i, 2] = ready[i - 1, 0], ready[i - 1, 1], ready[i - 1, 2]
        i -= 1
    ready[i, 0], ready[i, 1], ready[i, 2] = key, order, slot
    return i


@njit(cache=True, nogil=True)
def _before(key: int, order: int, other_key: int, other_order: int) -> bool:
    return key < other_key or (key == other_key and order < other_order)


@njit(cache=True, nogil=True)
def _children(
    table: Array,
    depth: int,
    slot: int,
    rank: int,
    bound: int,
    ready: Array,
    size: int,
    nodes: Array,
    spans: Array,
    tokens: Array,
    work: Array,
) -> tuple[int, int]:
    """Offers children of at most `bound` suffixes; returns the list's size and the bound left."""
    shards, budget = len(table), len(ready)
    level = nodes[slot, DEPTH] + 1
    depth += level - 1
    least = nodes[ready[budget - 1, 2], COUNT] if size == budget else 1
    if bound < least:
        return size, 0
    width = nodes[slot, COUNT]
    if width == 1:
        return _only_child(table, depth, slot, rank, ready, size, nodes, spans, work), 0
    target = max(bound >> 2, least)
    spacing = max(target // (2 * shards), 1)
    if width <= NARROW:
        spacing = 1
    elif width > PROBES * spacing:
        spacing, target = (width + PROBES - 1) // PROBES, 1
    if spacing == 1:
        target = 1
    elif bound == width and begins_alike(table, spans[slot], depth):
        few = np.empty((FEW, shards, 2), np.int64)
        found = all_of_few(table, spans[slot], depth, few, tokens)
        for i in range(found):
            work[LOW], work[HIGH] = few[i, :, 0], few[i, :, 1]
            count = np.sum(work[HIGH] - work[LOW])
            if count >= least:
                size = _file(ready, size, tokens[i], rank, level, count, nodes, spans, work)
        if found >= 0:
            return size, 0
    sample(table, spans[slot], depth, spacing, tokens, work)
    while True:
        token = next_token(tokens, work)
        if token < 0 or token == table[0, VOCABULARY]:
            break
        fewest, most = step_over(tokens, work, token, spacing)
        if most >= max(target, least) and fewest <= bound:
            count = bisect(table, spans[slot], depth, token, spacing, work)
            if max(target, least) <= count <= bound:
                size = _file(ready, size, token, rank, level, count, nodes, spans, work)
                if size == budget:
                    least = nodes[ready[budget - 1, 2], COUNT]
        work[POINT] = work[NEXT]
    return size, target - 1


@njit(cache=True, nogil=True)
def _only_child(
    table: Array,
    depth: int,
    slot: int,
    rank: int,
    ready: Array,
    size: int,
    nodes: Array,
    spans: Array,
    work: Array,
) -> int:
    """Offers what follows a prefix that occurs once; returns the list's size."""
    token = table[0, VOCABULARY]
    for s in range(len(table)):
        low, high = spans[slot, s]
        work[LOW, s], work[HIGH, s] = low, high
        if low < high:
            token = token_at(table[s], position_at(table[s], low) + depth)
    if token == table[0, VOCABULARY]:
        return size
    return _file(ready, size, token, rank, nodes[slot, DEPTH] + 1, 1, nodes, spans, work)


@njit(cache=True, nogil=True)
def _file(
    ready: Array,
    size: int,
    token: int,
    rank: int,
    level: int,
    count: int,
    nodes: Array,
    spans: Array,
    work: Array,
) -> int:
    """Offers a node whose intervals are in work[LOW], work[HIGH]; returns the list's size."""
    i = _offer(ready, size, level, count, (rank + 1) << 32 | token)
    if i < 0:
        return size
    slot = ready[i, 2]
    nodes[slot, TOKEN], nodes[slot, PARENT] = token, rank
    nodes[slot, DEPTH], nodes[slot, COUNT] = level, count
    for s in range(work.shape[1]):
        spans[slot, s, 0], spans[slot, s, 1] = work[LOW, s], work[HIGH, s]
    return min(size + 1, len(ready))
