"""A grid over intervals: which tokens come next in them, from a few evenly spaced suffixes.

The tokens at one depth of an interval are sorted, so equal grid points bound a run of one token
from both sides, and its exact ends are two bisections inside single cells. All shards' grids are
merged in the order of their tokens. A text that repeats itself makes wide intervals with only a
handful of next tokens, which are found one after another: a grid would read the same token
thousands of times. See `kernels.suffix.search` for shard tables and intervals.
"""

from __future__ import annotations

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.compile import part
from ngramkit.kernels.suffix.search import VOCABULARY, lower_bound, position_at, token_at

FEW = 4
TALLIES = 256  # from so many points on, tokens are not told apart by them
RUN = 8  # equal grid points after which a run's end is searched for instead of read up to
# Rows of the merge over shards: the grid's begin, the point reached, the point behind the run of
# one token, the end; then the interval found for that token.
BASE, POINT, NEXT, STOP, LOW, HIGH = range(6)


@part
def sample(table: Array, span: Array, depth: int, spacing: int, tokens: Array, work: Array) -> None:
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


@part
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


@part
def next_token(tokens: Array, work: Array) -> int:
    """The lowest token that a shard's grid holds next, -1 at the end."""
    lowest = -1
    for s in range(work.shape[1]):
        point = work[POINT, s]
        if point < work[STOP, s] and (lowest < 0 or tokens[point] < lowest):
            lowest = tokens[point]
    return lowest


@part
def step_over(tokens: Array, work: Array, token: int, spacing: int) -> tuple[int, int]:
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


@part
def most_of_likely(tokens: Array, work: Array, spacing: int, wanted: int) -> int:
    """What `step_over` says that a token has at most, the least of it for the `wanted` tokens with
    the most points. The end of `tokens`, TALLIES of them, is scratch."""
    tally = tokens[len(tokens) - TALLIES :]
    tally[:] = 0
    while True:
        token = next_token(tokens, work)
        if token < 0:
            break
        points, _ = step_over(tokens, work, token, 1)
        tally[min(points, TALLIES - 1)] += 1
        for s in range(work.shape[1]):
            work[POINT, s] = work[NEXT, s]
    for s in range(work.shape[1]):
        work[POINT, s] = work[BASE, s]
    points = TALLIES - 1
    while points > 1 and tally[points] < wanted:
        tally[points - 1] += tally[points]
        points -= 1
    return int(work.shape[1] * (spacing - 1) + spacing * points)


@part
def bisect(table: Array, span: Array, depth: int, token: int, spacing: int, work: Array) -> int:
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


@part
def begins_alike(table: Array, span: Array, depth: int) -> bool:
    """Whether the first half of every shard's interval, int64[shards, 2], has one next token."""
    for s in range(len(table)):
        shard, low, high = table[s], span[s, 0], span[s, 1]
        if low < high:
            first = token_at(shard, position_at(shard, low) + depth)
            middle = (low + high - 1) >> 1
            if token_at(shard, position_at(shard, middle) + depth) != first:
                return False
    return True


@part
def all_of_few(
    table: Array, span: Array, depth: int, few: Array, tokens: Array, point: Array
) -> int:
    """All next tokens of an interval, ascending, where they are at most FEW.

    They go into `tokens`, int32[FEW or more], their intervals into `few`, int64[FEW, shards, 2].
    `point` int64[shards] is scratch. Returns how many there are, separators not counted; -1 where
    there are more.
    """
    shards = len(table)
    for s in range(shards):
        point[s] = span[s, 0]
    for found in range(FEW + 1):
        lowest = -1
        for s in range(shards):
            if point[s] < span[s, 1]:
                token = token_at(table[s], position_at(table[s], point[s]) + depth)
                if lowest < 0 or token < lowest:
                    lowest = token
        if lowest < 0 or lowest >= table[0, VOCABULARY]:
            return found
        if found == FEW:
            break
        tokens[found] = lowest
        for s in range(shards):
            low = point[s]
            point[s] = lower_bound(table[s], low, span[s, 1], depth, lowest + 1)
            few[found, s, 0], few[found, s, 1] = low, point[s]
    return -1
