"""Exact counts of a phrase and its continuations in an artifact, for `inspect` and cards.

Written in numpy, so that no command waits for a compiler; drafters use a kernel with the same
results (kernels.suffix.draft_tree).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ngramkit.basics.errors import UsageError
from ngramkit.basics.kinds import a_kind
from ngramkit.basics.terminal_text import counted
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.datastore import Datastore, DatastoreShard
from ngramkit.formats.frozen_table import FrozenTable

MAX_QUERY_TOKENS = 8  # tokens of a datastore's continuation

Ids = npt.NDArray[np.int64]
Span = tuple[int, int]  # [begin, end) in a suffix array


@dataclass(frozen=True)
class Occurrences:
    phrase: list[int]
    matches: int
    continuations: list[tuple[list[int], int]]


def require_phrases(artifact: Artifact) -> Datastore | FrozenTable:
    """Return the artifact. Raises UsageError for kinds without counted phrases."""
    if isinstance(artifact, Datastore | FrozenTable):
        return artifact
    raise UsageError(
        f"cannot look up a text in {a_kind(artifact.kind)}",
        "Name a datastore or a frozen table.",
        option="query",
    )


def query_artifact(
    artifact: Datastore | FrozenTable, phrase: Sequence[int], top: int
) -> Occurrences:
    """Return the `top` most frequent continuations of `phrase`.

    A datastore counts over all shards. A frozen table looks up the last `leader_len` tokens.
    Raises UsageError for fewer tokens.
    """
    least = artifact.leader_len if isinstance(artifact, FrozenTable) else 1
    if len(phrase) < least:
        raise UsageError(
            f"query must have at least {counted(least, 'token')} for {artifact.where}, "
            f"got {len(phrase)}",
            "Give a longer text.",
            option="query",
        )
    if isinstance(artifact, FrozenTable):
        return _count_in_table(artifact, list(phrase[-artifact.leader_len :]), top)
    return _count_in_datastore(artifact, phrase, top)


def most_frequent(artifact: Artifact, top: int, followers: int) -> Iterator[Occurrences]:
    """Yield the `top` most frequent leaders (of a datastore, tokens), ties to the lower ids."""
    if isinstance(artifact, Datastore):
        buckets = sum(shard.first_token.astype(np.int64) for shard in artifact.shards)
        counts = np.diff(buckets)[: artifact.separator]
        for token in np.argsort(-counts, kind="stable")[:top].tolist():
            if counts[token]:
                yield _count_in_datastore(artifact, [token], followers)
    if isinstance(artifact, FrozenTable):
        counts = artifact.leader_counts.astype(np.int64)
        for row in np.argsort(-counts, kind="stable")[:top]:
            yield _count_in_table(artifact, artifact.leaders[row].tolist(), followers)


def frequent_phrases(
    artifact: Artifact, top: int, followers: int, *, longest: int = 4, least: int = 2
) -> Iterator[Occurrences]:
    """Yield the `top` most frequent phrases with at least `least` occurrences each, best first.

    A datastore's have 2 to `longest` tokens, and so have their continuations at most; a frozen
    table's are its leaders.
    """
    if isinstance(artifact, FrozenTable):
        yield from _drop_rarer_than(most_frequent(artifact, top, followers), least)
    elif isinstance(artifact, Datastore):
        shards = artifact.shards
        everything = [(0, len(shard.suffix_array)) for shard in shards]
        # Most of the frequent ones are single tokens.
        found = top_continuations(shards, everything, 0, 4 * top, _ends_of(artifact), longest)
        phrases = [ids for ids, count in found if len(ids) > 1 and count >= least][:top]
        counts = (_count_in_datastore(artifact, each, followers, longest) for each in phrases)
        yield from _drop_rarer_than(counts, least)


def _drop_rarer_than(found: Iterable[Occurrences], least: int) -> Iterator[Occurrences]:
    for each in found:
        kept = [(ids, count) for ids, count in each.continuations if count >= least]
        if kept and each.matches >= least:
            yield replace(each, continuations=kept)


def _count_in_table(table: FrozenTable, leader: list[int], top: int) -> Occurrences:
    row = table.find(leader)
    if row < 0:
        return Occurrences(leader, 0, [])
    begin, end = (int(offset) for offset in table.follower_offsets[row : row + 2])
    rows = slice(begin, min(end, begin + top))
    followers = zip(table.followers[rows], table.follower_counts[rows], strict=True)
    best = [(follower.tolist(), int(count)) for follower, count in followers]
    return Occurrences(leader, int(table.leader_counts[row]), best)


def _count_in_datastore(
    datastore: Datastore, phrase: Sequence[int], top: int, longest: int = MAX_QUERY_TOKENS
) -> Occurrences:
    shards, spans = datastore.shards, spans_of(datastore.shards, phrase)
    best = top_continuations(shards, spans, len(phrase), top, _ends_of(datastore), longest)
    return Occurrences(list(phrase), sum(high - low for low, high in spans), best)


def _ends_of(datastore: Datastore) -> frozenset[int]:
    eos = datastore.tokenizer.eos
    return frozenset(() if eos is None else [eos])


# Continuations in suffix arrays, most frequent first.


def spans_of(shards: Sequence[DatastoreShard], phrase: Sequence[int]) -> list[Span]:
    return [_find_span(shard, phrase) for shard in shards]


def _find_span(shard: DatastoreShard, phrase: Sequence[int]) -> Span:
    if not phrase or not 0 <= phrase[0] < len(shard.first_token) - 2:
        return 0, 0
    span = (int(shard.first_token[phrase[0]]), int(shard.first_token[phrase[0] + 1]))
    for depth, token in enumerate(phrase[1:], 1):
        low, high = _first_suffixes(shard, span, depth, np.array([token, token + 1]))
        span = (int(low), int(high))
    return span


def top_continuations(
    shards: Sequence[DatastoreShard],
    spans: Sequence[Span],
    depth: int,
    top: int,
    ends: frozenset[int],
    longest: int = MAX_QUERY_TOKENS,
) -> list[tuple[list[int], int]]:
    """Return the `top` most frequent continuations of the `depth` tokens with suffixes at `spans`.

    None has more than `longest` tokens, contains a separator or continues after an id of `ends`.
    Ties go to the shorter, then to the one whose beginning is more frequent, then to the lower id.
    """
    best: list[tuple[list[int], int]] = []
    total = sum(high - low for low, high in spans)
    waiting = [_Waiting(-total, 1, False, 0, 0, [], spans)] if total else []
    while waiting and len(best) < top:
        first = heapq.heappop(waiting)
        most, length, path = -first.minus, first.length, first.path
        if first.known:
            best.append((path, most))
            if length < longest and path[-1] not in ends:
                rank = len(best)
                more = _Waiting(-most, length + 1, False, rank, 0, path, first.spans)
                heapq.heappush(waiting, more)
            continue
        least = max(most // 8, 1)
        for token, count, parts in _frequent_followers(
            shards, first.spans, depth + len(path), least
        ):
            if count <= most:
                one = _Waiting(-count, length, True, first.parent, token, [*path, token], parts)
                heapq.heappush(waiting, one)
        if least > 1:
            heapq.heappush(waiting, first._replace(minus=1 - least))
    return best


class _Waiting(NamedTuple):
    """A continuation that was counted, or all of `length` tokens that were not counted yet.

    The latter occur at most `-minus` times. Both sort in the order of the results.
    """

    minus: int
    length: int
    known: bool
    parent: int  # the rank of its beginning
    token: int
    path: list[int]
    spans: Sequence[Span]


def _frequent_followers(
    shards: Sequence[DatastoreShard], spans: Sequence[Span], depth: int, least: int
) -> Iterator[tuple[int, int, list[Span]]]:
    """Yield (token, count, spans) of tokens with at least `least` occurrences at `depth`."""
    # A token with `least` occurrences in all shards together has `step` in one of them.
    step = max(least // len(shards), 1)
    seen = [
        _tokens_at_depth(s, np.arange(*span, step), depth)
        for s, span in zip(shards, spans, strict=True)
    ]
    tokens = _distinct_tokens(np.concatenate(seen))
    tokens = tokens[tokens < len(shards[0].first_token) - 2]  # not the separator
    bounds = [
        (_first_suffixes(s, span, depth, tokens), _first_suffixes(s, span, depth, tokens + 1))
        for s, span in zip(shards, spans, strict=True)
    ]
    counts = np.array([high - low for low, high in bounds]).sum(axis=0)
    for i in np.flatnonzero(counts >= least).tolist():
        yield int(tokens[i]), int(counts[i]), [(int(low[i]), int(high[i])) for low, high in bounds]


def _distinct_tokens(tokens: Ids) -> Ids:
    """Avoid numpy.unique's slow import of masked arrays."""
    tokens = np.sort(tokens)
    return tokens[np.diff(tokens, prepend=-1) > 0]


def _first_suffixes(shard: DatastoreShard, span: Span, depth: int, tokens: Ids) -> Ids:
    """Return the first suffix of each token at `depth` in `span`: int64[n]."""
    low, high = np.full(len(tokens), span[0], np.int64), np.full(len(tokens), span[1], np.int64)
    searched = np.flatnonzero(low < high)
    while len(searched):
        middle = (low[searched] + high[searched]) // 2
        below = _tokens_at_depth(shard, middle, depth) < tokens[searched]
        low[searched[below]] = middle[below] + 1
        high[searched[~below]] = middle[~below]
        searched = searched[low[searched] < high[searched]]
    return low


def _tokens_at_depth(shard: DatastoreShard, rows: Ids, depth: int) -> Ids:
    return np.asarray(shard.tokens[shard.suffix_array[rows].astype(np.int64) + depth], np.int64)
