"""The most frequent continuations of an interval, as a tree, with exact counts.

Best first: what is emitted next is the most frequent prefix left, ties to the shallower one, then
to the parent emitted earlier, then to the lower token. A prefix's count is the width of its
interval, summed over the shards, so no match is ever enumerated. The children of a wide interval
are found through a grid: one of at least T suffixes cannot hide between points T/2 apart, and its
ends then are a bisection inside two cells. T falls only as far as the budget asks. For shard
tables and intervals see `kernels.suffix.search`."""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.compile import allocating_part, part
from ngramkit.kernels.suffix.grid import (
    FEW,
    HIGH,
    LOW,
    NEXT,
    POINT,
    TALLIES,
    all_of_few,
    begins_alike,
    bisect,
    most_of_likely,
    next_token,
    sample,
    step_over,
)
from ngramkit.kernels.suffix.ranking import BOUND, KEY, RANK, SLOT, may_enter, offer, wait
from ngramkit.kernels.suffix.ranking import DEPTHS as DEPTHS
from ngramkit.kernels.suffix.search import VOCABULARY, position_at, token_at

NARROW = 64  # suffixes; so few are read one by one, which memory serves in parallel
PROBES = 4096  # grid points per node at most; above, rare children may be missed
# Times the budget: so many children of such a node are counted, where that takes several shards.
LIKELY = 2
ROOT = -1

TOKEN, PARENT, DEPTH, COUNT = range(4)  # columns of nodes


@allocating_part
def top_prefixes(
    table: Array, root: Array, depth: int, budget: int, deepest: int, eos: int
) -> tuple[Array, int]:
    """int64[n, 4] (token, parent, depth, count), n <= budget, and the root's total count.

    `root` is int64[shards, 2], the intervals of a match of `depth` tokens. Nodes are at most
    `deepest` (below 32) tokens deep; none follows `eos` and none is a separator.
    """
    shards = len(table)
    ready = np.empty((budget, 3), np.int64)  # emitted nodes, then candidates
    nodes = np.empty((budget + 1, 4), np.int64)  # by slot; the last is the root
    spans = np.empty((budget + 1, shards, 2), np.int64)  # by slot
    waiting = np.empty((budget + 1, 3), np.int64)  # nodes with children to find
    tokens = np.empty(PROBES + shards + TALLIES, np.int32)
    work = np.empty((6, shards), np.int64)  # see kernels.suffix.grid
    few = np.empty((FEW, shards, 2), np.int64)  # likewise

    total = 0
    for s in range(shards):
        spans[budget, s, 0], spans[budget, s, 1] = root[s, 0], root[s, 1]
        total += root[s, 1] - root[s, 0]
    nodes[budget, TOKEN], nodes[budget, PARENT] = 0, ROOT
    nodes[budget, DEPTH], nodes[budget, COUNT] = 0, total
    emitted = size = waits = 0
    if total and budget and deepest:
        waits = wait(waiting, waits, 1 - total * DEPTHS, ROOT, total)
    while emitted < budget:
        if waits and (emitted == size or waiting[waits - 1, KEY] <= ready[emitted, KEY]):
            waits -= 1
            rank, bound = waiting[waits, RANK], waiting[waits, BOUND]
            slot = ready[rank, SLOT] if rank >= 0 else budget
            size, bound = _children(
                table, depth, slot, rank, bound, ready, size, nodes, spans, tokens, work, few
            )
            key = nodes[slot, DEPTH] + 1 - bound * DEPTHS
            if bound > 0 and may_enter(ready, size, key):
                waits = wait(waiting, waits, key, rank, bound)
        elif emitted < size:
            slot = ready[emitted, SLOT]
            count = nodes[slot, COUNT]
            key = nodes[slot, DEPTH] + 1 - count * DEPTHS
            inner = nodes[slot, DEPTH] < deepest and nodes[slot, TOKEN] != eos
            if inner and may_enter(ready, size, key):
                waits = wait(waiting, waits, key, emitted, count)
            emitted += 1
        else:
            break
    found = np.empty((emitted, 4), np.int64)
    for rank in range(emitted):
        for column in range(4):
            found[rank, column] = nodes[ready[rank, SLOT], column]
    return found, total


@part
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
    few: Array,
) -> tuple[int, int]:
    """Offers children of at most `bound` suffixes; returns the list's size and the bound left."""
    shards, budget = len(table), len(ready)
    level = nodes[slot, DEPTH] + 1
    depth += level - 1
    least = nodes[ready[budget - 1, SLOT], COUNT] if size == budget else 1
    if bound < least:
        return size, 0
    width = nodes[slot, COUNT]
    if width == 1:
        return _only_child(table, depth, slot, rank, ready, size, nodes, spans, work), 0
    target = max(bound >> 2, least)
    spacing = max(target // (2 * shards), 1)
    if width <= NARROW:
        spacing = 1
    coarse = width > PROBES * spacing
    if coarse:
        spacing, target = (width + PROBES - 1) // PROBES, 1
    if spacing == 1:
        target = 1
    elif bound == width and begins_alike(table, spans[slot], depth):
        found = all_of_few(table, spans[slot], depth, few, tokens, work[POINT])
        for i in range(found):
            count = 0
            for s in range(shards):
                work[LOW, s], work[HIGH, s] = few[i, s, 0], few[i, s, 1]
                count += work[HIGH, s] - work[LOW, s]
            if count >= least:
                size = _file(ready, size, tokens[i], rank, level, count, nodes, spans, work)
        if found >= 0:
            return size, 0
    sample(table, spans[slot], depth, spacing, tokens, work)
    floor = most_of_likely(tokens, work, spacing, LIKELY * budget) if coarse and shards > 1 else 0
    while True:
        token = next_token(tokens, work)
        if token < 0 or token >= table[0, VOCABULARY]:
            break
        fewest, most = step_over(tokens, work, token, spacing)
        if most >= max(target, least, floor) and fewest <= bound:
            count = bisect(table, spans[slot], depth, token, spacing, work)
            if max(target, least) <= count <= bound:
                size = _file(ready, size, token, rank, level, count, nodes, spans, work)
                if size == budget:
                    least = nodes[ready[budget - 1, SLOT], COUNT]
        for s in range(shards):
            work[POINT, s] = work[NEXT, s]
    return size, target - 1


@part
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
        low, high = spans[slot, s, 0], spans[slot, s, 1]
        work[LOW, s], work[HIGH, s] = low, high
        if low < high:
            token = token_at(table[s], position_at(table[s], low) + depth)
    if token >= table[0, VOCABULARY]:
        return size
    return _file(ready, size, token, rank, nodes[slot, DEPTH] + 1, 1, nodes, spans, work)


@part
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
    i = offer(ready, size, level, count, (rank + 1) << 32 | token)
    if i < 0:
        return size
    slot = ready[i, SLOT]
    nodes[slot, TOKEN], nodes[slot, PARENT] = token, rank
    nodes[slot, DEPTH], nodes[slot, COUNT] = level, count
    for s in range(work.shape[1]):
        spans[slot, s, 0], spans[slot, s, 1] = work[LOW, s], work[HIGH, s]
    return min(size + 1, len(ready))
