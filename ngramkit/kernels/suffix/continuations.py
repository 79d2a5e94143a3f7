"""The most frequent continuations of an interval, as a tree, with exact counts.

Best first: what is emitted next is the most frequent prefix left, ties to the shallower one, then
to the parent emitted earlier, then to the lower token. A prefix's count is the width of its
interval, summed over the shards, so no match is ever enumerated. The children of a wide interval
are found through a grid (`suffix.grid`): one of at least T suffixes cannot hide between points T/2
apart, and its ends then are a bisection inside two cells. T falls as far as the budget asks. In
many shards it could hide, a little of it in each: there it all but never does (`grid.most_of`).

Drafts of frequent contexts are kept: to count exactly what followed a word that stands a hundred
thousand times takes milliseconds in many shards, and text comes back to such words. A row
holds one draft and is overwritten by the next; threads may share the rows, since a row is believed
only if its checksum fits.
"""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import allocating_part, part
from ngramkit.kernels.suffix.grid import (
    APART,
    BEGIN,
    CHILD,
    END,
    FEW,
    HEAP,
    LANE,
    TALLIES,
    WORK,
    all_of_few,
    begin_merge,
    begins_alike,
    bisect,
    most_of,
    one_of_few,
    points_of_likely,
    read_all,
    sample,
    step_on,
    step_over,
)
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
    few = np.empty((FEW, lanes, 2), np.int64)  # see kernels.suffix.grid

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


DEPTHS = 32  # one more than the deepest node
KEY, ORDER, SLOT = range(3)  # columns of `ready`: what it is sorted by, then by, and where it is
_, RANK, BOUND = range(3)  # columns of `waiting`, after its KEY: a node, and how wide children are


@part
def may_enter(ready: Array, size: int, key: int) -> bool:
    """Whether a candidate of this key can still be among the best."""
    return bool(size < len(ready) or key <= ready[size - 1, KEY])


@part
def wait(waiting: Array, waits: int, key: int, rank: int, bound: int) -> int:
    """Files a node whose children of at most `bound` suffixes are still to be found; best last."""
    i = waits
    while i > 0 and waiting[i - 1, KEY] < key:
        _move(waiting, i - 1, i)
        i -= 1
    waiting[i, KEY], waiting[i, RANK], waiting[i, BOUND] = key, rank, bound
    return waits + 1


@part
def offer(ready: Array, size: int, depth: int, count: int, order: int) -> int:
    """Makes room for a candidate among the best: its index in `ready`, or -1 if it is none.

    A full list gives up its last entry, and that entry's slot.
    """
    key = depth - count * DEPTHS
    i, slot = size, size
    if size == len(ready):
        i = size - 1
        if not _before(key, order, ready[i, KEY], ready[i, ORDER]):
            return -1
        slot = ready[i, SLOT]
    while i > 0 and _before(key, order, ready[i - 1, KEY], ready[i - 1, ORDER]):
        _move(ready, i - 1, i)
        i -= 1
    ready[i, KEY], ready[i, ORDER], ready[i, SLOT] = key, order, slot
    return i


@part
def _move(rows: Array, source: int, target: int) -> None:
    for column in range(3):
        rows[target, column] = rows[source, column]


@part
def _before(key: int, order: int, other_key: int, other_order: int) -> bool:
    return key < other_key or (key == other_key and order < other_order)


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
def _mixed(value: np.uint64, word: int) -> np.uint64:
    """A running hash, one word on. Unsigned: a product of signed numbers that overflows may be
    taken for anything, and for another thing in `recall` than in `remember`."""
    value = (value ^ np.uint64(word)) * np.uint64(0x2545F4914F6CDD1D)
    return value ^ (value >> np.uint64(29))


@part
def _slot(known: Array, pattern: Array, budget: int) -> int:
    key = _mixed(np.uint64(budget), len(pattern))
    for i in range(len(pattern)):
        key = _mixed(key, pattern[i])
    return np.int64(key % np.uint64(len(known)))


@part
def _checksum(row: Array, size: int) -> int:
    """Of everything in use; never 0, which an empty row has."""
    value = np.uint64(1)
    for i in range(SUM + 1, FIRST + 2 * size):
        value = _mixed(value, row[i])
    return np.int64(value | np.uint64(1))


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
