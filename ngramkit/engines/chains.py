"""The best path of a draft tree, for engines that verify one path.

A token costs `least` of a pass and is accepted with its score: a path is worth the sum of
(score - least) over its nodes. Scores fall along a path, so it ends where a token no longer pays.
"""

from __future__ import annotations

import numpy as np

from ngramkit.drafters.base import DraftTree


def best_path(tree: DraftTree, length: int, least: float) -> DraftTree:
    """The path from the root that is worth most, at most `length` nodes; empty where none pays.
    Ties go to the earlier node.

    parents [-1, -1, 1], scores [0.5, 0.4, 0.3] -> nodes 1 and 2 at least 0 (0.7 against 0.5), node
    0 at least 0.35 (0.15 against 0.05).
    """
    worth: list[float] = []
    depth: list[int] = []
    best, most = -1, 0.0
    parents = tree.parents.tolist()
    for node, (parent, score) in enumerate(zip(parents, tree.scores.tolist(), strict=True)):
        depth.append(depth[parent] + 1 if parent >= 0 else 1)
        worth.append((worth[parent] if parent >= 0 else 0.0) + score - least)
        if depth[node] <= length and worth[node] > most:
            best, most = node, worth[node]
    path: list[int] = []
    while best >= 0:
        path.append(best)
        best = parents[best]
    kept = np.array(path[::-1], np.int64)
    columns = tree.token_ids[kept], tree.scores[kept], tree.source[kept]
    return DraftTree(
        columns[0], np.arange(-1, len(kept) - 1, dtype=np.int32), columns[1], columns[2]
    )


def came_true(tree: DraftTree, written: np.ndarray) -> int:
    """How many tokens of `written`, int32[n], stand on a path from the root."""
    at, tokens, parents = -1, tree.token_ids.tolist(), tree.parents.tolist()
    for count, token in enumerate(written.tolist()):
        for node in range(at + 1, len(tokens)):
            if parents[node] == at and tokens[node] == token:
                at = node
                break
        else:
            return count
    return len(written)
