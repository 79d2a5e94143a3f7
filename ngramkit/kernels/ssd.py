"""A draft from past requests, with scores that follow the acceptance of earlier drafts.

`trust[l]` is the probability that one more token is right after l matching ones. A node at depth d
after a match of m tokens scores share * trust[m] * trust[m + 1] * ... * trust[m + d - 1].
"""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import allocating_entry, allocating_part, part
from ngramkit.kernels.suffix.draft_tree import (
    COUNT,
    DEPTH,
    PARENT,
    TOKEN,
    choose_most_frequent_nodes,
)
from ngramkit.kernels.suffix.search import find_in_all_shards, longest_match

RECORDED_LENGTHS = 24  # match lengths with a record; longer ones count as the last
PRIOR_DRAFTS = 4.0  # weight of a trust's prior, in drafts
DECAY_PER_DRAFT = 0.99  # factor of older drafts' weight, per draft
# Factor after trust was too low to draft, so that it is retried, but rarely.
DECAY_WHILE_SILENT = 0.999
HITS, PREDICTED = range(2)


@allocating_entry
def draft_after_trusted_match(
    table: Array, context: Array, budget: int, rules: Array, record: Array, least: float
) -> tuple[Array, Array, Array, Array, int]:
    """Return token_ids, parents, scores, shares, and the match's length, 0 if nothing matches.

    `context` int32[n]. `rules` int64[3]: the longest query, the deepest node, eos (-1 for none).
    Nodes below the score `least` are omitted. `record` float64[RECORDED_LENGTHS, 2]. `table` must
    have a row.
    """
    longest, deepest, eos = rules[0], rules[1], rules[2]
    intervals = np.zeros((len(table), 2), np.int64)
    match = longest_match(table, context, longest, intervals)
    nodes, total = np.empty((0, 4), np.int64), 0
    while match > 0:
        if trust_of_match(record, match) < least:
            for column in range(2):
                record[min(match, RECORDED_LENGTHS - 1), column] *= DECAY_WHILE_SILENT
            break
        nodes, total = choose_most_frequent_nodes(table, intervals, match, budget, deepest, eos)
        if len(nodes) or budget == 0:
            break
        match -= 1
        if match:
            find_in_all_shards(table, context[len(context) - match :], intervals)
    token_ids, parents, scores, shares = _score_by_trust(nodes, total, match, record, least)
    return token_ids, parents, scores, shares, match


@allocating_part
def _score_by_trust(nodes, total, match, record, least):
    size = len(nodes)
    token_ids, parents = np.empty(size, np.int32), np.empty(size, np.int32)
    scores, shares = np.empty(size, np.float32), np.empty(size, np.float32)
    place = np.full(size, -1, np.int64)
    reach = np.empty(RECORDED_LENGTHS + 32, np.float64)  # the product of trusts down to a depth
    reach[0] = 1.0
    for depth in range(1, len(reach)):
        reach[depth] = reach[depth - 1] * trust_of_match(record, match + depth - 1)
    kept = 0
    for i in range(size):
        share = nodes[i, COUNT] / total
        score = share * reach[nodes[i, DEPTH]]
        if score < least:
            continue
        parent = nodes[i, PARENT]
        token_ids[kept], shares[kept], scores[kept] = nodes[i, TOKEN], share, score
        parents[kept] = place[parent] if parent >= 0 else -1
        place[i] = kept
        kept += 1
    return token_ids[:kept], parents[:kept], scores[:kept], shares[:kept]


@part
def trust_of_match(record, length):
    """Return the probability that one more token agrees, l / (l + 3) at first."""
    at = min(length, RECORDED_LENGTHS - 1)
    guess = at / (at + 3.0)
    probability = (record[at, HITS] + PRIOR_DRAFTS * guess) / (record[at, PREDICTED] + PRIOR_DRAFTS)
    return min(probability, 1.0)


@allocating_entry
def learn_trust(
    token_ids: Array, parents: Array, shares: Array, match: int, written: Array, record: Array
) -> None:
    """Add a draft to `record`: for every depth reached, the drafted shares and whether it hit."""
    node, whole = -1, 1.0
    for depth in range(len(written)):
        mass, child = 0.0, -1
        for i in range(node + 1, len(parents)):
            if parents[i] == node:
                mass += shares[i] / whole
                if token_ids[i] == written[depth]:
                    child = i
        if mass == 0.0:
            return
        at = min(match + depth, RECORDED_LENGTHS - 1)
        record[at, HITS] *= DECAY_PER_DRAFT
        record[at, PREDICTED] = record[at, PREDICTED] * DECAY_PER_DRAFT + mass
        if child < 0:
            return
        record[at, HITS] += 1.0
        node, whole = child, shares[child]


@allocating_entry
def keep_best_of_two_drafts(
    first: tuple[Array, Array, Array], second: tuple[Array, Array, Array], budget: int
) -> tuple[Array, Array, Array]:
    """Return the `budget` best nodes of two drafts (token_ids, parents, scores), best first.

    Common nodes have the higher score. No node may score above its parent.
    """
    room = len(first[0]) + len(second[0])
    token_ids, parents = np.empty(room, np.int32), np.empty(room, np.int32)
    scores = np.empty(room, np.float32)
    child = np.full(room + 1, -1, np.int32)  # the newest child of each node; the last is the root's
    sibling = np.empty(room, np.int32)  # the next older child of the same parent
    size = _add_nodes_of(first, token_ids, parents, scores, child, sibling, 0)
    size = _add_nodes_of(second, token_ids, parents, scores, child, sibling, size)
    order = np.argsort(-scores[:size], kind="mergesort")[:budget]  # stable: parents come first
    place = np.full(room + 1, -1, np.int32)
    for i in range(len(order)):
        place[order[i]] = i
    return token_ids[order], place[parents[order]], scores[order]


@allocating_part
def _add_nodes_of(tree, token_ids, parents, scores, child, sibling, size):
    place = np.empty(len(tree[0]), np.int32)
    for i in range(len(place)):
        parent = place[tree[1][i]] if tree[1][i] >= 0 else len(child) - 1
        node = child[parent]
        while node >= 0 and token_ids[node] != tree[0][i]:
            node = sibling[node]
        if node < 0:
            node, size = size, size + 1
            token_ids[node], parents[node], scores[node] = tree[0][i], parent, 0.0
            sibling[node], child[parent] = child[parent], node
        scores[node] = max(scores[node], tree[2][i])
        place[i] = node
    return size
