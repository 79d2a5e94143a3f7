"""Acceptance of drafted tokens.

Tokens are chosen from the model's logits as without a draft, so drafts cannot change the output.
"""

from __future__ import annotations

from ngramkit.drafters.base import DraftTree


class AcceptedPath:
    """The nodes of a draft tree that the model writes, from the root on.

    `row` is the row of logits that chooses the next token: 0 follows the root, i + 1 node i.
    """

    def __init__(self, tree: DraftTree) -> None:
        self.row = 0
        self.nodes: list[int] = []
        self.tokens: list[int] = []  # the nodes', then the bonus token
        pairs = zip(tree.parents.tolist(), tree.token_ids.tolist(), strict=True)
        self._children = {pair: node for node, pair in enumerate(pairs)}

    def accept_if_drafted(self, token: int) -> bool:
        """Add the chosen token; return whether it was drafted, so that the path goes on."""
        self.tokens.append(token)
        child = self._children.get((self.row - 1, token))
        if child is None:
            return False
        self.nodes.append(child)
        self.row = child + 1
        return True
