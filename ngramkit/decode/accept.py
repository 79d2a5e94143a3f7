"""Acceptance of drafted tokens.

Tokens are chosen from the model's logits as without a draft, so drafts cannot change the output.
"""

from __future__ import annotations

from collections.abc import Callable

from ngramkit.drafters.base import DraftTree


class Walk:
    """A path of chosen tokens from a draft tree's root.

    `row` is the next row of logits: 0 follows the root, i + 1 node i.
    """

    def __init__(self, tree: DraftTree) -> None:
        self.row = 0
        self.nodes: list[int] = []
        self.tokens: list[int] = []
        pairs = zip(tree.parents.tolist(), tree.token_ids.tolist(), strict=True)
        self._children = {pair: node for node, pair in enumerate(pairs)}

    def take(self, token: int) -> bool:
        self.tokens.append(token)
        child = self._children.get((self.row - 1, token))
        if child is None:
            return False
        self.nodes.append(child)
        self.row = child + 1
        return True


def accept(tree: DraftTree, choose: Callable[[int], int]) -> tuple[list[int], list[int]]:
    """Return the accepted nodes, a path from the root, and the tokens written: theirs and one more.

    `choose` gets rows as in `Walk`.

    [7, 8, 9] with parents [-1, 0, -1], and 7, 8, 5 are chosen -> [0, 1], [7, 8, 5].
    """
    walk = Walk(tree)
    while walk.take(choose(walk.row)):
        pass
    return walk.nodes, walk.tokens
