"""Successors of the text's last tokens, counted in itself, in corpora and in frozen tables.

Candidates: the table that successors are counted in, by column. The first columns are the
corpora's levels, then come those of the text itself; level i counts the successors of the last
LEVELS[i] tokens.
Live: the text itself, with a chain from every token to where the same token stood before.
Corpus: shards of suffix arrays. Their intervals of the last 1, 2, 3, ... tokens follow the text, or
a draft, token by token; wide ones are sampled, and what was counted for frequent contexts is kept.
Frozen: a table of n-grams with the counts of their successors.

`recent` is everywhere int32[DEPTH]: the last tokens, the newest first, NO_TOKEN before the first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import part
from ngramkit.kernels.packed import load_i64, unsigned_at
from ngramkit.kernels.suffix.search import VOCABULARY, bucket, narrow, position_at, token_at

LEVELS = np.array([1, 2, 3, 4, 6, 8], np.int64)
N_LEVELS = 6
COLUMNS = 2 * N_LEVELS
PAIR = 1  # the corpora's column of the last two tokens
DEPTH = 8  # the longest order told apart
# The highest level that a match of m tokens reaches: LEVELS[REACHED[m]] <= m.
REACHED = np.array([-1, 0, 1, 2, 3, 3, 4, 4, 5], np.int64)
CANDIDATES = 512
BUFFER = 1024  # occurrences read or sampled at a time, at most
NEVER = -1


SCAN, SAMPLE, HOPS, EOS = range(4)  # columns of Sources.limits


class Candidates(NamedTuple):
    """Successors of one context, with their counts by column."""

    tokens: Array  # int32[CANDIDATES]
    counts: Array  # float32[CANDIDATES, COLUMNS]
    newest: Array  # int32[CANDIDATES], where it last followed the last token live, or NEVER
    source: Array  # uint8[CANDIDATES], drafters.base.Source: who held it first
    known: Array  # uint8[CANDIDATES], see `erase`
    slot: Array  # int32[V + 1], a token's row ...
    stamp: Array  # int32[V + 1], ... if this is the current stamp
    totals: Array  # float32[COLUMNS], of all successors, those without a row too
    distinct: Array  # float32[COLUMNS]
    state: Array  # int64[3], rows in use, current stamp, source of new rows
    positions: Array  # int64[BUFFER], scratch
    successors: Array  # int64[BUFFER], scratch


def new_candidates(vocabulary: int) -> Candidates:
    return Candidates(
        tokens=np.empty(CANDIDATES, np.int32),
        counts=np.empty((CANDIDATES, COLUMNS), np.float32),
        newest=np.empty(CANDIDATES, np.int32),
        source=np.empty(CANDIDATES, np.uint8),
        known=np.empty(CANDIDATES, np.uint8),
        slot=np.zeros(vocabulary + 1, np.int32),
        stamp=np.zeros(vocabulary + 1, np.int32),
        totals=np.zeros(COLUMNS, np.float32),
        distinct=np.zeros(COLUMNS, np.float32),
        state=np.zeros(3, np.int64),
        positions=np.empty(BUFFER, np.int64),
        successors=np.empty(BUFFER, np.int64),
    )


@part
def clear(into):
    """Begins a new table."""
    into.state[0] = 0
    into.state[1] += 1
    for column in range(COLUMNS):
        into.totals[column] = 0
        into.distinct[column] = 0


@part
def erase(into):
    """The corpora's columns are empty again, for the next of them; the candidates stay, and whether
    one had counts in the column PAIR is `known`."""
    for column in range(N_LEVELS):
        into.totals[column] = 0
        into.distinct[column] = 0
    for row in range(into.state[0]):
        into.known[row] |= into.counts[row, PAIR] > 0
        for column in range(N_LEVELS):
            into.counts[row, column] = 0


@part
def row_of(into, token):
    """The candidate's row, a new one where it has none yet; -1 where the table is full, or where
    it is no id: whatever a file says, nothing is written outside."""
    if token < 0 or token >= len(into.stamp):
        return np.int64(-1)
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
    into.source[row] = into.state[2]
    into.known[row] = 0
    for column in range(COLUMNS):
        into.counts[row, column] = 0
    return row


@part
def count(into, token, first, last):
    """One more occurrence of `token`, in the columns first..last."""
    row = row_of(into, token)
    for column in range(first, last + 1):
        into.totals[column] += 1
        if row >= 0:
            if into.counts[row, column] == 0:
                into.distinct[column] += 1
            into.counts[row, column] += 1
    return row


@part
def hashed(recent, order):
    # Far from any token, or an order that equals its newest token would cancel it.
    key = np.uint64(order) * np.uint64(0xD6E8FEB86659FD93)
    for i in range(order):
        key = (key ^ np.uint64(recent[i])) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    return key | np.uint64(1)


@part
def slot_of(key, rows):
    """A key's row, of as many as a power of two. A key is odd, so its last bit tells nothing."""
    return np.int64(key >> np.uint64(1)) & (rows - 1)


class Live(NamedTuple):
    """The live context, with a chain from every token to where the same token stood before."""

    tokens: Array  # int32[capacity]
    previous: Array  # int32[capacity], -1 ends a chain
    latest: Array  # int32[V + 1], the newest position of each token, -1 for none
    seen: Array  # int32[capacity], how often the token has stood, up to and with this position


def new_live(vocabulary: int, capacity: int) -> Live:
    return Live(
        tokens=np.empty(capacity, np.int32),
        previous=np.empty(capacity, np.int32),
        latest=np.full(vocabulary + 1, -1, np.int32),
        seen=np.empty(capacity, np.int32),
    )


def grown(live: Live, capacity: int) -> Live:
    """The same with room for `capacity` tokens."""
    more = capacity - len(live.tokens)
    return live._replace(
        tokens=np.concatenate([live.tokens, np.empty(more, np.int32)]),
        previous=np.concatenate([live.previous, np.empty(more, np.int32)]),
        seen=np.concatenate([live.seen, np.empty(more, np.int32)]),
    )


@part
def remember(live, begin, end):
    """Links live.tokens[begin:end] into the chains."""
    for position in range(begin, end):
        token = live.tokens[position]
        before = live.latest[token]
        live.previous[position] = before
        live.latest[token] = position
        live.seen[position] = live.seen[before] + 1 if before >= 0 else 1


@part
def unlearn(live, begin, end):
    """live.tokens[begin:end], the newest ones, were taken back."""
    for position in range(end - 1, begin - 1, -1):
        live.latest[live.tokens[position]] = live.previous[position]


@part
def count_live(live, size, recent, into, hops):
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


ALL = -1  # as `awake`: every source is looked up
LAST_BIT = 62  # of `awake`; it stands for all sources from there on


@part
def is_awake(awake, source):
    """Whether a source is looked up; `awake` has a bit for each, -1 is all of them."""
    return (awake >> min(source, LAST_BIT)) & 1


@part
def descend(corpus, parent, child, recent, scan, awake):
    """The intervals of every order of `recent`, from those of the context one token shorter.

    `parent`, `child` int64[DEPTH + 1, shards, 2]. Stops in each source at the first order with at
    most `scan` occurrences: longer ones are told apart there by comparing backwards. Sources that
    are not `awake` have none. Those of one token are left to `count_corpus` where it has `firsts`.
    """
    for order in range(1, DEPTH + 1):
        for s in range(len(corpus.table)):
            child[order, s, 0] = child[order, s, 1] = 0
    for source in range(len(corpus.ends)):
        if is_awake(awake, source):
            _descend(corpus, source, parent, child, recent, scan)


@part
def _descend(corpus, source, parent, child, recent, scan):
    table, first, end = corpus.table, first_of(corpus, source), corpus.ends[source]
    token = np.int64(recent[0])
    if len(corpus.firsts):
        width = first_width(corpus, source, token)
    else:
        width = buckets(table, first, end, token, child[1])
    if width <= scan:
        return
    width = _pair(corpus, source, child[2], recent)
    for order in range(3, DEPTH + 1):
        if width <= scan:
            return
        width = 0
        for s in range(first, end):
            low, high = parent[order - 1, s, 0], parent[order - 1, s, 1]
            if low < high:
                low, high = narrow(table[s], low, high, order - 1, token)
                child[order, s, 0], child[order, s, 1] = low, high
                width += high - low


@part
def _pair(corpus, source, child, recent):
    """The intervals of the last two tokens: the widest searches, and the most often repeated."""
    key = hashed(recent, 2) + APART * np.uint64(source)
    slot = slot_of(key, len(corpus.pair_keys))
    known = corpus.pair_keys[slot] == key
    table, pairs = corpus.table, corpus.pairs
    width = 0
    for s in range(first_of(corpus, source), corpus.ends[source]):
        if not known:
            low, high = bucket(table[s], np.int64(recent[1]))
            if low < high:
                low, high = narrow(table[s], low, high, 1, np.int64(recent[0]))
            pairs[slot, s, 0], pairs[slot, s, 1] = low, high
        child[s, 0], child[s, 1] = pairs[slot, s, 0], pairs[slot, s, 1]
        width += child[s, 1] - child[s, 0]
    corpus.pair_keys[slot] = key
    return width


# Columns of `where`: five addresses, three item sizes, two lengths of n-grams, two of arrays.
LEADERS, LEADER_COUNTS, OFFSETS, FOLLOWERS, FOLLOWER_COUNTS = range(5)
ID_BYTES, LEADER_COUNT_BYTES, FOLLOWER_COUNT_BYTES = range(5, 8)
LEADER_LEN, FOLLOWER_LEN, SIZE, FOLLOWERS_SIZE = range(8, 12)


class Frozen(NamedTuple):
    """A frozen table; SIZE 0 where there is none."""

    where: Array  # int64[12]
    memo: Memo


def frozen_row(
    leaders: Array, leader_counts: Array, offsets: Array, followers: Array, follower_counts: Array
) -> Array:
    """int64[12], `where` of these arrays; they must outlive it."""
    arrays = (leaders, leader_counts, offsets, followers, follower_counts)
    sizes = [array.itemsize for array in (leaders, leader_counts, follower_counts)]
    lengths = [leaders.shape[1], followers.shape[1], len(leaders), len(followers)]
    return np.array([*(array.ctypes.data for array in arrays), *sizes, *lengths], np.int64)


def new_frozen(where: Array | None) -> Frozen:
    """The table behind `where` (see frozen_row) must outlive it."""
    if where is None:
        return Frozen(np.zeros(FOLLOWERS_SIZE + 1, np.int64), new_memo(1))
    return Frozen(where, new_memo(MEMO_ROWS))


@part
def count_frozen(frozen, recent, into, second):
    """Adds what followed `recent` in the table. `second` is another table, for its sums."""
    where, memo = frozen.where, frozen.memo
    for level in range(N_LEVELS):
        order = LEVELS[level]
        more = order - where[LEADER_LEN]  # tokens of the follower that are context
        if more < 0:
            continue
        if more >= where[FOLLOWER_LEN] or recent[order - 1] < 0:
            return
        key = hashed(recent, order)
        slot = slot_of(key, len(memo.keys))
        if memo.keys[slot] != key:
            _look_up(where, recent, order, more, memo, slot, key, second)
        if memo.sizes[slot, 0]:
            recall(memo, slot, into, level)


@part
def _look_up(where, recent, order, more, memo, slot, key, second):
    """One context's row of the memo: the leader's followers that begin with its last tokens."""
    row = _find(where, recent, order)
    if row < 0:
        begin_row(memo, slot, key, np.float32(0))
        return
    clear(second)
    total = np.float32(0)
    begin = max(load_i64(where[OFFSETS], row), 0)  # whatever a file says, nothing outside is read
    for index in range(begin, min(load_i64(where[OFFSETS], row + 1), where[FOLLOWERS_SIZE])):
        at = index * where[FOLLOWER_LEN]
        same = True
        for i in range(more):
            found = unsigned_at(where[FOLLOWERS], where[ID_BYTES], at + i)
            same = same and found == recent[more - 1 - i]
        if same:
            times = unsigned_at(where[FOLLOWER_COUNTS], where[FOLLOWER_COUNT_BYTES], index)
            successor = row_of(second, unsigned_at(where[FOLLOWERS], where[ID_BYTES], at + more))
            total += times
            if successor >= 0:
                second.counts[successor, 0] += times
    if more == 0:  # all that followed, the followers that were not kept too
        total = np.float32(unsigned_at(where[LEADER_COUNTS], where[LEADER_COUNT_BYTES], row))
    begin_row(memo, slot, key, np.float32(total))
    for successor in range(second.state[0]):
        keep(memo, slot, second.tokens[successor], second.counts[successor, 0])


@part
def _find(where, recent, order):
    """The row of the leader that the last `order` tokens begin with, -1 where it was not kept."""
    low, high = np.int64(0), where[SIZE]
    while low < high:
        middle = (low + high) >> 1
        if _order(where, middle, recent, order) < 0:
            low = middle + 1
        else:
            high = middle
    return low if low < where[SIZE] and _order(where, low, recent, order) == 0 else np.int64(-1)


@part
def _order(where, row, recent, order):
    """Below, at or above 0, as the row's leader is below, equal to or above the context's."""
    for i in range(where[LEADER_LEN]):
        found = unsigned_at(where[LEADERS], where[ID_BYTES], row * where[LEADER_LEN] + i)
        difference = found - recent[order - 1 - i]
        if difference != 0:
            return difference
    return np.int64(0)
