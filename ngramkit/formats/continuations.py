"""What follows a phrase in suffix arrays, most frequent first: a few reads of a memory map each.

For people who look into a datastore; drafters have a compiled kernel that gives the same answer
(kernels.suffix.continuations). No compiled code starts here, so an answer is there at once, and a
value that points outside its array is an IndexError.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ngramkit.formats.datastore import DatastoreShard

Ids = npt.NDArray[np.int64]
Span = tuple[int, int]  # in a suffix array, the second excluded
FINER = 8  # how much rarer the continuations are that the next look at a place finds


def spans_of(shards: Sequence[DatastoreShard], phrase: Sequence[int]) -> list[Span]:
    """Where the suffixes that begin with `phrase` stand, in each shard."""
    return [_span(shard, phrase) for shard in shards]


def _span(shard: DatastoreShard, phrase: Sequence[int]) -> Span:
    if not phrase or not 0 <= phrase[0] < len(shard.first_token) - 2:
        return 0, 0
    span = (int(shard.first_token[phrase[0]]), int(shard.first_token[phrase[0] + 1]))
    for depth, token in enumerate(phrase[1:], 1):
        low, high = _within(shard, span, depth, np.array([token, token + 1]))
        span = (int(low), int(high))
    return span


def top_continuations(
    shards: Sequence[DatastoreShard],
    spans: Sequence[Span],
    depth: int,
    top: int,
    deepest: int,
    ends: frozenset[int],
) -> list[tuple[list[int], int]]:
    """The `top` most frequent continuations of the `depth` tokens whose suffixes are at `spans`.

    Of any length up to `deepest`, counted over all shards; ties to the shorter, then to what goes
    on from the more frequent, then to the lower id. None goes on behind an id of `ends`, and none
    holds a separator.
    """
    found: list[tuple[list[int], int]] = []
    total = sum(high - low for low, high in spans)
    waiting = [_Waiting(-total, 1, False, 0, 0, [], spans)] if total and deepest else []
    while waiting and len(found) < top:
        first = heapq.heappop(waiting)
        most, length, path = -first.minus, first.length, first.path
        if first.known:
            found.append((path, most))
            if length < deepest and path[-1] not in ends:
                rank = len(found)
                more = _Waiting(-most, length + 1, False, rank, 0, path, first.spans)
                heapq.heappush(waiting, more)
            continue
        least = max(most // FINER, 1)
        for token, count, parts in _followers(shards, first.spans, depth + len(path), least):
            if count <= most:
                one = _Waiting(-count, length, True, first.parent, token, [*path, token], parts)
                heapq.heappush(waiting, one)
        if least > 1:
            heapq.heappush(waiting, first._replace(minus=1 - least))
    return found


class _Waiting(NamedTuple):
    """A continuation, or (not known) those of `length` that are seen `-minus` times at most.

    In the order in which they are given.
    """

    minus: int
    length: int
    known: bool
    parent: int  # the rank of what it goes on from
    token: int
    path: list[int]
    spans: Sequence[Span]


def _followers(
    shards: Sequence[DatastoreShard], spans: Sequence[Span], depth: int, least: int
) -> Iterator[tuple[int, int, list[Span]]]:
    """(token, count, spans) of every token that stands at least `least` times at `depth`."""
    # What is frequent in all shards together is so, for its size, in one of them.
    step = max(least // len(shards), 1)
    seen = [
        _tokens(s, np.arange(*span, step), depth) for s, span in zip(shards, spans, strict=True)
    ]
    tokens = _distinct(np.concatenate(seen))
    tokens = tokens[tokens < len(shards[0].first_token) - 2]  # not the separator
    bounds = [
        (_within(s, span, depth, tokens), _within(s, span, depth, tokens + 1))
        for s, span in zip(shards, spans, strict=True)
    ]
    counts = np.array([high - low for low, high in bounds]).sum(axis=0)
    for i in np.flatnonzero(counts >= least).tolist():
        yield int(tokens[i]), int(counts[i]), [(int(low[i]), int(high[i])) for low, high in bounds]


def _distinct(tokens: Ids) -> Ids:
    """As numpy.unique, which imports numpy's masked arrays: that takes longer than all of this."""
    tokens = np.sort(tokens)
    return tokens[np.diff(tokens, prepend=-1) > 0]


def _within(shard: DatastoreShard, span: Span, depth: int, tokens: Ids) -> Ids:
    """int64[n]: where in `span`, whose suffixes agree before `depth`, each token would begin."""
    low, high = np.full(len(tokens), span[0], np.int64), np.full(len(tokens), span[1], np.int64)
    searched = np.flatnonzero(low < high)
    while len(searched):
        middle = (low[searched] + high[searched]) // 2
        below = _tokens(shard, middle, depth) < tokens[searched]
        low[searched[below]] = middle[below] + 1
        high[searched[~below]] = middle[~below]
        searched = searched[low[searched] < high[searched]]
    return low


def _tokens(shard: DatastoreShard, rows: Ids, depth: int) -> Ids:
    """int64[n]: the token `depth` behind the begin of each suffix."""
    return np.asarray(shard.tokens[shard.suffix_array[rows].astype(np.int64) + depth], np.int64)
