"""REST's draft (arXiv:2311.08252): the most frequent continuations of the longest match."""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import allocating_entry, allocating_part, part
from ngramkit.kernels.suffix.draft_tree import (
    COUNT,
    PARENT,
    TOKEN,
    choose_most_frequent_nodes,
)
from ngramkit.kernels.suffix.search import find_in_all_shards, longest_match


@allocating_entry
def match_longest_then_shorter(
    table: Array, context: Array, bound: int, budget: int, rules: Array, most: int
) -> tuple[tuple[Array, Array, Array, Array], int, int]:
    """Return the draft after `context` int32[n], the longest match's length, and 0.

    `rules` int64[4]: max_match, min_match, continuation, eos (-1 for none). No match is longer than
    `bound`. If all occurrences end their documents, shorter matches are used. With more than `most`
    occurrences the draft is empty, and the match's length replaces 0.
    """
    max_match, min_match, continuation, eos = rules[0], rules[1], rules[2], rules[3]
    intervals = np.zeros((len(table), 2), np.int64)
    match = longest_match(table, context, min(bound, max_match), intervals)
    used, left_out = match, 0
    nodes, total = np.empty((0, 4), np.int64), 0
    while used >= min_match:
        if _count_occurrences(intervals) > most:
            left_out = used
            break
        nodes, total = choose_most_frequent_nodes(table, intervals, used, budget, continuation, eos)
        used -= 1
        if len(nodes) or budget == 0 or used < min_match:
            break
        find_in_all_shards(table, context[len(context) - used :], intervals)
    return _score_by_share(nodes, total), match, left_out


@part
def _count_occurrences(intervals):
    count = 0
    for s in range(len(intervals)):
        count += intervals[s, 1] - intervals[s, 0]
    return count


@allocating_part
def _score_by_share(nodes, total):
    size = len(nodes)
    token_ids, parents = np.empty(size, np.int32), np.empty(size, np.int32)
    scores, source = np.empty(size, np.float32), np.zeros(size, np.uint8)
    for i in range(size):
        token_ids[i], parents[i] = nodes[i, TOKEN], nodes[i, PARENT]
        scores[i] = nodes[i, COUNT] / total
    return token_ids, parents, scores, source
