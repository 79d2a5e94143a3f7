"""One REST draft: the longest match and its most frequent continuations, in a single call."""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import allocating_entry, allocating_part, part
from ngramkit.kernels.suffix.continuations import (
    COUNT,
    PARENT,
    TOKEN,
    recall,
    remember,
    top_prefixes,
)
from ngramkit.kernels.suffix.search import find_all, longest_match

FREQUENT = 512  # occurrences of a match, from which on its draft is kept


@allocating_entry
def draft(
    table: Array, context: Array, bound: int, budget: int, rules: Array, known: Array
) -> tuple[Array, Array, Array, Array, int]:
    """The draft after `context`, int32[n]: token_ids, parents, scores, source (zeros, which is
    Source.DATASTORE), and the length that the longest match has.

    `rules` is int64[4]: max_match, min_match, continuation, eos (-1 for none). `bound` is a
    length that no match can exceed: the last one found plus what was accepted since. Where every
    occurrence of the longest match ends its document, the next shorter one is taken. `known` holds
    earlier drafts of these rules (`suffix.known`); those of frequent matches join it.
    """
    max_match, min_match, continuation, eos = rules[0], rules[1], rules[2], rules[3]
    size = len(context)
    intervals = np.zeros((len(table), 2), np.int64)
    match = longest_match(table, context, min(bound, max_match), intervals)
    used = match
    found, total = np.empty((0, 4), np.int64), 0
    while used >= min_match:
        pattern = context[size - used :]
        frequent = _count(intervals) >= FREQUENT
        if frequent:
            found, total = recall(known, pattern, budget)
        if not len(found):
            found, total = top_prefixes(table, intervals, used, budget, continuation, eos)
            if frequent:
                remember(known, pattern, budget, found, total)
        used -= 1
        if len(found) or budget == 0 or used < min_match:
            break
        find_all(table, context[size - used :], intervals)
    # A match as long as allowed may be longer: then the next one is not bounded by it.
    if match == max_match:
        match = size
    return _as_tree(found, total, match)


@part
def _count(intervals: Array) -> int:
    count = 0
    for s in range(len(intervals)):
        count += intervals[s, 1] - intervals[s, 0]
    return count


@allocating_part
def _as_tree(found: Array, total: int, match: int) -> tuple[Array, Array, Array, Array, int]:
    size = len(found)
    token_ids, parents = np.empty(size, np.int32), np.empty(size, np.int32)
    scores, source = np.empty(size, np.float32), np.zeros(size, np.uint8)
    for i in range(size):
        token_ids[i], parents[i] = found[i, TOKEN], found[i, PARENT]
        scores[i] = found[i, COUNT] / total
    return token_ids, parents, scores, source, match
