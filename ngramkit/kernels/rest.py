"""REST's draft (arXiv:2311.08252): the longest match and its most frequent continuations."""

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

FREQUENT = 512  # occurrences of a match from which on its draft is memoized


@allocating_entry
def draft(
    table: Array, context: Array, bound: int, budget: int, rules: Array, memo: Array
) -> tuple[Array, Array, Array, Array, int]:
    """Return the draft after `context`, int32[n]: token_ids, parents, scores, source (zeros, which
    is Source.DATASTORE), and a bound of the next match's length before anything is accepted.

    `rules` is int64[4]: max_match, min_match, continuation, eos (-1 for none). `bound` is a
    length that no match can exceed: that of the last draft plus the tokens accepted since. Where
    every occurrence of the longest match ends its document, the next shorter one is taken. `memo`
    holds drafts by these rules (`suffix.continuations`); those of frequent matches join it.
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
            nodes, total = top_prefixes(table, intervals, used, budget, continuation, eos)
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
