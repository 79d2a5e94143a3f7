"""Several drafters' trees merged, without a common idea of probability: what blend must beat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ngramkit.drafters.base import Drafter, DraftTree, Evidence, TokenArray, tree_of_nodes


class Union:
    """Every drafter drafts the whole budget; nodes are taken in turns, in each tree's own order.

    A node that several trees hold is one node. Its score is the highest.
    """

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self.drafters = drafters

    def start(self, prompt: TokenArray) -> None:
        for drafter in self.drafters:
            drafter.start(prompt)

    def draft(self, budget: int) -> DraftTree:
        trees = [drafter.draft(budget) for drafter in self.drafters]
        places = [np.full(len(tree), -1, np.int32) for tree in trees]
        nodes: dict[tuple[int, int], int] = {}
        scores, sources = [], []
        for i in range(budget):
            for tree, place in zip(trees, places, strict=True):
                if i >= len(tree):
                    continue
                parent = int(tree.parents[i])
                key = (int(place[parent]) if parent >= 0 else -1, int(tree.token_ids[i]))
                if key not in nodes:
                    if len(nodes) == budget:
                        break
                    nodes[key] = len(nodes)
                    scores.append(tree.scores[i])
                    sources.append(tree.source[i])
                place[i] = nodes[key]
                scores[nodes[key]] = max(scores[nodes[key]], tree.scores[i])
            if len(nodes) == budget:
                break
        return tree_of_nodes(nodes, scores, sources)

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        for drafter in self.drafters:
            drafter.accept(tokens, evidence)

    def finish(self) -> None:
        for drafter in self.drafters:
            drafter.finish()
