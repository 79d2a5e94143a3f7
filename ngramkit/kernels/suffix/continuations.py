"""The most frequent continuations of an interval, as a tree, with exact counts.

Best first: what is emitted next is the most frequent prefix left, ties to the shallower one, then
to the parent emitted earlier, then to the lower token. A prefix's count is the width of its
interval, summed over the shards, so no match is ever enumerated. The children of a wide interval
are found through a grid: one of at least T suffixes cannot hide between points T/2 apart, and its
ends then are a bisection inside two cells. T falls only as far as the budget asks. In many shards
it could hide, a little of it in each: there it all but never does (`grid.most_of`). For tables and
intervals see `kernels.suffix.search`, for spans `kernels.suffix.grid`."""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import allocating_part, part
from ngramkit.kernels.suffix.few import FEW, all_of_few, begins_alike, one_of_few
from ngramkit.kernels.suffix.grid import (
    APART,
    BEGIN,
    CHILD,
    END,
    HEAP,
    LANE,
    TALLIES,
    WORK,
    begin_merge,
    bisect,
    most_of,
    points_of_likely,
    read_all,
    sample,
    step_on,
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

TOKEN, PARENT, DEPTH, COUNT, LANES = range(5)  # columns of nodes; LANES of a span are used


@allocating_part
def top_prefixes(
    table: Array, root: Array, depth: int, budget: int, deepest: int, eos: int
) -> tuple[Array, int]:
    """int64[n, 4] (token, parent, depth, count), n <= budget, and the root's total count.

    `root` is int64[shards, 2], the intervals of a match of `depth` tokens. Nodes are at most
    `deepest` (below 32) tokens deep; none follows `eos` and none is a separator.
    """
    lanes = total = 0
    for s in range(len(table)):
        lanes += root[s, 0] < root[s, 1]
        total += root[s, 1] - root[s, 0]
    ready = np.empty((budget, 3), np.int64)  # emitted nodes, then candidates
    nodes = np.empty((budget + 1, 5), np.int64)  # by slot; the last is the root
    spans = np.empty((budget + 1, lanes, 3), np.int64)  # by slot, see kernels.suffix.grid
    waiting = np.empty((budget + 1, 3), np.int64)  # nodes with children to find
    tokens = np.empty(PROBES + lanes + TALLIES, np.int32)
    work = np.empty((WORK, lanes), np.int64)  # see kernels.suffix.grid
    few = np.empty((FEW, lanes, 2), np.int64)  # see kernels.suffix.few

    lanes = 0
    for s in range(len(table)):
        low, high = root[s, 0], root[s, 1]
        if low < high:
            spans[budget, lanes, 0], spans[budget, lanes, 1], spans[budget, lanes, 2] = s, low, high
            lanes += 1
    nodes[budget, LANES] = lanes
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
    budget, lanes = len(ready), nodes[slot, LANES]
    span = spans[slot, :lanes]
    level = nodes[slot, DEPTH] + 1
    depth += level - 1
    least = nodes[ready[budget - 1, SLOT], COUNT] if size == budget else 1
    if bound < least:
        return size, 0
    width = nodes[slot, COUNT]
    if width == 1:
        return _only_child(table, depth, slot, rank, ready, size, nodes, spans, work), 0
    target = max(bound >> 2, least)
    spacing, target, coarse = _grid_of(width, lanes, target)
    if spacing > 1 and bound == width and begins_alike(table, span, depth):
        found = all_of_few(table, span, depth, few, tokens, work[HEAP])
        for i in range(found):
            held, count = one_of_few(few, i, work, lanes)
            if count >= least:
                size = _file(ready, size, tokens[i], rank, slot, held, count, nodes, spans, work)
        if found >= 0:
            return size, 0
    sample(table, span, depth, spacing, tokens, work)
    floor = 0
    if coarse and lanes > 1:
        floor = points_of_likely(tokens, work, lanes, LIKELY * budget)
    heap = begin_merge(tokens, work, lanes)
    while heap:
        token = work[HEAP, 0] >> LANE
        if token >= table[0, VOCABULARY]:
            break
        heap, points, met = step_over(tokens, work, heap, token)
        fewest = points * spacing - met * (spacing - 1)
        wanted = max(target, least)
        if points >= floor and fewest <= bound and most_of(points, spacing, lanes) >= wanted:
            if spacing == 1:
                held, count = read_all(span, work, met)
            else:
                held, count = bisect(table, span, depth, token, spacing, wanted, work)
            if wanted <= count <= bound:
                size = _file(ready, size, token, rank, slot, held, count, nodes, spans, work)
                if size == budget:
                    least = nodes[ready[budget - 1, SLOT], COUNT]
        step_on(work, met)
    return size, target - 1


@part
def _grid_of(width: int, lanes: int, target: int) -> tuple[int, int, bool]:
    """How far apart grid points are, of how many suffixes children are then all found, and whether
    that is more probes than are spent."""
    spacing = max(target // (2 * min(lanes, APART)), 1)
    if width <= NARROW:
        spacing = 1
    if width > PROBES * spacing:
        return (width + PROBES - 1) // PROBES, 1, True
    return spacing, target if spacing > 1 else 1, False


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
    shard, low = table[spans[slot, 0, 0]], spans[slot, 0, 1]
    token = token_at(shard, position_at(shard, low) + depth)
    if token >= table[0, VOCABULARY]:
        return size
    work[CHILD, 0], work[BEGIN, 0], work[END, 0] = 0, low, low + 1
    return _file(ready, size, token, rank, slot, 1, 1, nodes, spans, work)


@part
def _file(
    ready: Array,
    size: int,
    token: int,
    rank: int,
    parent: int,
    held: int,
    count: int,
    nodes: Array,
    spans: Array,
    work: Array,
) -> int:
    """Offers a child of the node in the slot `parent`, which `held` lanes of its span hold as
    work[CHILD], work[BEGIN] and work[END] say; returns the list's size."""
    level = nodes[parent, DEPTH] + 1
    i = offer(ready, size, level, count, (rank + 1) << 32 | token)
    if i < 0:
        return size
    slot = ready[i, SLOT]
    nodes[slot, TOKEN], nodes[slot, PARENT] = token, rank
    nodes[slot, DEPTH], nodes[slot, COUNT] = level, count
    written = 0
    for k in range(held):
        low, high = work[BEGIN, k], work[END, k]
        if low < high:
            spans[slot, written, 0] = spans[parent, work[CHILD, k], 0]
            spans[slot, written, 1], spans[slot, written, 2] = low, high
            written += 1
    nodes[slot, LANES] = written
    return min(size + 1, len(ready))
