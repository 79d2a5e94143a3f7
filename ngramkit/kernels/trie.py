"""The most frequent continuations of an interval, as a tree, with exact counts.

Best first: what is emitted next is the most frequent prefix left, ties to the shallower one, then
to the parent emitted earlier, then to the lower token. A prefix's count is the width of its
interval, summed over the shards, so no match is ever enumerated. The children of a wide interval
are found through a grid: one of at least T suffixes cannot hide between points T/2 apart, and its
ends then are a bisection inside two cells. T falls only as far as the budget asks. See
`kernels.suffix` for shard tables and intervals.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from ngramkit.kernels.suffix import VOCABULARY, lower_bound, position_at, token_at

Array = npt.NDArray[Any]

NARROW = 128  # suffixes; so few are read one by one, which memory serves in parallel
PROBES = 4096  # grid points per node at most; above, rare children may be missed
RUN = 8  # equal grid points after which a run's end is searched for instead of read up to
DEPTHS = 32  # one more than the deepest node
ROOT = -1

TOKEN, PARENT, DEPTH, COUNT = range(4)
# Rows of the merge over shards: the grid's begin, the point reached, the point behind the run of
# one token, the end; then the interval found for that token.
BASE, POINT, NEXT, STOP, LOW, HIGH = range(6)


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
    work = np.empty((6, shards), np.int64)

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
            if bound > 0:
                key = nodes[slot, DEPTH] + 1 - bound * DEPTHS
                waits = _wait(waiting, waits, key, rank, bound)
        elif emitted < size:
            slot = ready[emitted, 2]
            node = nodes[slot]
            if node[DEPTH] < deepest and node[TOKEN] != eos:
                key = node[DEPTH] + 1 - node[COUNT] * DEPTHS
                waits = _wait(waiting, waits, key, emitted, node[COUNT])
            emitted += 1
        else:
            break
    found = np.empty((emitted, 4), np.int64)
    for rank in range(emitted):
        found[rank] = nodes[ready[rank, 2]]
    return found, total


@njit(cache=True, nogil=True)
def _wait(waiting: Array, waits: int, key: int, rank: int, bound: int) -> int:
    """Files a node whose children of at most `bound` suffixes are still to be found; best last."""
    i = waits
    while i > 0 and waiting[i - 1, 0] < key:
        waiting[i] = waiting[i - 1]
        i -= 1
    waiting[i] = (key, rank, bound)
    return waits + 1


@njit(cache=True, nogil=True)
def _offer(ready: Array, size: int, depth: int, count: int, order: int) -> int:
    """Makes room for a candidate among the best: its index in `ready`, or -1 if it is none.

    A full list gives up its last entry, and that entry's slot.
    """
    key = depth - count * DEPTHS
    last = min(size, len(ready) - 1)
    slot = size
    if size == len(ready):
        if (key, order) >= (ready[last, 0], ready[last, 1]):
            return -1
        slot = ready[last, 2]
    i = last
    while i > 0 and (key, order) < (ready[i - 1, 0], ready[i - 1, 1]):
        ready[i] = ready[i - 1]
        i -= 1
    ready[i] = (key, order, slot)
    return i


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
    target = max(bound >> 2, least)
    spacing = max(target // (2 * shards), 1)
    if width <= NARROW:
        spacing = 1
    elif width > PROBES * spacing:
        spacing, target = (width + PROBES - 1) // PROBES, 1
    if spacing == 1:
        target = 1
    _sample(table, spans[slot], depth, spacing, tokens, work)
    while True:
        token = _next_token(tokens, work)
        if token < 0 or token == table[0, VOCABULARY]:
            break
        fewest, most = _run(tokens, work, token, spacing)
        if most >= max(target, least) and fewest <= bound:
            count = _bisect(table, spans[slot], depth, token, spacing, work)
            if max(target, least) <= count <= bound:
                i = _offer(ready, size, level, count, (rank + 1) << 32 | token)
                if i >= 0:
                    size = min(size + 1, budget)
                    child = ready[i, 2]
                    nodes[child] = (token, rank, level, count)
                    spans[child, :, 0] = work[LOW]
                    spans[child, :, 1] = work[HIGH]
                    if size == budget:
                        least = nodes[ready[budget - 1, 2], COUNT]
        work[POINT] = work[NEXT]
    return size, target - 1


@njit(cache=True, nogil=True)
def _sample(
    table: Array, span: Array, depth: int, spacing: int, tokens: Array, work: Array
) -> None:
    """Reads every `spacing`-th token at `depth` of each shard's interval, one shard at a time.

    Inside a long run of one token most points are not read: what lies between two equals is equal.
    """
    point = 0
    for s in range(len(table)):
        shard, low = table[s], span[s, 0]
        first = point
        work[BASE, s] = work[POINT, s] = first
        last = first + (span[s, 1] - low + spacing - 1) // spacing
        while point < last:
            at = low + (point - first) * spacing
            token = token_at(shard, position_at(shard, at) + depth)
            tokens[point] = token
            point += 1
            if spacing > 1 and point - first >= RUN and tokens[point - RUN] == token:
                end = _end_of_run(shard, low - first * spacing, depth, spacing, token, point, last)
                tokens[point:end] = token
                point = end
        work[STOP, s] = last


@njit(cache=True, nogil=True)
def _end_of_run(
    shard: Array, zero: int, depth: int, spacing: int, token: int, point: int, last: int
) -> int:
    """The first grid point of [point, last) that holds another token than the one before it."""
    step = 1
    while point < last:
        ahead = min(point + step, last) - 1
        if token_at(shard, position_at(shard, zero + ahead * spacing) + depth) != token:
            last = ahead
            break
        point = ahead + 1
        step <<= 1
    while point < last:
        middle = (point + last) >> 1
        if token_at(shard, position_at(shard, zero + middle * spacing) + depth) != token:
            last = middle
        else:
            point = middle + 1
    return point


@njit(cache=True, nogil=True)
def _next_token(tokens: Array, work: Array) -> int:
    """The lowest token that a shard's grid holds next, -1 at the end."""
    lowest = -1
    for s in range(work.shape[1]):
        point = work[POINT, s]
        if point < work[STOP, s] and (lowest < 0 or tokens[point] < lowest):
            lowest = tokens[point]
    return lowest


@njit(cache=True, nogil=True)
def _run(tokens: Array, work: Array, token: int, spacing: int) -> tuple[int, int]:
    """Steps over the points that hold `token`: between which bounds its count must lie."""
    fewest = most = 0
    for s in range(work.shape[1]):
        point = begin = work[POINT, s]
        while point < work[STOP, s] and tokens[point] == token:
            point += 1
        work[NEXT, s] = point
        points = point - begin
        most += (points + 1) * spacing - 1
        if points:
            fewest += (points - 1) * spacing + 1
    return fewest, most


@njit(cache=True, nogil=True)
def _bisect(table: Array, span: Array, depth: int, token: int, spacing: int, work: Array) -> int:
    """The exact intervals of `token` into work[LOW], work[HIGH]; returns its count."""
    count = 0
    for s in range(len(table)):
        shard, begin, end = table[s], span[s, 0], span[s, 1]
        first, after = work[POINT, s] - work[BASE, s], work[NEXT, s] - work[BASE, s]
        low, high = begin + first, begin + after
        if spacing > 1:
            behind = min(begin + max((first - 1) * spacing + 1, 0), end)
            low = lower_bound(shard, behind, min(begin + first * spacing, end), depth, token)
            inside = low if after == first else begin + (after - 1) * spacing + 1
            high = lower_bound(shard, inside, min(begin + after * spacing, end), depth, token + 1)
        work[LOW, s], work[HIGH, s] = low, high
        count += high - low
    return count
