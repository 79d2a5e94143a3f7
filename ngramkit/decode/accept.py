"""Acceptance: the tokens of a draft that the model would have written itself.

One rule for greedy and sampled text: beginning at the root, the next token is chosen from the
model's logits as it would be without a draft (ngramkit.decode.sampling), and a child of the draft
tree is accepted where it holds that token. So drafts cannot change what is written.
"""

from __future__ import annotations

from collections.abc import Callable

from ngramkit.drafters.base import DraftTree


class Walk:
    """The path of the chosen tokens through a draft tree, from its root.

    `row` is the row of logits after which the next token is chosen: 0 follows the root, i + 1 node
    i. `nodes` are the accepted nodes, `tokens` what is written: theirs and one more.
    """

    def __init__(self, tree: DraftTree) -> None:
        self.row = 0
        self.nodes: list[int] = []
        self.tokens: list[int] = []
        pairs = zip(tree.parents.tolist(), tree.token_ids.tolist(), strict=True)
        self._children = {pair: node for node, pair in enumerate(pairs)}

    def take(self, token: int) -> bool:
        """Write a token; return whether the draft holds it, and so a row for the next one."""
        self.tokens.append(token)
        child = self._children.get((self.row - 1, token))
        if child is None:
            return False
        self.nodes.append(child)
        self.row = child + 1
        return True


def accept(tree: DraftTree, choose: Callable[[int], int]) -> tuple[list[int], list[int]]:
    """Return the accepted nodes, a path from the root, and the tokens written: theirs and one more.

    `choose` is called along that path: choose(0) gives the token after the root, choose(i + 1) the
    one after node i.

    [7, 8, 9] with parents [-1, 0, -1], and 7, 8, 5 are chosen -> [0, 1], [7, 8, 5].
    """
    walk = Walk(tree)
    while walk.take(choose(walk.row)):
        pass
    return walk.nodes, walk.tokens
