"""Paths of draft trees. Row 0 of a pass is the root (the last accepted token), row i + 1 node i."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ngramkit.kernels.jit import allocating_entry


@allocating_entry
def root_to_leaf_paths(
    parents: npt.NDArray[np.int32],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the tree as its root-to-leaf paths, one per row.

    nodes int32[leaves, depth + 1] begin with the root (-1) and are padded with -2; rows and columns
    int64[n + 1] locate the root and each node.

    [-1, 0, -1] -> [[-1, 0, 1], [-1, 2, -2]], rows [0, 0, 0, 1], columns [0, 1, 2, 1].
    """
    n = len(parents)
    depths = np.zeros(n + 1, np.int64)
    inner = np.zeros(n + 1, np.bool_)
    for node in range(n):
        parent = parents[node] + 1
        depths[node + 1] = depths[parent] + 1
        inner[parent] = True
    leaves, deepest = 0, 0
    for node in range(n + 1):
        leaves += not inner[node]
        deepest = max(deepest, depths[node])
    nodes = np.full((leaves, deepest + 1), -2, np.int32)
    rows = np.full(n + 1, -1, np.int64)
    row = 0
    for leaf in range(n + 1):
        if inner[leaf]:
            continue
        node = leaf
        while True:
            nodes[row, depths[node]] = node - 1
            if rows[node] < 0:
                rows[node] = row
            if node == 0:
                break
            node = parents[node - 1] + 1
        row += 1
    return nodes, rows, depths


@allocating_entry
def best_path(
    parents: npt.NDArray[np.int32], scores: npt.NDArray[np.float32], most: int, cost: float
) -> npt.NDArray[np.int32]:
    """Return the most valuable path of at most `most` nodes, int32[k] from the top.

    Its value is the sum of (score - cost), with `cost` in passes per node; empty if all are
    negative. Ties go to the longest path, then to the earliest last node.
    """
    n = len(parents)
    sums = np.zeros(n, np.float64)
    depths = np.zeros(n, np.int64)
    best, deepest, end = 0.0, 0, -1
    for node in range(n):
        parent = parents[node]
        sums[node], depths[node] = scores[node] - cost, 1
        if parent >= 0:
            sums[node] += sums[parent]
            depths[node] += depths[parent]
        better = sums[node] > best or (sums[node] == best and depths[node] > deepest)
        if depths[node] <= most and better:
            best, deepest, end = sums[node], depths[node], node
    path = np.empty(deepest, np.int32)
    for place in range(deepest - 1, -1, -1):
        path[place] = end
        end = parents[end]
    return path
