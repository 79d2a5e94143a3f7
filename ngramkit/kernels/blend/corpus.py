"""What followed the last 1, 2, 3, ... tokens in suffix arrays: counts by order.

Of the intervals that `blend.intervals` finds, narrow ones are read whole and each occurrence is
compared backwards, which gives all longer orders at once; wide ones are sampled evenly, and the
samples' outcome is remembered.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.blend.table import DEPTH, LEVELS, REACHED, count, hashed, row_of, slot_of
from ngramkit.kernels.jit import part
from ngramkit.kernels.suffix.search import VOCABULARY, bucket, position_at, token_at

SPARSER = np.array([1, 1, 1, 2, 4, 4, 4, 4, 4], np.int64)  # longer orders are met again less often
KEPT = 32  # successors remembered of a context
MEMO_ROWS = 1 << 17
PAIRS_BYTES = 1 << 25  # of remembered intervals, at most
APART = np.uint64(0x8CB92BA72F3D8DD6)  # of sources in keys; even, so a key is never 0


class Memo(NamedTuple):
    """What followed, by a hash of order and tokens; a row is overwritten by the next."""

    keys: Array  # uint64[rows], 0 is an empty row
    tokens: Array  # int32[rows, KEPT]
    counts: Array  # float32[rows, KEPT]
    sizes: Array  # int32[rows, 2], successors kept, distinct successors seen
    totals: Array  # float32[rows], of all successors


class Corpus(NamedTuple):
    """Sources, each of shards that are looked up together, and what was found there so far."""

    table: Array  # int64[shards, 7], see suffix.search.shard_table
    ends: Array  # int64[sources], where the shards of each end in it
    firsts: Array  # int64[sources, vocabulary], where each token stands; [0, 0] where not summed up
    memo: Memo
    pair_keys: Array  # uint64[pair rows]
    pairs: Array  # int64[pair rows, shards, 2], the intervals of two tokens in a row


def new_memo(rows: int) -> Memo:
    """Pages are taken as they are touched: about 280 bytes a row at most."""
    return Memo(
        keys=np.zeros(rows, np.uint64),
        tokens=np.zeros((rows, KEPT), np.int32),
        counts=np.zeros((rows, KEPT), np.float32),
        sizes=np.zeros((rows, 2), np.int32),
        totals=np.zeros(rows, np.float32),
    )


def new_corpus(
    table: Array, rows: int = MEMO_ROWS, ends: Array | None = None, firsts: Array | None = None
) -> Corpus:
    """The shards behind `table` (see suffix.search.shard_table) must outlive it; of one source,
    where `ends` does not part them. `firsts` saves a look into every shard for each token."""
    shards = len(table)
    rows = rows if shards else 1
    pair_rows = _pair_rows(rows, shards)
    return Corpus(
        table=table,
        ends=np.array([shards], np.int64) if ends is None else ends,
        firsts=np.empty((0, 0), np.int64) if firsts is None else firsts,
        memo=new_memo(rows),
        pair_keys=np.zeros(pair_rows, np.uint64),
        pairs=np.zeros((pair_rows, shards, 2), np.int64),
    )


def _pair_rows(rows: int, shards: int) -> int:
    """As many as there is room for, a power of two: an interval takes 16 bytes."""
    while rows > 1 and rows * shards * 16 > PAIRS_BYTES:
        rows //= 2
    return rows


@part
def first_of(corpus, source):
    """The source's first shard."""
    return corpus.ends[source - 1] if source else np.int64(0)


@part
def first_width(corpus, source, token):
    """How many suffixes begin with `token`, as `corpus.firsts` say."""
    return corpus.firsts[source, token] if 0 <= token < corpus.firsts.shape[1] else np.int64(0)


@part
def buckets(table, first, end, token, intervals):
    """The intervals of one token in shards of [first, end); returns how wide they are together."""
    width = np.int64(0)
    for s in range(first, end):
        intervals[s, 0], intervals[s, 1] = bucket(table[s], token)
        width += intervals[s, 1] - intervals[s, 0]
    return width


@part
def _width(corpus, source, order, recent, intervals, scan):
    """How often the last `order` tokens stand in a source. Where one token stands is only looked
    up where that is asked for: few occurrences are read, and many sampled once."""
    first, end = first_of(corpus, source), corpus.ends[source]
    if order == 1 and len(corpus.firsts):
        token = np.int64(recent[0])
        width = first_width(corpus, source, token)
        if width > scan and corpus.memo.keys[_slot(corpus, source, 1, recent)] == _key(
            source, 1, recent
        ):
            return width
        return buckets(corpus.table, first, end, token, intervals)
    width = np.int64(0)
    for s in range(first, end):
        width += intervals[s, 1] - intervals[s, 0]
    return width


@part
def _key(source, order, recent):
    return hashed(recent, order) + APART * np.uint64(source)


@part
def _slot(corpus, source, order, recent):
    return slot_of(_key(source, order, recent), len(corpus.memo.keys))


@part
def count_corpus(corpus, source, intervals, recent, into, scan, sample):
    """Adds what followed `recent` in a source; `intervals` are those of `descend`."""
    table, memo = corpus.table, corpus.memo
    first, end = first_of(corpus, source), corpus.ends[source]
    level = 0
    for order in range(1, DEPTH + 1):
        width = _width(corpus, source, order, recent, intervals[order], scan)
        if width == 0:
            return
        if width <= scan:
            for s in range(first, end):
                _read(table[s], intervals[order, s], order, recent, into, level)
            return
        if LEVELS[level] == order:
            key, slot = _key(source, order, recent), _slot(corpus, source, order, recent)
            if memo.keys[slot] != key:
                begin_row(memo, slot, key, np.float32(width))
                taken = sample // SPARSER[order]
                _sample(corpus, first, end, intervals[order], order, width, taken, slot, into)
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
def _sample(corpus, first, end, intervals, order, width, sample, slot, into):
    """Successors at `sample` evenly spaced occurrences, run by run: they come sorted by token.

    The most frequent KEPT runs are kept, the lower token first among equals.
    """
    table, memo, positions = corpus.table, corpus.memo, into.positions
    done, before = 0, 0
    for s in range(first, end):
        high = before + intervals[s, 1] - intervals[s, 0]
        begun = done
        while done < sample and done * width // sample < high:
            index = intervals[s, 0] + done * width // sample - before
            positions[done] = position_at(table[s], index)
            done += 1
        _runs(table[s], into, begun, done, order, memo, slot, width / sample)
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
                keep(memo, slot, tokens[begin], np.float32((i - begin) * worth))
            begin = i


@part
def begin_row(memo, slot, key, total):
    """An empty row of the memo, for a context with `total` successors (float32: of each other type
    that comes, a part is compiled once more)."""
    memo.keys[slot] = key
    memo.totals[slot] = total
    memo.sizes[slot, 0] = memo.sizes[slot, 1] = 0


@part
def keep(memo, slot, token, estimate):
    """Inserts a successor into the row's list, which stays sorted by count. `estimate`: float32."""
    tokens, counts, sizes = memo.tokens[slot], memo.counts[slot], memo.sizes[slot]
    sizes[1] += 1
    at = np.int64(sizes[0])
    if at == KEPT:
        if counts[KEPT - 1] >= estimate:
            return
        at -= 1
    else:
        sizes[0] += 1
    while at > 0 and counts[at - 1] < estimate:
        counts[at], tokens[at] = counts[at - 1], tokens[at - 1]
        at -= 1
    counts[at], tokens[at] = estimate, token


@part
def recall(memo, slot, into, column):
    """Adds a row's successors to the column."""
    into.totals[column] += memo.totals[slot]
    into.distinct[column] += memo.sizes[slot, 1]
    for i in range(memo.sizes[slot, 0]):
        row = row_of(into, memo.tokens[slot, i])
        if row >= 0:
            into.counts[row, column] += memo.counts[slot, i]
