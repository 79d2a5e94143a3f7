"""Token Recycling's matrix (arXiv:2408.08696): the model's latest top-k after each token.

The matrix is int32[V, CANDIDATES_PER_TOKEN], indexed by token; -1 marks missing entries.
"""

from __future__ import annotations

import heapq

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import allocating_entry, entry

CANDIDATES_PER_TOKEN = 8  # candidates kept per token, as published


def likeliest_shape(chances: Array, nodes: int) -> tuple[Array, Array, Array]:
    """Return the `nodes` best paths: parents int32[n] (-1 the root), ranks int32[n], scores.

    Scores float32[n] are products of `chances` float[CANDIDATES_PER_TOKEN], by rank. Parents
    precede children, and a smaller shape is a prefix of a larger one.
    """
    parents, ranks = np.empty(nodes, np.int32), np.empty(nodes, np.int32)
    scores = np.empty(nodes, np.float32)
    open_paths = [(-float(chance), -1, rank) for rank, chance in enumerate(chances)]
    heapq.heapify(open_paths)
    for node in range(nodes):
        negative, parents[node], ranks[node] = heapq.heappop(open_paths)
        scores[node] = -negative
        for rank, chance in enumerate(chances):
            heapq.heappush(open_paths, (negative * float(chance), node, rank))
    return parents, ranks, scores


@entry
def overwrite_top_k(matrix, tokens, top_ids):
    """Write top_ids int32[n, k], best first, into the matrix rows of `tokens` int32[n]."""
    kept = min(matrix.shape[1], top_ids.shape[1])
    for row in range(len(tokens)):
        token = tokens[row]
        if 0 <= token < len(matrix):
            for i in range(matrix.shape[1]):
                matrix[token, i] = top_ids[row, i] if i < kept else -1


@allocating_entry
def fill_tree(
    matrix: Array, last: int, parents: Array, ranks: Array, scores: Array, budget: int
) -> tuple[Array, Array, Array]:
    """Return ids, parents and scores of the shape's first `budget` nodes after `last`."""
    most = min(budget, len(parents))
    place = np.full(most + 1, -1, np.int32)  # the draft index of each node of the shape
    tokens, above = np.empty(most, np.int32), np.empty(most, np.int32)
    chances = np.empty(most, np.float32)
    size = 0
    for node in range(most):
        parent = parents[node]
        if parent >= 0 and place[parent] < 0:
            continue
        token = last if parent < 0 else tokens[place[parent]]
        if token < 0 or token >= len(matrix) or matrix[token, ranks[node]] < 0:
            continue
        tokens[size] = matrix[token, ranks[node]]
        above[size] = -1 if parent < 0 else place[parent]
        chances[size] = scores[node]
        place[node] = size
        size += 1
    return tokens[:size], above[:size], chances[:size]
