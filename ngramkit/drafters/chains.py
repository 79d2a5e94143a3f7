"""Continuations side by side as one draft tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ngramkit.drafters.base import DraftTree, Source


def tree_of_chains(
    chains: Iterable[tuple[Sequence[int], float]], budget: int, source: Source
) -> DraftTree:
    """Merges chains (tokens, score) into a tree, first chain first, until it has `budget` nodes.

    [([7, 8], 0.5), ([7, 9], 0.2)] -> token_ids [7, 8, 9], parents [-1, 0, 0], scores [0.7, 0.5,
    0.2]: a node's score is the sum over the chains through it.
    """
    nodes: dict[tuple[int, int], int] = {}
    scores: list[float] = []
    for chain, score in chains:
        at = -1
        for token in chain:
            key = (at, int(token))
            if key not in nodes:
                if len(nodes) >= budget:
                    break
                nodes[key] = len(nodes)
                scores.append(0.0)
            at = nodes[key]
            scores[at] += score
    if not nodes:
        return DraftTree.empty()
    parents, tokens = np.array(list(nodes), np.int32).T
    return DraftTree(
        token_ids=np.ascontiguousarray(tokens),
        parents=np.ascontiguousarray(parents),
        scores=np.array(scores, np.float32),
        source=np.full(len(nodes), source, np.uint8),
    )
