"""What followed the last 1, 2, 3, ... tokens in suffix arrays: counts by order.

Narrow intervals are read whole and each occurrence is compared backwards, which gives all longer
orders at once; wide ones are sampled evenly, and the samples' outcome is remembered.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.blend.table import DEPTH, LEVELS, REACHED, count, hashed, row_of
from ngramkit.kernels.compile import part
from ngramkit.kernels.suffix.search import VOCABULARY, bucket, narrow, position_at, token_at

SPARSER = np.array([1, 1, 1, 2, 4, 4, 4, 4, 4], np.int64)  # longer orders are met again less often
KEPT = 32  # successors remembered of a context
MEMO_ROWS = 1 << 15


class Memo(NamedTuple):
    """What followed, by a hash of order and tokens; a row is overwritten by the next."""

    keys: Array  # uint64[rows], 0 is an empty row
    tokens: Array  # int32[rows, KEPT]
    counts: Array  # float32[rows, KEPT]
    sizes: Array  # int32[rows, 2], successors kept, distinct successors seen
    totals: Array  # float32[rows], of all successors


class Corpus(NamedTuple):
    """Shards that are looked up together, and what was found there so far."""

    table: Array  # int64[shards, 7], see suffix.search.shard_table
    memo: Memo
    pair_keys: Array  # uint64[rows]
    pairs: Array  # int64[rows, shards, 2], the intervals of two tokens in a row


def new_memo(rows: int) -> Memo:
    """Pages are taken as they are touched: about 400 bytes a row at most."""
    return Memo(
        keys=np.zeros(rows, np.uint64),
        tokens=np.zeros((rows, KEPT), np.int32),
        counts=np.zeros((rows, KEPT), np.float32),
        sizes=np.zeros((rows, 2), np.int32),
        totals=np.zeros(rows, np.float32),
    )


def new_corpus(table: Array, rows: int = MEMO_ROWS) -> Corpus:
    """The shards behind `table` (see suffix.search.shard_table) must outlive it."""
    shards = len(table)
    rows = rows if shards else 1
    return Corpus(
        table=table,
        memo=new_memo(rows),
        pair_keys=np.zeros(rows, np.uint64),
        pairs=np.zeros((rows, shards, 2), np.int64),
    )


@part
def descend(corpus, parent, child, recent, scan):
    """The intervals of every order of `recent`, from those of the context one token shorter.

    `parent`, `child` int64[DEPTH + 1, shards, 2]. Stops at the first order with at most `scan`
    occurrences: longer ones are told apart there by comparing backwards.
    """
    table = corpus.table
    for order in range(1, DEPTH + 1):
        for s in range(len(table)):
            child[order, s, 0] = child[order, s, 1] = 0
    width, token = 0, np.int64(recent[0])
    for s in range(len(table)):
        child[1, s, 0], child[1, s, 1] = bucket(table[s], token)
        width += child[1, s, 1] - child[1, s, 0]
    if width <= scan:
        return
    width = _pair(corpus, child[2], recent)
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


@part
def _pair(corpus, child, recent):
    """The intervals of the last two tokens: the widest searches, and the most often repeated."""
    key = hashed(recent, 2)
    slot = np.int64(key % np.uint64(len(corpus.pair_keys)))
    known = corpus.pair_keys[slot] == key
    table, pairs = corpus.table, corpus.pairs
    width = 0
    for s in range(len(table)):
        if not known:
            low, high = bucket(table[s], np.int64(recent[1]))
            if low < high:
                low, high = narrow(table[s], low, high, 1, np.int64(recent[0]))
            pairs[slot, s, 0], pairs[slot, s, 1] = low, high
        child[s, 0], child[s, 1] = pairs[slot, s, 0], pairs[slot, s, 1]
        width += child[s, 1] - child[s, 0]
    corpus.pair_keys[slot] = key
    return width


@part
def count_corpus(corpus, intervals, recent, into, scan, sample):
    """Adds what followed `recent` in the corpus; `intervals` are those of `descend`."""
    table, memo = corpus.table, corpus.memo
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
                begin_row(memo, slot, key, width)
                _sample(
                    table,
                    intervals[order],
                    order,
                    width,
                    sample // SPARSER[order],
                    corpus.memo,
                    slot,
                    into,
                )
            recall(memo, slot, into, level)
            level += 1


@part
def _read(shard, interval, order, recent, into, first):
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


@part
def _sample(table, intervals, order, width, sample, memo, slot, into):
    """Successors at `sample` evenly spaced occurrences, run by run: they come sorted by token.

    The most frequent KEPT runs are kept, the lower token first among equals.
    """
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


@part
def _runs(shard, into, first, last, order, memo, slot, worth):
    tokens = into.successors
    for i in range(first, last):
        tokens[i] = token_at(shard, into.positions[i] + order)
    begin = first
    for i in range(first + 1, last + 1):
        if i == last or tokens[i] != tokens[begin]:
            if tokens[begin] < shard[VOCABULARY]:
                keep(memo, slot, tokens[begin], (i - begin) * worth)
            begin = i


@part
def begin_row(memo, slot, key, total):
    """An empty row of the memo, for a context with `total` successors."""
    memo.keys[slot] = key
    memo.totals[slot] = total
    memo.sizes[slot, 0] = memo.sizes[slot, 1] = 0


@part
def keep(memo, slot, token, estimate):
    """Inserts a successor into the row's list, which stays sorted by count."""
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


@part
def recall(memo, slot, into, column):
    """Adds a row's successors to the column."""
    into.totals[column] += memo.totals[slot]
    into.distinct[column] += memo.sizes[slot, 1]
    for i in range(memo.sizes[slot, 0]):
        row = row_of(into, memo.tokens[slot, i])
        if row >= 0:
            into.counts[row, column] += memo.counts[slot, i]
