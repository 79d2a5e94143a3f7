"""A grid over intervals: the next tokens in them, from a few evenly spaced suffixes.

The tokens at one depth of an interval are sorted, so equal grid points bound a run of one token
from both sides, and its exact ends are two bisections inside single cells. The grids of all shards
are merged in the order of their tokens. An interval with only a handful of next tokens, as in text
that repeats itself, is searched for one token after another instead.

A *span*, int64[lanes, 3], is the intervals of one prefix: (shard, low, high), without the shards
that do not hold it. Results per lane go into the rows of `work`, int64[WORK, lanes].
"""

from __future__ import annotations

import math

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import part
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

TALLIES = 256  # classes of tokens by their points; more points count as the last
APART = 16  # more lanes than these are bounded together: see `most_of`
RUN = 8  # equal grid points after which a run's end is searched for instead of read up to

# Rows of `work`: those of the searches (`kernels.suffix.search`), then of each lane where its grid
# begins, its first grid point, the one reached, how many of them hold the token stepped over, the
# end; then lists: the heap of lanes by next token, lanes stepped over, lanes that hold a child and
# where in them.
FIRST, BASE, POINT, POINTS, STOP, HEAP, MET, CHILD, BEGIN, END = range(SEARCH, SEARCH + 10)
WORK = SEARCH + 10
LANE = 32  # bits of a lane's number in the heap

FEW = 4


@part
def sample(table: Array, span: Array, depth: int, spacing: int, tokens: Array, work: Array) -> None:
    """Read every `spacing`-th token at `depth` of the intervals, as if one followed the other.

    So the lanes' grids begin at different places, though what is in them is alike. Inside a long
    run of one token most points are not read: what lies between two equals is equal.
    """
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
            if spacing > 1 and point - first >= RUN and tokens[point - RUN] == token:
                end = _end_of_run(shard, low - first * spacing, depth, spacing, token, point, last)
                tokens[point:end] = token
                point = end
        work[STOP, i] = last


@part
def _end_of_run(
    shard: Array, zero: int, depth: int, spacing: int, token: int, point: int, last: int
) -> int:
    """Return the first grid point of [point, last) with another token than the one before it."""
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
def begin_merge(tokens: Array, work: Array, lanes: int) -> int:
    """Make a heap of the lanes by their first tokens; return its size."""
    heap = work[HEAP]
    size = 0
    for i in range(lanes):
        work[POINT, i], work[POINTS, i] = work[BASE, i], 0
        if work[BASE, i] < work[STOP, i]:
            key, at = tokens[work[BASE, i]] << LANE | i, size
            while at > 0 and heap[(at - 1) >> 1] > key:
                heap[at] = heap[(at - 1) >> 1]
                at = (at - 1) >> 1
            heap[at] = key
            size += 1
    return size


@part
def step_over(tokens: Array, work: Array, size: int, token: int) -> tuple[int, int, int]:
    """Step over the points that hold `token`, the lowest of the heap. Return the size of the heap,
    the number of points and of their lanes; work[MET] lists the lanes and work[POINTS] their
    points, until `step_on`."""
    heap = work[HEAP]
    points = met = 0
    while size and heap[0] >> LANE == token:
        i = heap[0] & ((1 << LANE) - 1)
        begin = point = work[POINT, i]
        while point < work[STOP, i] and tokens[point] == token:
            point += 1
        work[POINT, i], work[POINTS, i], work[MET, met] = point, point - begin, i
        points += point - begin
        met += 1
        if point < work[STOP, i]:
            heap[0] = tokens[point] << LANE | i
        else:
            size -= 1
            heap[0] = heap[size]
        _sift(heap, size)
    return size, points, met


@part
def _sift(heap: Array, size: int) -> None:
    """Move the heap's first key down to its place."""
    key, at = heap[0], 0
    while True:
        below = 2 * at + 1
        if below + 1 < size and heap[below + 1] < heap[below]:
            below += 1
        if below >= size or heap[below] >= key:
            break
        heap[at] = heap[below]
        at = below
    heap[at] = key


@part
def step_on(work: Array, met: int) -> None:
    """Clear the points of the lanes that were stepped over."""
    for k in range(met):
        work[POINTS, work[MET, k]] = 0


@part
def most_of(points: int, spacing: int, lanes: int) -> int:
    """Return how many suffixes a token with so many grid points has at most.

    In each lane one less than the spacing may lie beside its points. In many lanes all but surely
    far fewer do: their sum strays by half a point times the root of the lanes, where points are few
    by their own root, and three times that is allowed for.
    """
    if lanes <= APART:
        return points * spacing + lanes * (spacing - 1)
    strays = min(0.5 * math.sqrt(lanes), math.sqrt(points) + 1.0)
    return math.floor((points + 3.0 * strays) * spacing)


@part
def points_of_likely(tokens: Array, work: Array, lanes: int, wanted: int) -> int:
    """Return the fewest grid points of the `wanted` tokens with the most points. The last TALLIES
    of `tokens` are scratch."""
    tally = tokens[len(tokens) - TALLIES :]
    tally[:] = 0
    size = begin_merge(tokens, work, lanes)
    while size:
        size, points, met = step_over(tokens, work, size, work[HEAP, 0] >> LANE)
        step_on(work, met)
        tally[min(points, TALLIES - 1)] += 1
    points = TALLIES - 1
    while points > 1 and tally[points] < wanted:
        tally[points - 1] += tally[points]
        points -= 1
    return points


@part
def read_all(span: Array, work: Array, met: int) -> tuple[int, int]:
    """File the child of the token stepped over, in a grid without gaps; return how many lanes hold
    it, and the number of its suffixes."""
    count = 0
    for k in range(met):
        i = work[MET, k]
        after = work[FIRST, i] + work[POINT, i] - work[BASE, i]
        work[CHILD, k], work[BEGIN, k], work[END, k] = i, after - work[POINTS, i], after
        count += work[POINTS, i]
    return met, count


@part
def bisect(
    table: Array, span: Array, depth: int, token: int, spacing: int, least: int, work: Array
) -> tuple[int, int]:
    """File the child of `token`; return how many lanes hold it, and the number of its suffixes, 0
    where they are fewer than `least`."""
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
def begins_alike(table: Array, span: Array, depth: int) -> bool:
    """Return whether the first half of every interval has one next token."""
    for i in range(len(span)):
        shard, low, high = table[span[i, 0]], span[i, 1], span[i, 2]
        first = token_at(shard, position_at(shard, low) + depth)
        if token_at(shard, position_at(shard, (low + high - 1) >> 1) + depth) != first:
            return False
    return True


@part
def all_of_few(
    table: Array, span: Array, depth: int, few: Array, tokens: Array, point: Array
) -> int:
    """Find all next tokens of an interval, ascending, where they are at most FEW.

    They go into `tokens`, int32[FEW or more], their intervals into `few`, int64[FEW, lanes, 2].
    `point` int64[lanes] is scratch. Returns how many there are, separators not counted; -1 where
    there are more.
    """
    lanes = len(span)
    for i in range(lanes):
        point[i] = span[i, 1]
    for child in range(FEW + 1):
        lowest = -1
        for i in range(lanes):
            if point[i] < span[i, 2]:
                shard = table[span[i, 0]]
                token = token_at(shard, position_at(shard, point[i]) + depth)
                if lowest < 0 or token < lowest:
                    lowest = token
        if lowest < 0 or lowest >= table[0, VOCABULARY]:
            return child
        if child == FEW:
            break
        tokens[child] = lowest
        for i in range(lanes):
            low = point[i]
            point[i] = lower_bound(table[span[i, 0]], low, span[i, 2], depth, lowest + 1)
            few[child, i, 0], few[child, i, 1] = low, point[i]
    return -1


@part
def one_of_few(few: Array, child: int, work: Array, lanes: int) -> tuple[int, int]:
    """File one of them as a child; return how many lanes hold it, and the number of its
    suffixes."""
    used = count = 0
    for i in range(lanes):
        low, high = few[child, i, 0], few[child, i, 1]
        if low < high:
            work[CHILD, used], work[BEGIN, used], work[END, used] = i, low, high
            count += high - low
            used += 1
    return used, count
