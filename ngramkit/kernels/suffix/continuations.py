"""The most frequent continuations of an interval, as a tree, with exact counts.

Best first: the most frequent prefix left is emitted next, ties to the shallower one, then to the
parent emitted earlier, then to the lower token. A prefix's count is the width of its interval,
summed over the shards, so no match is ever enumerated. The children of a wide interval are found
through a grid (`suffix.grid`): a child of at least T suffixes cannot lie between points T/2 apart,
and a bisection inside two cells gives its ends. T falls as far as the budget requires. Spread over
many shards, a child can escape the grid, but almost never does (`grid.most_of`).

Drafts of frequent contexts are memoized: exact counts of what followed a word that occurs a hundred
thousand times take milliseconds in many shards, and text comes back to such words. A row of the
memo holds one draft and is overwritten by the next; threads may share the rows, since a row is used
only if its checksum is right.
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
LIKELY = 2  # times the budget: children counted of such a node, where that takes several shards
ROOT = -1

TOKEN, PARENT, DEPTH, COUNT, LANES = range(5)  # columns of nodes; LANES of a span are used

DEPTHS = 32  # one more than the deepest node
KEY, ORDER, SLOT = range(3)  # columns of `ready`: its two sort keys, and the node's slot
_, RANK, BOUND = range(3)  # columns of `waiting`, after its KEY: a node, its widest child at most

# The memo of drafts.
ROWS = 1 << 12
LENGTH = 16  # tokens of a match at most
NODES = 128  # of a draft at most
# Columns of int64[ROWS, WORDS]; after them come the match, and two words for each node.
SUM, SIZE, TOTAL, BUDGET, MATCHED, PATTERN = range(6)
FIRST = PATTERN + LENGTH
WORDS = FIRST + 2 * NODES
DEPTH_BITS = 6  # beside a node's parent


@allocating_part
def top_prefixes(
    table: Array, root: Array, depth: int, budget: int, deepest: int, eos: int
) -> tuple[Array, int]:
    """Return nodes int64[n, 4] (token, parent, depth, count), n <= budget, and the root's count.

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
    tree = np.empty((emitted, 4), np.int64)
    for rank in range(emitted):
        for column in range(4):
            tree[rank, column] = nodes[ready[rank, SLOT], column]
    return tree, total


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
    """Offer children of at most `bound` suffixes; return the list's size and the bound left."""
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
        children = all_of_few(table, span, depth, few, tokens, work[HEAP])
        for i in range(children):
            used, count = one_of_few(few, i, work, lanes)
            if count >= least:
                size = _file(ready, size, tokens[i], rank, slot, used, count, nodes, spans, work)
        if children >= 0:
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
                used, count = read_all(span, work, met)
            else:
                used, count = bisect(table, span, depth, token, spacing, wanted, work)
            if wanted <= count <= bound:
                size = _file(ready, size, token, rank, slot, used, count, nodes, spans, work)
                if size == budget:
                    least = nodes[ready[budget - 1, SLOT], COUNT]
        step_on(work, met)
    return size, target - 1


@part
def _grid_of(width: int, lanes: int, target: int) -> tuple[int, int, bool]:
    """Return how far apart grid points are, the least suffixes of a child that is surely found, and
    whether PROBES limits them."""
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
    """Offer the token after a prefix that occurs once; return the list's size."""
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
    used: int,
    count: int,
    nodes: Array,
    spans: Array,
    work: Array,
) -> int:
    """Offer a child of the node in the slot `parent`; return the list's size. The child's intervals
    lie in `used` lanes of the parent's span, given by work[CHILD], work[BEGIN] and work[END]."""
    level = nodes[parent, DEPTH] + 1
    i = offer(ready, size, level, count, (rank + 1) << 32 | token)
    if i < 0:
        return size
    slot = ready[i, SLOT]
    nodes[slot, TOKEN], nodes[slot, PARENT] = token, rank
    nodes[slot, DEPTH], nodes[slot, COUNT] = level, count
    written = 0
    for k in range(used):
        low, high = work[BEGIN, k], work[END, k]
        if low < high:
            spans[slot, written, 0] = spans[parent, work[CHILD, k], 0]
            spans[slot, written, 1], spans[slot, written, 2] = low, high
            written += 1
    nodes[slot, LANES] = written
    return min(size + 1, len(ready))


@part
def may_enter(ready: Array, size: int, key: int) -> bool:
    """Return whether a candidate of this key can still be among the best."""
    return bool(size < len(ready) or key <= ready[size - 1, KEY])


@part
def wait(waiting: Array, waits: int, key: int, rank: int, bound: int) -> int:
    """Insert a node whose children of at most `bound` suffixes are still to be found; best last."""
    i = waits
    while i > 0 and waiting[i - 1, KEY] < key:
        _move(waiting, i - 1, i)
        i -= 1
    waiting[i, KEY], waiting[i, RANK], waiting[i, BOUND] = key, rank, bound
    return waits + 1


@part
def offer(ready: Array, size: int, depth: int, count: int, order: int) -> int:
    """Make room for a candidate among the best; return its index in `ready`, -1 if it is none.

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


def new_draft_memo(rows: int = ROWS) -> Array:
    """Return an empty memo; pages are taken as they are touched, 2.3 KB a row at most."""
    return np.zeros((rows, WORDS), np.int64)


@part
def _hash_word(value: np.uint64, word: int) -> np.uint64:
    """Return a running hash, one word further.

    Unsigned: a product of signed numbers that overflows is undefined, and compiled to one thing in
    `recall` and to another in `remember`.
    """
    value = (value ^ np.uint64(word)) * np.uint64(0x2545F4914F6CDD1D)
    return value ^ (value >> np.uint64(29))


@part
def _slot(memo: Array, pattern: Array, budget: int) -> np.int64:
    key = _hash_word(np.uint64(budget), len(pattern))
    for i in range(len(pattern)):
        key = _hash_word(key, pattern[i])
    return np.int64(key % np.uint64(len(memo)))


@part
def _checksum(row: Array, size: int) -> np.int64:
    """Return a checksum of all words in use; never 0, which an empty row has."""
    value = np.uint64(1)
    for i in range(SUM + 1, FIRST + 2 * size):
        value = _hash_word(value, row[i])
    return np.int64(value | np.uint64(1))


@allocating_part
def recall(memo: Array, pattern: Array, budget: int) -> tuple[Array, int]:
    """Return the nodes and the total that `remember` was given for this match, int32[m], and
    budget; without nodes where the memo has none."""
    nothing = np.empty((0, 4), np.int64)
    if len(pattern) > LENGTH or budget > NODES:
        return nothing, 0
    row = memo[_slot(memo, pattern, budget)].copy()  # another thread may write it
    size = row[SIZE]
    if row[BUDGET] != budget or row[MATCHED] != len(pattern) or not 0 < size <= NODES:
        return nothing, 0
    for i in range(len(pattern)):
        if row[PATTERN + i] != pattern[i]:
            return nothing, 0
    if row[SUM] != _checksum(row, size):
        return nothing, 0
    nodes = np.empty((size, 4), np.int64)
    for i in range(size):
        word = row[FIRST + 2 * i]
        nodes[i, TOKEN], below = word >> 32, word & 0xFFFFFFFF
        nodes[i, PARENT], nodes[i, DEPTH] = (below >> DEPTH_BITS) - 1, below & (1 << DEPTH_BITS) - 1
        nodes[i, COUNT] = row[FIRST + 2 * i + 1]
    return nodes, row[TOTAL]


@part
def remember(memo: Array, pattern: Array, budget: int, nodes: Array, total: int) -> None:
    """Keep `nodes` and `total` of `top_prefixes` for this match, int32[m], and budget."""
    if len(pattern) > LENGTH or budget > NODES or not 0 < len(nodes) <= NODES:
        return
    row = memo[_slot(memo, pattern, budget)]
    row[SIZE], row[TOTAL], row[BUDGET], row[MATCHED] = len(nodes), total, budget, len(pattern)
    for i in range(LENGTH):
        row[PATTERN + i] = pattern[i] if i < len(pattern) else 0
    for i in range(len(nodes)):
        below = (nodes[i, PARENT] + 1) << DEPTH_BITS | nodes[i, DEPTH]
        row[FIRST + 2 * i] = nodes[i, TOKEN] << 32 | below
        row[FIRST + 2 * i + 1] = nodes[i, COUNT]
    row[SUM] = _checksum(row, len(nodes))
