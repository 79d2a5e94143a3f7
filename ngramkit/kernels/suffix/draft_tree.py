"""The most frequent continuations of an interval, as a tree with exact counts.

Ties go to the shallower prefix, then to the earlier parent, then to the lower token.

Children of a wide interval are found with a grid of suffixes: equal points bound a run of one
token, and two bisections find its exact ends. A child of T suffixes cannot lie between points T/2
apart; T falls as the budget requires. In many shards children may escape, but almost never do.

A *span* int64[lanes, 3] is a prefix's intervals: (shard, low, high). Results per lane go into
`work` int64[WORK, lanes].
"""

from __future__ import annotations

import math

import numpy as np

from ngramkit.kernels.jit import allocating_part, part
from ngramkit.kernels.sorting import move_down_heap, move_up_heap
from ngramkit.kernels.suffix.search import (
    HIGH,
    LOW,
    ROWS as SEARCH,
    SHARD,
    VOCABULARY,
    lower_bound,
    lower_bounds,
    position_at,
    token_at,
)

MAX_READ_SUFFIXES = 64  # suffixes that are all read, at most; memory serves these in parallel
MAX_GRID_POINTS = 4096  # grid points per node, at most; wider intervals may lose rare children
# Children counted per budget, if MAX_GRID_POINTS limits a node in several shards.
CHILDREN_PER_BUDGET = 2
ROOT = -1

TOKEN, PARENT, DEPTH, COUNT, LANES = range(5)  # columns of nodes; LANES: lanes used in the span

MAX_DEPTHS = 32  # one more than the deepest node
KEY, ORDER, SLOT = range(3)  # columns of `ready`: its two sort keys, and the node's slot
_, RANK, BOUND = range(3)  # columns of `waiting`, after KEY: a node, the bound of its widest child

TALLY_CLASSES = 256  # classes of tokens by grid points; more points count as the last
MAX_LANES_ALONE = 16  # lanes that are bounded one by one, at most; see `_max_count_of_points`
SEARCHED_RUN = 8  # equal grid points after which the end of their run is searched

# Rows of `work`: those of the searches (`suffix.search`); per lane the suffix where its grid
# begins, its first grid point, the current one, the points of the token stepped over, and the end;
# then lists: the heap of lanes by next token, lanes stepped over, a child's lanes and intervals.
FIRST, BASE, POINT, POINTS, STOP, HEAP, MET, CHILD, BEGIN, END = range(SEARCH, SEARCH + 10)
WORK = SEARCH + 10
LANE_BITS = 32  # bits of a lane's number in the heap

MAX_TOKENS_IN_TURN = 4  # next tokens of an interval that are searched one after another, at most


@allocating_part
def choose_most_frequent_nodes(table, root, depth, budget, deepest, eos):
    """Return nodes int64[n, 4] (token, parent, depth, count), n <= budget, and the root's count.

    `root` int64[shards, 2] is a match of `depth` tokens; `deepest` is below 32. No node follows
    `eos` or is a separator.
    """
    lanes = total = 0
    for s in range(len(table)):
        lanes += root[s, 0] < root[s, 1]
        total += root[s, 1] - root[s, 0]
    ready = np.empty((budget, 3), np.int64)  # emitted nodes, then candidates
    nodes = np.empty((budget + 1, 5), np.int64)  # by slot; the last is the root
    spans = np.empty((budget + 1, lanes, 3), np.int64)  # by slot
    waiting = np.empty((budget + 1, 3), np.int64)  # nodes with children to find
    tokens = np.empty(MAX_GRID_POINTS + lanes + TALLY_CLASSES, np.int32)
    work = np.empty((WORK, lanes), np.int64)
    few = np.empty((MAX_TOKENS_IN_TURN, lanes, 2), np.int64)

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
        waits = _insert_waiting(waiting, waits, _key_by_count_then_depth(total, 1), ROOT, total)
    while emitted < budget:
        if waits and (emitted == size or waiting[waits - 1, KEY] <= ready[emitted, KEY]):
            waits -= 1
            rank, bound = waiting[waits, RANK], waiting[waits, BOUND]
            slot = ready[rank, SLOT] if rank >= 0 else budget
            size, bound = _offer_children(
                table, depth, slot, rank, bound, ready, size, nodes, spans, tokens, work, few
            )
            key = _key_by_count_then_depth(bound, nodes[slot, DEPTH] + 1)
            if bound > 0 and _is_among_best(ready, size, key):
                waits = _insert_waiting(waiting, waits, key, rank, bound)
        elif emitted < size:
            slot = ready[emitted, SLOT]
            count = nodes[slot, COUNT]
            key = _key_by_count_then_depth(count, nodes[slot, DEPTH] + 1)
            inner = nodes[slot, DEPTH] < deepest and nodes[slot, TOKEN] != eos
            if inner and _is_among_best(ready, size, key):
                waits = _insert_waiting(waiting, waits, key, emitted, count)
            emitted += 1
        else:
            break
    tree = np.empty((emitted, 4), np.int64)
    for rank in range(emitted):
        for column in range(4):
            tree[rank, column] = nodes[ready[rank, SLOT], column]
    return tree, total


@part
def _key_by_count_then_depth(count, depth):
    """Return a key that is lower for a larger count, then for a lower depth."""
    return depth - count * MAX_DEPTHS


@part
def _offer_children(table, depth, slot, rank, bound, ready, size, nodes, spans, tokens, work, few):
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
        return _offer_only_child(table, depth, slot, rank, ready, size, nodes, spans, work), 0
    target = max(bound >> 2, least)
    spacing, target, coarse = _choose_sample_spacing(width, lanes, target)
    if spacing > 1 and bound == width and _first_halves_are_one_token(table, span, depth):
        children = _find_few_tokens(table, span, depth, few, tokens, work[HEAP])
        for i in range(children):
            used, count = _child_of_few(few, i, work, lanes)
            if count >= least:
                size = _offer_child(
                    ready, size, tokens[i], rank, slot, used, count, nodes, spans, work
                )
        if children >= 0:
            return size, 0
    _read_sample(table, span, depth, spacing, tokens, work)
    floor = 0
    if coarse and lanes > 1:
        floor = _min_points_of_likeliest(tokens, work, lanes, CHILDREN_PER_BUDGET * budget)
    heap = _begin_merge(tokens, work, lanes)
    while heap:
        token = work[HEAP, 0] >> LANE_BITS
        if token >= table[0, VOCABULARY]:
            break
        heap, points, met = _step_over_token(tokens, work, heap, token)
        fewest = points * spacing - met * (spacing - 1)
        wanted = max(target, least)
        if (
            points >= floor
            and fewest <= bound
            and _max_count_of_points(points, spacing, lanes) >= wanted
        ):
            if spacing == 1:
                used, count = _child_from_read_tokens(span, work, met)
            else:
                used, count = _child_from_sample(table, span, depth, token, spacing, wanted, work)
            if wanted <= count <= bound:
                size = _offer_child(ready, size, token, rank, slot, used, count, nodes, spans, work)
                if size == budget:
                    least = nodes[ready[budget - 1, SLOT], COUNT]
        _clear_points(work, met)
    return size, target - 1


@part
def _choose_sample_spacing(width, lanes, target):
    """Return the spacing, the smallest child surely found, and if MAX_GRID_POINTS limits it."""
    spacing = max(target // (2 * min(lanes, MAX_LANES_ALONE)), 1)
    if width <= MAX_READ_SUFFIXES:
        spacing = 1
    if width > MAX_GRID_POINTS * spacing:
        return (width + MAX_GRID_POINTS - 1) // MAX_GRID_POINTS, 1, True
    return spacing, target if spacing > 1 else 1, False


@part
def _offer_only_child(table, depth, slot, rank, ready, size, nodes, spans, work):
    shard, low = table[spans[slot, 0, 0]], spans[slot, 0, 1]
    token = token_at(shard, position_at(shard, low) + depth)
    if token >= table[0, VOCABULARY]:
        return size
    work[CHILD, 0], work[BEGIN, 0], work[END, 0] = 0, low, low + 1
    return _offer_child(ready, size, token, rank, slot, 1, 1, nodes, spans, work)


@part
def _offer_child(ready, size, token, rank, parent, used, count, nodes, spans, work):
    """Offer a child, in `used` lanes of the parent's span; return the list's size."""
    level = nodes[parent, DEPTH] + 1
    i = _insert_if_among_best(ready, size, level, count, (rank + 1) << 32 | token)
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
def _is_among_best(ready, size, key):
    return size < len(ready) or key <= ready[size - 1, KEY]


@part
def _insert_waiting(waiting, waits, key, rank, bound):
    """Insert a node with children of at most `bound` suffixes left to find; best last."""
    i = waits
    while i > 0 and waiting[i - 1, KEY] < key:
        _move_row(waiting, i - 1, i)
        i -= 1
    waiting[i, KEY], waiting[i, RANK], waiting[i, BOUND] = key, rank, bound
    return waits + 1


@part
def _insert_if_among_best(ready, size, depth, count, order):
    """Insert a candidate; return its index in `ready`, or -1 if it is not among the best."""
    key = _key_by_count_then_depth(count, depth)
    i, slot = size, size
    if size == len(ready):
        i = size - 1
        if not _ranks_before(key, order, ready[i, KEY], ready[i, ORDER]):
            return -1
        slot = ready[i, SLOT]
    while i > 0 and _ranks_before(key, order, ready[i - 1, KEY], ready[i - 1, ORDER]):
        _move_row(ready, i - 1, i)
        i -= 1
    ready[i, KEY], ready[i, ORDER], ready[i, SLOT] = key, order, slot
    return i


@part
def _move_row(rows, source, target):
    for column in range(3):
        rows[target, column] = rows[source, column]


@part
def _ranks_before(key, order, other_key, other_order):
    return key < other_key or (key == other_key and order < other_order)


@part
def _read_sample(table, span, depth, spacing, tokens, work):
    """Read every `spacing`-th token at `depth` of the concatenated intervals."""
    point = skipped = 0
    for i in range(len(span)):
        shard, low = table[span[i, 0]], span[i, 1] + skipped
        first = point
        work[BASE, i], work[FIRST, i] = first, low
        last = first + max(span[i, 2] - low + spacing - 1, 0) // spacing
        skipped = low + (last - first) * spacing - span[i, 2]
        while point < last:
            at = low + (point - first) * spacing
            token = token_at(shard, position_at(shard, at) + depth)
            tokens[point] = token
            point += 1
            if (
                spacing > 1
                and point - first >= SEARCHED_RUN
                and tokens[point - SEARCHED_RUN] == token
            ):
                end = _end_of_run(shard, low - first * spacing, depth, spacing, token, point, last)
                tokens[point:end] = token
                point = end
        work[STOP, i] = last


@part
def _end_of_run(shard, zero, depth, spacing, token, point, last):
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


@part
def _begin_merge(tokens, work, lanes):
    heap = work[HEAP]
    size = 0
    for i in range(lanes):
        work[POINT, i], work[POINTS, i] = work[BASE, i], 0
        if work[BASE, i] < work[STOP, i]:
            heap[size] = tokens[work[BASE, i]] << LANE_BITS | i
            move_up_heap(heap, size)
            size += 1
    return size


@part
def _step_over_token(tokens, work, size, token):
    """Step over the points of the lowest token; return heap size, points and lanes."""
    heap = work[HEAP]
    points = met = 0
    while size and heap[0] >> LANE_BITS == token:
        i = heap[0] & ((1 << LANE_BITS) - 1)
        begin = point = work[POINT, i]
        while point < work[STOP, i] and tokens[point] == token:
            point += 1
        work[POINT, i], work[POINTS, i], work[MET, met] = point, point - begin, i
        points += point - begin
        met += 1
        if point < work[STOP, i]:
            heap[0] = tokens[point] << LANE_BITS | i
        else:
            size -= 1
            heap[0] = heap[size]
        move_down_heap(heap, size)
    return size, points, met


@part
def _clear_points(work, met):
    for k in range(met):
        work[POINTS, work[MET, k]] = 0


@part
def _max_count_of_points(points, spacing, lanes):
    """Return the most suffixes that a token with so many grid points can have.

    For more than MAX_LANES_ALONE lanes the bound is statistical: three deviations.
    """
    if lanes <= MAX_LANES_ALONE:
        return points * spacing + lanes * (spacing - 1)
    strays = min(0.5 * math.sqrt(lanes), math.sqrt(points) + 1.0)
    return math.floor((points + 3.0 * strays) * spacing)


@part
def _min_points_of_likeliest(tokens, work, lanes, wanted):
    """Return the least grid points of the `wanted` tokens with the most points."""
    tally = tokens[len(tokens) - TALLY_CLASSES :]
    tally[:] = 0
    size = _begin_merge(tokens, work, lanes)
    while size:
        size, points, met = _step_over_token(tokens, work, size, work[HEAP, 0] >> LANE_BITS)
        _clear_points(work, met)
        tally[min(points, TALLY_CLASSES - 1)] += 1
    points = TALLY_CLASSES - 1
    while points > 1 and tally[points] < wanted:
        tally[points - 1] += tally[points]
        points -= 1
    return points


@part
def _child_from_read_tokens(span, work, met):
    count = 0
    for k in range(met):
        i = work[MET, k]
        after = work[FIRST, i] + work[POINT, i] - work[BASE, i]
        work[CHILD, k], work[BEGIN, k], work[END, k] = i, after - work[POINTS, i], after
        count += work[POINTS, i]
    return met, count


@part
def _child_from_sample(table, span, depth, token, spacing, least, work):
    """File the child of `token`; return its lanes and count, or (0, 0) if too few."""
    lanes = len(span)
    for i in range(lanes):
        first = work[POINT, i] - work[POINTS, i] - work[BASE, i]
        at = work[FIRST, i] + first * spacing
        work[SHARD, i] = span[i, 0]
        work[LOW, i] = at - spacing + 1 if first else span[i, 1]
        work[HIGH, i] = min(at, span[i, 2])
    lower_bounds(table, work, lanes, depth, token)
    most = used = 0
    for i in range(lanes):
        low = work[LOW, i]
        after = work[FIRST, i] + (work[POINT, i] - work[BASE, i]) * spacing
        last = min(after, span[i, 2])
        shard = table[span[i, 0]]
        inside = low
        if work[POINTS, i]:
            inside = after - spacing + 1
        elif low == last or token_at(shard, position_at(shard, low) + depth) != token:
            continue
        work[CHILD, used], work[BEGIN, used] = i, low
        work[SHARD, used], work[LOW, used], work[HIGH, used] = span[i, 0], inside, last
        most += last - low
        used += 1
    if most < least:
        return 0, 0
    lower_bounds(table, work, used, depth, token + 1)
    count = 0
    for k in range(used):
        work[END, k] = work[LOW, k]
        count += work[END, k] - work[BEGIN, k]
    return used, count


@part
def _first_halves_are_one_token(table, span, depth):
    """Return whether each interval's first half has one next token."""
    for i in range(len(span)):
        shard, low, high = table[span[i, 0]], span[i, 1], span[i, 2]
        first = token_at(shard, position_at(shard, low) + depth)
        if token_at(shard, position_at(shard, (low + high - 1) >> 1) + depth) != first:
            return False
    return True


@part
def _find_few_tokens(table, span, depth, few, tokens, point):
    """Find an interval's next tokens, ascending; return their number.

    It is -1 if there are more than MAX_TOKENS_IN_TURN.
    """
    lanes = len(span)
    for i in range(lanes):
        point[i] = span[i, 1]
    for child in range(MAX_TOKENS_IN_TURN + 1):
        lowest = -1
        for i in range(lanes):
            if point[i] < span[i, 2]:
                shard = table[span[i, 0]]
                token = token_at(shard, position_at(shard, point[i]) + depth)
                if lowest < 0 or token < lowest:
                    lowest = token
        if lowest < 0 or lowest >= table[0, VOCABULARY]:
            return child
        if child == MAX_TOKENS_IN_TURN:
            break
        tokens[child] = lowest
        for i in range(lanes):
            low = point[i]
            point[i] = lower_bound(table[span[i, 0]], low, span[i, 2], depth, lowest + 1)
            few[child, i, 0], few[child, i, 1] = low, point[i]
    return -1


@part
def _child_of_few(few, child, work, lanes):
    used = count = 0
    for i in range(lanes):
        low, high = few[child, i, 0], few[child, i, 1]
        if low < high:
            work[CHILD, used], work[BEGIN, used], work[END, used] = i, low, high
            count += high - low
            used += 1
    return used, count
