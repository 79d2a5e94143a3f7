"""What followed the last 1, 2, 3, ... tokens: counts by order, from datastores and live context.

Everything is written into one table of candidates. Its columns are the datastores' levels, then
the live context's: level i counts the successors of the last LEVELS[i] tokens. Narrow intervals of
the suffix arrays are read whole and each occurrence is compared backwards, which gives all longer
orders at once; wide ones are sampled evenly, and the samples' outcome is remembered.

`recent` is always i32[DEPTH]: the last tokens, the newest first, -1 before the beginning.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ngramkit.kernels.leaf import leaf
from ngramkit.kernels.suffix import VOCABULARY, bucket, position_at, token_at

Array = npt.NDArray[Any]

LEVELS = np.array([1, 2, 3, 4, 6, 8], np.int64)
N_LEVELS = 6
COLUMNS = 2 * N_LEVELS
DEPTH = 8  # the longest order told apart
# The highest level that a match of m tokens reaches: LEVELS[REACHED[m]] <= m.
REACHED = np.array([-1, 0, 1, 2, 3, 3, 4, 4, 5], np.int64)
CANDIDATES = 512
BUFFER = 1024  # occurrences read or sampled at a time, at most
SPARSER = np.array([1, 1, 1, 2, 4, 4, 4, 4, 4], np.int64)  # longer orders are met again less often
KEPT = 48  # successors remembered of a sampled interval
NEVER = -1


class Live(NamedTuple):
    """The live context, with a chain from every token to where the same token stood before."""

    tokens: Array  # int32[capacity]
    previous: Array  # int32[capacity], -1 ends a chain
    latest: Array  # int32[V + 1], the newest position of each token, -1 for none
    counts: Array  # int32[V + 1]


class Candidates(NamedTuple):
    """Successors of one context, with their counts by column."""

    tokens: Array  # int32[CANDIDATES]
    counts: Array  # float32[CANDIDATES, COLUMNS]
    newest: Array  # int32[CANDIDATES], where it last followed the last token live, or NEVER
    slot: Array  # int32[V + 1], a token's row ...
    stamp: Array  # int32[V + 1], ... if this is the current stamp
    totals: Array  # float32[COLUMNS], of all successors, those without a row too
    distinct: Array  # float32[COLUMNS]
    state: Array  # int64[2], rows in use, current stamp
    positions: Array  # int64[BUFFER], scratch
    successors: Array  # int64[BUFFER], scratch


class Memo(NamedTuple):
    """Outcomes of samples, by a hash of order and tokens; a row is overwritten by the next."""

    keys: Array  # uint64[rows], 0 is an empty row
    tokens: Array  # int32[rows, KEPT]
    counts: Array  # float32[rows, KEPT]
    sizes: Array  # int32[rows, 2], successors kept, distinct successors seen
    pair_keys: Array  # uint64[rows]
    pairs: Array  # int64[rows, shards, 2], the intervals of two tokens in a row


@leaf
def remember(live, begin, end):  # type: ignore[no-untyped-def]
    """Links live.tokens[begin:end] into the chains."""
    for position in range(begin, end):
        token = live.tokens[position]
        live.previous[position] = live.latest[token]
        live.latest[token] = position
        live.counts[token] += 1


@leaf
def narrow(shard, low, high, depth, token):  # type: ignore[no-untyped-def]
    """The part of [low, high) whose token at `depth` is `token`. Its end is near: galloping."""
    end = high
    while low < end:
        middle = (low + end) >> 1
        if token_at(shard, position_at(shard, middle) + depth) < token:
            low = middle + 1
        else:
            end = middle
    begin, step = low, 1
    while low + step <= high and (
        token_at(shard, position_at(shard, low + step - 1) + depth) <= token
    ):
        low += step
        step <<= 1
    end = min(high, low + step - 1)
    while low < end:
        middle = (low + end) >> 1
        if token_at(shard, position_at(shard, middle) + depth) <= token:
            low = middle + 1
        else:
            end = middle
    return begin, low


@leaf
def descend(table, parent, child, recent, scan, memo):  # type: ignore[no-untyped-def]
    """The intervals of every order of `recent`, from those of the context one token shorter.

    `parent`, `child` int64[DEPTH + 1, shards, 2]. Stops at the first order with at most `scan`
    occurrences: longer ones are told apart there by comparing backwards.
    """
    for order in range(1, DEPTH + 1):
        for s in range(len(table)):
            child[order, s, 0] = child[order, s, 1] = 0
    width, token = 0, np.int64(recent[0])
    for s in range(len(table)):
        child[1, s, 0], child[1, s, 1] = bucket(table[s], token)  # type: ignore[arg-type]
        width += child[1, s, 1] - child[1, s, 0]
    if width <= scan:
        return
    width = _pair(table, parent[1], child[2], recent, memo)
    for order in range(3, DEPTH + 1):
        if width <= scan:
            return
        width = 0
        for s in range(len(table)):
            low, high = parent[order - 1, s, 0], parent[order - 1, s, 1]
            if low < high:
                low, high = narrow(table[s], low, high, order - 1, token)
                child[order, s, 0], child[order, s, 1] = low, high
                width += high - low


@leaf
def _pair(table, parent, child, recent, memo):  # type: ignore[no-untyped-def]
    """The intervals of the last two tokens: the widest searches, and the most often repeated."""
    key = hashed(recent, 2)
    slot = np.int64(key % np.uint64(len(memo.pair_keys)))
    known = memo.pair_keys[slot] == key
    width = 0
    for s in range(len(table)):
        if not known:
            low, high = parent[s, 0], parent[s, 1]
            if low < high:
                low, high = narrow(table[s], low, high, 1, np.int64(recent[0]))
            memo.pairs[slot, s, 0], memo.pairs[slot, s, 1] = low, high
        child[s, 0], child[s, 1] = memo.pairs[slot, s, 0], memo.pairs[slot, s, 1]
        width += child[s, 1] - child[s, 0]
    memo.pair_keys[slot] = key
    return width


@leaf
def clear(into):  # type: ignore[no-untyped-def]
    """Begins a new table of candidates."""
    into.state[0] = 0
    into.state[1] += 1
    for column in range(COLUMNS):
        into.totals[column] = 0
        into.distinct[column] = 0


@leaf
def row_of(into, token):  # type: ignore[no-untyped-def]
    """The candidate's row, a new one where it has none yet; -1 where the table is full."""
    if into.stamp[token] == into.state[1]:
        return np.int64(into.slot[token])
    row = into.state[0]
    if row == CANDIDATES:
        return np.int64(-1)
    into.state[0] = row + 1
    into.stamp[token] = into.state[1]
    into.slot[token] = row
    into.tokens[row] = token
    into.newest[row] = NEVER
    for column in range(COLUMNS):
        into.counts[row, column] = 0
    return row


@leaf
def count(into, token, first, last):  # type: ignore[no-untyped-def]
    """One more occurrence of `token`, in the columns first..last."""
    row = row_of(into, token)
    for column in range(first, last + 1):
        into.totals[column] += 1
        if row >= 0:
            if into.counts[row, column] == 0:
                into.distinct[column] += 1
            into.counts[row, column] += 1
    return row


@leaf
def count_datastores(table, intervals, recent, memo, into, scan, sample):  # type: ignore[no-untyped-def]
    """Adds what followed `recent` in the datastores; `intervals` are those of `descend`."""
    level = 0
    for order in range(1, DEPTH + 1):
        width = 0
        for s in range(len(table)):
            width += intervals[order, s, 1] - intervals[order, s, 0]
        if width == 0:
            return
        if width <= scan:
            for s in range(len(table)):
                _read(table[s], intervals[order, s], order, recent, into, level)
            return
        if LEVELS[level] == order:
            key = hashed(recent, order)
            slot = np.int64(key % np.uint64(len(memo.keys)))
            if memo.keys[slot] != key:
                taken = sample // SPARSER[order]
                _sample(table, intervals[order], order, width, taken, memo, slot, into)
                memo.keys[slot] = key
            _recall(memo, slot, into, level, width)
            level += 1


@leaf
def _read(shard, interval, order, recent, into, first):  # type: ignore[no-untyped-def]
    width = interval[1] - interval[0]
    positions, tokens = into.positions, into.successors
    # Loads that do not wait for each other: the memory answers many at once.
    for i in range(width):
        positions[i] = position_at(shard, interval[0] + i)
    for i in range(width):
        tokens[i] = token_at(shard, positions[i] + order)
    for i in range(width):
        match = order
        before = positions[i] - 1
        while match < DEPTH and before >= 0 and token_at(shard, before) == recent[match]:
            match += 1
            before -= 1
        last = REACHED[match]
        if tokens[i] < shard[VOCABULARY]:
            count(into, tokens[i], first, last)
        else:  # the document ends here
            for column in range(first, last + 1):
                into.totals[column] += 1


@leaf
def hashed(recent, order):  # type: ignore[no-untyped-def]
    key = np.uint64(order)
    for i in range(order):
        key = (key ^ np.uint64(recent[i])) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    return key | np.uint64(1)


@leaf
def _sample(table, intervals, order, width, sample, memo, slot, into):  # type: ignore[no-untyped-def]
    """Successors at `sample` evenly spaced occurrences, run by run: they come sorted by token.

    The most frequent KEPT runs are kept, the lower token first among equals.
    """
    memo.sizes[slot] = 0
    positions = into.positions
    done, before = 0, 0
    for s in range(len(table)):
        high = before + intervals[s, 1] - intervals[s, 0]
        first = done
        while done < sample and done * width // sample < high:
            index = intervals[s, 0] + done * width // sample - before
            positions[done] = position_at(table[s], index)
            done += 1
        _runs(table[s], into, first, done, order, memo, slot, width / sample)
        before = high


@leaf
def _runs(shard, into, first, last, order, memo, slot, worth):  # type: ignore[no-untyped-def]
    tokens = into.successors
    for i in range(first, last):
        tokens[i] = token_at(shard, into.positions[i] + order)
    begin = first
    for i in range(first + 1, last + 1):
        if i == last or tokens[i] != tokens[begin]:
            if tokens[begin] < shard[VOCABULARY]:
                _keep(memo, slot, tokens[begin], (i - begin) * worth)
            begin = i


@leaf
def _keep(memo, slot, token, estimate):  # type: ignore[no-untyped-def]
    """Inserts a run into the row's list, which stays sorted by count."""
    tokens, counts, sizes = memo.tokens[slot], memo.counts[slot], memo.sizes[slot]
    sizes[1] += 1
    amount = np.float32(estimate)
    at = np.int64(sizes[0])
    if at == KEPT:
        if counts[KEPT - 1] >= amount:
            return
        at -= 1
    else:
        sizes[0] += 1
    while at > 0 and counts[at - 1] < amount:
        counts[at], tokens[at] = counts[at - 1], tokens[at - 1]
        at -= 1
    counts[at], tokens[at] = amount, token


@leaf
def _recall(memo, slot, into, column, width):  # type: ignore[no-untyped-def]
    into.totals[column] += width
    into.distinct[column] += memo.sizes[slot, 1]
    for i in range(memo.sizes[slot, 0]):
        row = row_of(into, memo.tokens[slot, i])
        if row >= 0:
            into.counts[row, column] += memo.counts[slot, i]


@leaf
def count_live(live, size, recent, into, hops):  # type: ignore[no-untyped-def]
    """Adds what followed `recent` in live.tokens[:size], at the newest `hops` occurrences.

    An id that equals the separator stands for all that the tokenizer does not know.
    """
    separator = len(live.latest) - 1
    if recent[0] < 0 or recent[0] == separator:
        return
    position = live.latest[recent[0]]
    if position == size - 1:  # what follows it is the question
        position = live.previous[position]
    while position >= 0 and hops > 0:
        match = 1
        before = position - 1
        while match < DEPTH and before >= 0 and live.tokens[before] == recent[match]:
            match += 1
            before -= 1
        last = N_LEVELS + REACHED[match]
        if live.tokens[position + 1] < separator:
            row = count(into, live.tokens[position + 1], N_LEVELS, last)
            if row >= 0 and into.newest[row] == NEVER:
                into.newest[row] = position
        position = live.previous[position]
        hops -= 1
