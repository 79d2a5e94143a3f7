"""Shapes of draft trees: depths, the ancestor mask, paths.

Arrays in, arrays out. A pass has one row per node and one for the root: row 0 is the root (the
last accepted token), row i + 1 is node i.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ngramkit.kernels.jit import allocating_entry, entry


def layout(
    parents: npt.NDArray[np.int32], blocked: np.float32
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return the depth of every row and the additive ancestor mask.

    parents int32[n] (-1 is the root) -> depths int64[n + 1], mask float32[n + 1, n + 1] with 0
    where the column's row is the row itself or an ancestor, else `blocked`.

    [-1, 0, -1] -> depths [0, 1, 2, 1]; row 2 (node 1) sees columns 0, 1 and 2, row 3 sees 0 and 3.
    """
    rows = len(parents) + 1
    depths, mask = np.empty(rows, np.int64), np.full((rows, rows), blocked, np.float32)
    fill_layout(parents, depths, mask)
    return depths, mask


@entry
def fill_layout(parents, depths, mask):
    """Set the depths and the mask, which is blocked everywhere. Every decode begins with compiling
    this: arrays made by Python take less time than numba's."""
    depths[0], mask[0, 0] = 0, 0.0
    for row in range(1, len(depths)):
        parent = parents[row - 1] + 1
        depths[row] = depths[parent] + 1
        for column in range(parent + 1):
            mask[row, column] = mask[parent, column]
        mask[row, row] = 0.0


@allocating_entry
def paths(
    parents: npt.NDArray[np.int32],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the tree as its root-to-leaf paths, a row each.

    parents int32[n] -> nodes int32[leaves, depth + 1] with the root (-1) first and -2 behind a
    path's end, and for the root and every node (n + 1 of them) a row and the column in it, int64.

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
    parents: npt.NDArray[np.int32], scores: npt.NDArray[np.float32], most: int
) -> npt.NDArray[np.int32]:
    """Return the path of at most `most` nodes with the largest sum of scores, int32[k] from the
    top.

    A score is the chance that its node is accepted, so the sum is the expected tokens. Of paths
    alike the longest, of those the one that ends at the earliest node.

    parents [-1, 0, -1], scores [0.5, 0.2, 0.6] -> [0, 1] (0.7, not 0.6); at most 1 node: [2].
    """
    n = len(parents)
    sums = np.zeros(n, np.float64)
    depths = np.zeros(n, np.int64)
    best, deepest, end = 0.0, 0, -1
    for node in range(n):
        parent = parents[node]
        sums[node], depths[node] = scores[node], 1
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
