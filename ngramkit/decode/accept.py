"""Acceptance: the tokens of a draft that the model would have written itself.

One rule for greedy and sampled text: beginning at the root, the next token is chosen from the
model's logits as it would be without a draft (ngramkit.decode.sampling), and a child of the draft
tree is accepted where it holds that token. So drafts cannot change what is written.
"""

from __future__ import annotations

from collections.abc import Callable

from ngramkit.drafters.base import DraftTree


def accept(tree: DraftTree, choose: Callable[[int], int]) -> tuple[list[int], list[int]]:
    """Return the accepted nodes, a path from the root, and the tokens written: theirs and one more.

    `choose` is called along that path: choose(0) gives the token after the root, choose(i + 1) the
    one after node i.

    [7, 8, 9] with parents [-1, 0, -1], and 7, 8, 5 are chosen -> [0, 1], [7, 8, 5].
    """
    pairs = zip(tree.parents.tolist(), tree.token_ids.tolist(), strict=True)
    children = {pair: node for node, pair in enumerate(pairs)}
    nodes: list[int] = []
    tokens: list[int] = []
    node = -1
    while True:
        token = choose(node + 1)
        tokens.append(token)
        child = children.get((node, token))
        if child is None:
            return nodes, tokens
        nodes.append(child)
        node = child
