"""Token Recycling's matrix (arXiv:2408.08696): the model's latest top-k after each token.

The matrix is int32[V, K], by token; -1 where there is no evidence yet. A draft is a tree of fixed
shape filled in from it: the node of rank r below a token is the r-th likeliest token after that.
"""

from __future__ import annotations

import heapq

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import allocating_entry, entry

K = 8  # candidates kept of a token, as published


def fixed_tree(chances: Array, nodes: int) -> tuple[Array, Array, Array]:
    """Return a shape of the most probable nodes: parents int32[n] (-1 the root), ranks int32[n],
    scores float32[n].

    The `nodes` paths of highest chance, best first, where `chances` float[K] says how often the
    candidate of each rank is the next token: a path's chance is their product. A shorter shape is a
    longer one's beginning, and a parent comes before its children.
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
def recycle(matrix, tokens, top_ids):
    """Keep the model's top-k after each of `tokens` int32[n]: top_ids int32[n, k], best first.

    Of a token that comes twice the later row counts. Tokens outside the matrix are left out.
    """
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
    """Return the shape's first `budget` nodes, filled in after the token `last`: ids, parents,
    scores.

    Nodes of which the matrix knows nothing are left out, with all below them.
    """
    most = min(budget, len(parents))
    place = np.full(most + 1, -1, np.int32)  # of a node of the shape in the draft
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
