"""REST's draft (arXiv:2311.08252): the longest match and its most frequent continuations, in the
order of `suffix.continuations`.

Drafts of frequent contexts are memoized: exact counts of what followed a word that occurs a hundred
thousand times take milliseconds in many shards, and text comes back to such words. A row of the
memo holds one draft and is overwritten by the next; threads may share the rows, since a row is used
only if its checksum is right.
"""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import allocating_entry, allocating_part, part
from ngramkit.kernels.suffix.continuations import (
    COUNT,
    DEPTH,
    PARENT,
    TOKEN,
    most_frequent_continuations,
)
from ngramkit.kernels.suffix.search import find_all, longest_match

FREQUENT = 512  # occurrences of a match from which on its draft is memoized
# The memo, int64[ROWS, WORDS], by column; then come the match, and two words for each node.
ROWS = 1 << 12
LENGTH = 16  # tokens of a match at most
NODES = 128  # of a draft at most
SUM, SIZE, TOTAL, BUDGET, MATCHED, PATTERN = range(6)
FIRST = PATTERN + LENGTH
WORDS = FIRST + 2 * NODES
DEPTH_BITS = 6  # beside a node's parent


@allocating_entry
def draft(
    table: Array, context: Array, bound: int, budget: int, rules: Array, memo: Array
) -> tuple[Array, Array, Array, Array, int]:
    """Return the draft after `context`, int32[n]: token_ids, parents, scores, source (zeros, which
    is Source.DATASTORE), and a bound of the next match's length before anything is accepted.

    `rules` is int64[4]: max_match, min_match, continuation, eos (-1 for none). `bound` is a
    length that no match can exceed: that of the last draft plus the tokens accepted since. Where
    every occurrence of the longest match ends its document, the next shorter one is taken. `memo`
    holds drafts by these rules; those of frequent matches join it.
    """
    max_match, min_match, continuation, eos = rules[0], rules[1], rules[2], rules[3]
    size = len(context)
    intervals = np.zeros((len(table), 2), np.int64)
    match = longest_match(table, context, min(bound, max_match), intervals)
    used = match
    nodes, total = np.empty((0, 4), np.int64), 0
    while used >= min_match:
        pattern = context[size - used :]
        frequent = _count(intervals) >= FREQUENT
        if frequent:
            nodes, total = recall(memo, pattern, budget)
        if not len(nodes):
            nodes, total = most_frequent_continuations(
                table, intervals, used, budget, continuation, eos
            )
            if frequent:
                remember(memo, pattern, budget, nodes, total)
        used -= 1
        if len(nodes) or budget == 0 or used < min_match:
            break
        find_all(table, context[size - used :], intervals)
    # A match as long as allowed may be longer: then the next one is not bounded by it.
    if match == max_match:
        match = size
    return _as_tree(nodes, total, match)


@part
def _count(intervals: Array) -> int:
    count = 0
    for s in range(len(intervals)):
        count += intervals[s, 1] - intervals[s, 0]
    return count


@allocating_part
def _as_tree(nodes: Array, total: int, match: int) -> tuple[Array, Array, Array, Array, int]:
    size = len(nodes)
    token_ids, parents = np.empty(size, np.int32), np.empty(size, np.int32)
    scores, source = np.empty(size, np.float32), np.zeros(size, np.uint8)
    for i in range(size):
        token_ids[i], parents[i] = nodes[i, TOKEN], nodes[i, PARENT]
        scores[i] = nodes[i, COUNT] / total
    return token_ids, parents, scores, source, match


def new_draft_memo(rows: int = ROWS) -> Array:
    """Return an empty memo; pages are taken as they are touched, 2.3 KB a row at most."""
    return np.zeros((rows, WORDS), np.int64)


@part
def _hash_word(value: np.uint64, word: int) -> np.uint64:
    """Return a running hash, one word further.

    Unsigned: a product of signed numbers that overflows is undefined, and compiled to one thing in
    `recall` and to another in `remember`.
    """
    value = (value ^ np.uint64(word)) * np.uint64(0x2545F4914F6CDD1D)
    return value ^ (value >> np.uint64(29))


@part
def _slot(memo: Array, pattern: Array, budget: int) -> np.int64:
    key = _hash_word(np.uint64(budget), len(pattern))
    for i in range(len(pattern)):
        key = _hash_word(key, pattern[i])
    return np.int64(key % np.uint64(len(memo)))


@part
def _checksum(row: Array, size: int) -> np.int64:
    """Return a checksum of all words in use; never 0, which an empty row has."""
    value = np.uint64(1)
    for i in range(SUM + 1, FIRST + 2 * size):
        value = _hash_word(value, row[i])
    return np.int64(value | np.uint64(1))


@allocating_part
def recall(memo: Array, pattern: Array, budget: int) -> tuple[Array, int]:
    """Return the nodes and the total that `remember` was given for this match, int32[m], and
    budget; without nodes where the memo has none."""
    nothing = np.empty((0, 4), np.int64)
    if len(pattern) > LENGTH or budget > NODES:
        return nothing, 0
    row = memo[_slot(memo, pattern, budget)].copy()  # another thread may write it
    size = row[SIZE]
    if row[BUDGET] != budget or row[MATCHED] != len(pattern) or not 0 < size <= NODES:
        return nothing, 0
    for i in range(len(pattern)):
        if row[PATTERN + i] != pattern[i]:
            return nothing, 0
    if row[SUM] != _checksum(row, size):
        return nothing, 0
    nodes = np.empty((size, 4), np.int64)
    for i in range(size):
        word = row[FIRST + 2 * i]
        nodes[i, TOKEN], below = word >> 32, word & 0xFFFFFFFF
        nodes[i, PARENT], nodes[i, DEPTH] = (below >> DEPTH_BITS) - 1, below & (1 << DEPTH_BITS) - 1
        nodes[i, COUNT] = row[FIRST + 2 * i + 1]
    return nodes, row[TOTAL]


@part
def remember(memo: Array, pattern: Array, budget: int, nodes: Array, total: int) -> None:
    """Keep `nodes` and `total` of `most_frequent_continuations` for this match, int32[m], and
    budget."""
    if len(pattern) > LENGTH or budget > NODES or not 0 < len(nodes) <= NODES:
        return
    row = memo[_slot(memo, pattern, budget)]
    row[SIZE], row[TOTAL], row[BUDGET], row[MATCHED] = len(nodes), total, budget, len(pattern)
    for i in range(LENGTH):
        row[PATTERN + i] = pattern[i] if i < len(pattern) else 0
    for i in range(len(nodes)):
        below = (nodes[i, PARENT] + 1) << DEPTH_BITS | nodes[i, DEPTH]
        row[FIRST + 2 * i] = nodes[i, TOKEN] << 32 | below
        row[FIRST + 2 * i + 1] = nodes[i, COUNT]
    row[SUM] = _checksum(row, len(nodes))
