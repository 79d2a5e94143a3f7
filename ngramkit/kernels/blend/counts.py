"""Successors of the last tokens, counted in the live context, in corpora and in frozen tables.

Counts have a column per level, first of corpora, then of the live context; level i counts the
successors of the last LEVELS[i] tokens. Intervals of corpora follow the text token by token; wide
ones are sampled and memoized.

`recent` is everywhere int32[MAX_MEASURED_MATCH]: the last tokens, newest first, NO_TOKEN before the
first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.frozen_lookup import (
    FOLLOWER_LEN,
    LEADER_LEN,
    find_leader,
    follower_bounds,
    follower_count,
    follower_token,
    leader_count,
    locate_arrays,
)
from ngramkit.kernels.jit import part
from ngramkit.kernels.suffix.search import (
    SIZE as TEXT_SIZE,
    TOKENS as TEXT_TOKENS,
    VOCABULARY,
    first_token_interval,
    narrow_interval,
    position_at,
    token_at,
)

LEVELS = np.array([1, 2, 3, 4, 6, 8], np.int64)
N_LEVELS = 6
COLUMNS = 2 * N_LEVELS
PAIR = 1  # the corpora's column of two tokens
MAX_COUNTED_CONTEXT = 8  # tokens of the longest context that is counted
MAX_MEASURED_MATCH = 32  # tokens of the longest match that is measured
# The highest level that a match of m tokens reaches: LEVELS[HIGHEST_LEVEL[m]] <= m.
HIGHEST_LEVEL = np.array([-1, 0, 1, 2, 3, 3, 4, 4, 5], np.int64)
SCAN, SAMPLE, HOPS, EOS = range(4)  # columns of Sources.limits

MAX_CANDIDATES = 512
MAX_STAMP = (1 << 31) - 1  # largest int32
MAX_READ_OCCURRENCES = 1024  # occurrences read or sampled at a time, at most
NEVER = -1
ROW, STAMP = range(2)  # columns of Candidates.rows
MATCH_LENGTH, MATCH_SHARD, MATCH_NEXT = range(3)  # columns of Candidates.longest

MEMOIZED_SUCCESSORS = 32  # successors memoized per context
# Columns of a memo's tokens: the numbers of listed and of all successors, then the listed ones.
# Column TOTAL of its counts is the count of all successors.
LISTED, DISTINCT, FIRST = range(3)
TOTAL = 0
MEMO_ROWS = 1 << 17
PAIRS_BYTES = 1 << 25  # bytes of memoized intervals, at most
# Divisor of the sample size by order: longer contexts recur less often.
SAMPLE_SIZE_DIVISOR = np.array([1, 1, 1, 2, 4, 4, 4, 4, 4], np.int64)


# Candidates.


class Candidates(NamedTuple):
    tokens: Array  # int32[MAX_CANDIDATES]
    counts: Array  # float32[MAX_CANDIDATES, COLUMNS]
    newest: Array  # int32[MAX_CANDIDATES], newest position of the last token before it, or NEVER
    source: Array  # uint8[MAX_CANDIDATES], drafters.base.Source of most of its probability
    rows: Array  # int32[V + 1, 2], by token: ROW, if STAMP is the current stamp
    totals: Array  # float32[COLUMNS], of all successors, also those without a row
    distinct: Array  # float32[COLUMNS]
    state: Array  # int64[3], rows in use, current stamp, source of new rows
    # int64[2, 3], the longest match in the live context and in a corpus: length, shard, end
    longest: Array
    positions: Array  # int64[MAX_READ_OCCURRENCES], scratch
    successors: Array  # int64[MAX_READ_OCCURRENCES], scratch


def new_candidates(vocabulary: int) -> Candidates:
    return Candidates(
        tokens=np.empty(MAX_CANDIDATES, np.int32),
        counts=np.empty((MAX_CANDIDATES, COLUMNS), np.float32),
        newest=np.empty(MAX_CANDIDATES, np.int32),
        source=np.empty(MAX_CANDIDATES, np.uint8),
        rows=np.zeros((vocabulary + 1, 2), np.int32),
        totals=np.zeros(COLUMNS, np.float32),
        distinct=np.zeros(COLUMNS, np.float32),
        state=np.zeros(3, np.int64),
        longest=np.zeros((2, 3), np.int64),
        positions=np.empty(MAX_READ_OCCURRENCES, np.int64),
        successors=np.empty(MAX_READ_OCCURRENCES, np.int64),
    )


@part
def clear_counts(into):
    into.state[0] = 0
    if into.state[1] == MAX_STAMP:  # after hours of drafting
        into.state[1] = 0
        for token in range(len(into.rows)):
            into.rows[token, STAMP] = 0
    into.state[1] += 1
    into.longest[0, MATCH_LENGTH] = into.longest[1, MATCH_LENGTH] = 0
    for column in range(COLUMNS):
        into.totals[column] = 0
        into.distinct[column] = 0


@part
def row_of(into, token):
    """Return a candidate's row, new if needed; -1 if the table is full or the id invalid."""
    if token < 0 or token >= len(into.rows):
        return np.int64(-1)
    if into.rows[token, STAMP] == into.state[1]:
        return np.int64(into.rows[token, ROW])
    row = into.state[0]
    if row == MAX_CANDIDATES:
        return np.int64(-1)
    into.state[0] = row + 1
    into.rows[token, STAMP], into.rows[token, ROW] = into.state[1], row
    into.tokens[row] = token
    into.newest[row] = NEVER
    into.source[row] = into.state[2]
    for column in range(COLUMNS):
        into.counts[row, column] = 0
    return row


@part
def listed_row(into, token):
    if 0 <= token < len(into.rows) and into.rows[token, STAMP] == into.state[1]:
        return np.int64(into.rows[token, ROW])
    return np.int64(-1)


@part
def count_token(into, token, first, last):
    row = row_of(into, token)
    for column in range(first, last + 1):
        into.totals[column] += 1
        if row >= 0:
            if into.counts[row, column] == 0:
                into.distinct[column] += 1
            into.counts[row, column] += 1
    return row


# The last tokens.


@part
def push_recent(recent, token):
    for i in range(len(recent) - 1, 0, -1):
        recent[i] = recent[i - 1]
    recent[0] = token


@part
def hash_recent(recent, order):
    """Return a hash of the last `order` tokens: uint64, odd."""
    # Larger than any token, so that an order and an equal newest token do not cancel.
    key = np.uint64(order) * np.uint64(0xD6E8FEB86659FD93)
    for i in range(order):
        key = (key ^ np.uint64(recent[i])) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    return key | np.uint64(1)


# The live context.


class Live(NamedTuple):
    tokens: Array  # int32[capacity]
    previous: Array  # int32[capacity], -1 ends a chain
    latest: Array  # int32[V + 1], the newest position of each token, -1 for none
    seen: Array  # int32[capacity], occurrences of the token up to this position
    table: Array  # int64[1, 7], the text so far as a shard, see suffix.search.shard_table


def new_live(vocabulary: int, capacity: int) -> Live:
    tokens = np.empty(capacity, np.int32)
    shard = [tokens.ctypes.data, tokens.itemsize, 0, 0, 0, vocabulary, 0]
    return Live(
        tokens=tokens,
        previous=np.empty(capacity, np.int32),
        latest=np.full(vocabulary + 1, -1, np.int32),
        seen=np.empty(capacity, np.int32),
        table=np.array([shard], np.int64),
    )


def grown_context(live: Live, capacity: int) -> Live:
    more = capacity - len(live.tokens)
    tokens = np.concatenate([live.tokens, np.empty(more, np.int32)])
    table = live.table.copy()
    table[0, TEXT_TOKENS] = tokens.ctypes.data
    return live._replace(
        tokens=tokens,
        previous=np.concatenate([live.previous, np.empty(more, np.int32)]),
        seen=np.concatenate([live.seen, np.empty(more, np.int32)]),
        table=table,
    )


@part
def add_to_live(live, position):
    token = live.tokens[position]
    before = live.latest[token]
    live.previous[position] = before
    live.latest[token] = position
    live.seen[position] = live.seen[before] + 1 if before >= 0 else 1
    live.table[0, TEXT_SIZE] = position + 1


@part
def remove_from_live(live, begin, end):
    """Unlink live.tokens[begin:end], the newest, from the chains."""
    for position in range(end - 1, begin - 1, -1):
        live.latest[live.tokens[position]] = live.previous[position]
    live.table[0, TEXT_SIZE] = begin


@part
def count_live(live, size, recent, into, hops):
    """Count what followed `recent` in live.tokens[:size], at its newest `hops` occurrences.

    Ids unknown to the tokenizer are stored as the separator and not counted.
    """
    separator = len(live.latest) - 1
    position = _newest_before(live, size, recent)
    while position >= 0 and hops > 0:
        match = _match_at(live, position, recent)
        if match > into.longest[0, MATCH_LENGTH]:
            into.longest[0, MATCH_LENGTH], into.longest[0, MATCH_NEXT] = match, position + 1
        last = N_LEVELS + HIGHEST_LEVEL[min(match, MAX_COUNTED_CONTEXT)]
        if live.tokens[position + 1] < separator:
            row = count_token(into, live.tokens[position + 1], N_LEVELS, last)
            if row >= 0 and into.newest[row] == NEVER:
                into.newest[row] = position
        position = np.int64(live.previous[position])
        hops -= 1


@part
def longest_in_live(live, size, recent, hops, longest):
    """Set int64[3] `longest`, as `count_live` does, without counting."""
    longest[MATCH_LENGTH] = 0
    position = _newest_before(live, size, recent)
    while position >= 0 and hops > 0:
        match = _match_at(live, position, recent)
        if match > longest[MATCH_LENGTH]:
            longest[MATCH_LENGTH], longest[MATCH_NEXT] = match, position + 1
        position = np.int64(live.previous[position])
        hops -= 1


@part
def _newest_before(live, size, recent):
    """Return the last token's newest position with a successor, or -1."""
    if recent[0] < 0 or recent[0] == len(live.latest) - 1:
        return np.int64(-1)
    position = np.int64(live.latest[recent[0]])
    return np.int64(live.previous[position]) if position == size - 1 else position


@part
def _match_at(live, position, recent):
    match = np.int64(1)
    while (
        match < min(position + 1, MAX_MEASURED_MATCH)
        and live.tokens[position - match] == recent[match]
    ):
        match += 1
    return match


# Memos.


class Memo(NamedTuple):
    """Successors of contexts, by a hash; newer rows overwrite older ones."""

    keys: Array  # uint64[rows], 0 is an empty row
    tokens: Array  # int32[rows, FIRST + MEMOIZED_SUCCESSORS], see LISTED
    counts: Array  # float32[rows, FIRST + MEMOIZED_SUCCESSORS], of these tokens


def new_memo(rows: int) -> Memo:
    """Return an empty memo; a row takes up to 280 bytes once used."""
    return Memo(
        keys=np.zeros(rows, np.uint64),
        tokens=np.zeros((rows, FIRST + MEMOIZED_SUCCESSORS), np.int32),
        counts=np.zeros((rows, FIRST + MEMOIZED_SUCCESSORS), np.float32),
    )


@part
def slot_of(key, rows):
    """Return a key's row among `rows`, a power of two; keys are odd."""
    return np.int64(key >> np.uint64(1)) & (rows - 1)


@part
def begin_row(memo, slot, key, total):
    """Empty a row. `total` is always float32: other types would be compiled separately."""
    memo.keys[slot] = key
    memo.counts[slot, TOTAL] = total
    memo.tokens[slot, LISTED] = memo.tokens[slot, DISTINCT] = 0


@part
def _successors_listed(tokens):
    """Return a row's number of successors; concurrent writers may count too many."""
    return min(np.int64(tokens[LISTED]), MEMOIZED_SUCCESSORS)


@part
def memoize_successor(memo, slot, token, estimate):
    """Add float32 `estimate` to a successor in a row's list, sorted by count."""
    tokens, counts = memo.tokens[slot], memo.counts[slot]
    end = FIRST + _successors_listed(tokens)
    at = np.int64(FIRST)
    while at < end and tokens[at] != token:
        at += 1
    if at < end:  # also in an earlier shard
        estimate += counts[at]
    else:
        tokens[DISTINCT] += 1
        if end < FIRST + MEMOIZED_SUCCESSORS:
            tokens[LISTED] += 1
        elif counts[end - 1] >= estimate:
            return
        else:
            at = end - 1
    while at > FIRST and counts[at - 1] < estimate:
        counts[at], tokens[at] = counts[at - 1], tokens[at - 1]
        at -= 1
    counts[at], tokens[at] = estimate, token


@part
def recall_successors(memo, slot, into, column):
    tokens, counts = memo.tokens[slot], memo.counts[slot]
    into.totals[column] += counts[TOTAL]
    into.distinct[column] += tokens[DISTINCT]
    for i in range(FIRST, FIRST + _successors_listed(tokens)):
        row = row_of(into, tokens[i])
        if row >= 0:
            into.counts[row, column] += counts[i]


# Corpora: their intervals, then what is counted there.


class SearchedCorpus(NamedTuple):
    table: Array  # int64[shards, 7], see suffix.search.shard_table
    memo: Memo
    pair_keys: Array  # uint64[pair rows]
    pairs: Array  # int64[pair rows, shards, 2], the intervals of two tokens in a row


def new_corpus(table: Array, rows: int = MEMO_ROWS) -> SearchedCorpus:
    """Return a corpus over `table`, whose arrays must outlive it; `rows`: a power of two."""
    shards = len(table)
    rows = rows if shards else 1
    pair_rows = _pair_rows(rows, shards)
    return SearchedCorpus(
        table=table,
        memo=new_memo(rows),
        pair_keys=np.zeros(pair_rows, np.uint64),
        pairs=np.zeros((pair_rows, shards, 2), np.int64),
    )


def _pair_rows(rows: int, shards: int) -> int:
    while rows > 1 and rows * shards * 16 > PAIRS_BYTES:
        rows //= 2
    return rows


@part
def narrow_intervals(corpus, parent, child, recent, scan):
    """Set the intervals of all orders of `recent` from those of the context one token shorter.

    `parent`, `child` int64[MAX_COUNTED_CONTEXT + 1, shards, 2]. After an order with at most `scan`
    occurrences they are empty: `count_corpus` compares those few backwards.
    """
    table, token, width = corpus.table, np.int64(recent[0]), scan + 1
    for order in range(1, MAX_COUNTED_CONTEXT + 1):
        if order == 2 and width > scan:
            width = _search_pair(corpus, child[2], recent)
            continue
        searched = width > scan
        width = np.int64(0)
        for s in range(len(table)):
            low, high = np.int64(0), np.int64(0)
            if searched and order == 1:
                low, high = first_token_interval(table[s], token)
            elif searched:
                low, high = parent[order - 1, s, 0], parent[order - 1, s, 1]
                if low < high:
                    low, high = narrow_interval(table[s], low, high, order - 1, token)
            child[order, s, 0], child[order, s, 1] = low, high
            width += high - low


@part
def _search_pair(corpus, child, recent):
    """Set the last two tokens' intervals, memoized as the widest searches; return their width."""
    key = hash_recent(recent, 2)
    slot = slot_of(key, len(corpus.pair_keys))
    memoized = corpus.pair_keys[slot] == key
    table, pairs = corpus.table, corpus.pairs
    width = np.int64(0)
    for s in range(len(table)):
        if not memoized:
            low, high = first_token_interval(table[s], np.int64(recent[1]))
            if low < high:
                low, high = narrow_interval(table[s], low, high, 1, np.int64(recent[0]))
            pairs[slot, s, 0], pairs[slot, s, 1] = low, high
        child[s, 0], child[s, 1] = pairs[slot, s, 0], pairs[slot, s, 1]
        width += child[s, 1] - child[s, 0]
    corpus.pair_keys[slot] = key
    return width


@part
def _width_of_intervals(corpus, intervals):
    width = np.int64(0)
    for s in range(len(corpus.table)):
        width += intervals[s, 1] - intervals[s, 0]
    return width


@part
def longest_order(corpus, intervals, scan):
    """Return how many of the last tokens occur together, at most MAX_COUNTED_CONTEXT.

    If they occur more than `scan` times, round down to a level: only levels are sampled.
    """
    order = np.int64(MAX_COUNTED_CONTEXT)
    while order > 0 and _width_of_intervals(corpus, intervals[order]) == 0:
        order -= 1
    if order > 0 and _width_of_intervals(corpus, intervals[order]) > scan:
        return LEVELS[HIGHEST_LEVEL[order]]
    return order


@part
def count_corpus(corpus, order, intervals, recent, into, scan, sample, most):
    """Count what followed the last `order` or more tokens; `most` tokens are compared."""
    level = HIGHEST_LEVEL[order]
    while order <= MAX_COUNTED_CONTEXT:
        width = _width_of_intervals(corpus, intervals[order])
        if width == 0:
            return
        if width <= scan:
            for s in range(len(corpus.table)):
                _count_all_occurrences(
                    corpus.table[s], s, intervals[order, s], order, recent, most, into, level
                )
            return
        if LEVELS[level] == order:
            _count_memoized_sample(corpus, order, width, intervals, recent, into, sample, level)
            level += 1
        order += 1


@part
def _count_all_occurrences(shard, s, interval, order, recent, most, into, first):
    width = interval[1] - interval[0]
    positions, tokens = into.positions, into.successors
    # Independent loads, so that the memory serves many at once.
    for i in range(width):
        positions[i] = position_at(shard, interval[0] + i)
    for i in range(width):
        tokens[i] = token_at(shard, positions[i] + order)
    for i in range(width):
        match = order
        before = positions[i] - 1
        while match < most and before >= 0 and token_at(shard, before) == recent[match]:
            match += 1
            before -= 1
        last = HIGHEST_LEVEL[min(match, MAX_COUNTED_CONTEXT)]
        if tokens[i] < shard[VOCABULARY]:
            count_token(into, tokens[i], first, last)
            _keep_longest_then_newest(into.longest[1], match, s, positions[i] + order)
        else:  # the document ends here
            for column in range(first, last + 1):
                into.totals[column] += 1


@part
def _keep_longest_then_newest(longest, match, s, end):
    length = longest[MATCH_LENGTH]
    newer = s > longest[MATCH_SHARD] or (s == longest[MATCH_SHARD] and end > longest[MATCH_NEXT])
    if match > length or (match == length and newer):
        longest[MATCH_LENGTH], longest[MATCH_SHARD], longest[MATCH_NEXT] = match, s, end


@part
def _count_memoized_sample(corpus, order, width, intervals, recent, into, sample, level):
    memo, key = corpus.memo, hash_recent(recent, order)
    slot = slot_of(key, len(memo.keys))
    if memo.keys[slot] != key:
        begin_row(memo, slot, key, np.float32(width))
        _sample_evenly(
            corpus, intervals[order], order, width, sample // SAMPLE_SIZE_DIVISOR[order], slot, into
        )
    recall_successors(memo, slot, into, level)


@part
def _sample_evenly(corpus, intervals, order, width, sample, slot, into):
    table, memo, positions = corpus.table, corpus.memo, into.positions
    done, before = 0, 0
    for s in range(len(table)):
        high = before + intervals[s, 1] - intervals[s, 0]
        begun = done
        while done < sample and done * width // sample < high:
            index = intervals[s, 0] + done * width // sample - before
            positions[done] = position_at(table[s], index)
            done += 1
        _count_runs(table[s], into, begun, done, order, memo, slot, width / sample)
        before = high


@part
def _count_runs(shard, into, first, last, order, memo, slot, worth):
    tokens = into.successors
    for i in range(first, last):
        tokens[i] = token_at(shard, into.positions[i] + order)
    begin = first
    for i in range(first + 1, last + 1):
        if i == last or tokens[i] != tokens[begin]:
            if tokens[begin] < shard[VOCABULARY]:
                memoize_successor(memo, slot, tokens[begin], np.float32((i - begin) * worth))
            begin = i


# Frozen tables.


class Frozen(NamedTuple):
    where: Array  # int64[12], see frozen_lookup.locate_arrays
    memo: Memo


def new_frozen(table: dict[str, Array] | None) -> Frozen:
    return Frozen(locate_arrays(table), new_memo(1 if table is None else MEMO_ROWS))


@part
def count_frozen(frozen, recent, into, second):
    """Count what followed `recent`. `second` is scratch."""
    where, memo = frozen.where, frozen.memo
    for level in range(N_LEVELS):
        order = LEVELS[level]
        more = order - where[LEADER_LEN]  # tokens of the follower that are context
        if more < 0:
            continue
        if more >= where[FOLLOWER_LEN] or recent[order - 1] < 0:
            return
        key = hash_recent(recent, order)
        slot = slot_of(key, len(memo.keys))
        if memo.keys[slot] != key:
            _memoize_followers(where, recent, order, more, memo, slot, key, second)
        if memo.tokens[slot, LISTED]:
            recall_successors(memo, slot, into, level)


@part
def _memoize_followers(where, recent, order, more, memo, slot, key, second):
    row = find_leader(where, recent, order)
    if row < 0:
        begin_row(memo, slot, key, np.float32(0))
        return
    clear_counts(second)
    total = np.float32(0)
    begin, end = follower_bounds(where, row)
    for follower in range(begin, end):
        same = True
        for i in range(more):
            same = same and follower_token(where, follower, i) == recent[more - 1 - i]
        if same:
            times = follower_count(where, follower)
            successor = row_of(second, follower_token(where, follower, more))
            total += times
            if successor >= 0:
                second.counts[successor, 0] += times
    if more == 0:  # includes followers that are not in the table
        total = np.float32(leader_count(where, row))
    begin_row(memo, slot, key, np.float32(total))
    for successor in range(second.state[0]):
        memoize_successor(memo, slot, second.tokens[successor], second.counts[successor, 0])
