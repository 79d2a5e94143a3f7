"""Drafts verified as rows without ancestor masks, each a plain continuation of the context.

Accepted tokens are held once per row; after a pass, only the accepted row is copied to the others.
Recurrent states cannot drop a token: if a draft is not accepted whole, the old states stay, and the
next pass replays the accepted tokens before its draft. Replayed tokens count toward the budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ngramkit.decode.cache import RecurrentCache
from ngramkit.decode.passes import Forward
from ngramkit.drafters.base import DraftTree, TokenArray
from ngramkit.kernels.tree_paths import best_path, root_to_leaf_paths


class BatchVerifier:
    """The passes of one request; `fit` each draft before `verify` reads all its paths."""

    def __init__(self, model: Any, *, room: int) -> None:
        self._cache = RecurrentCache(model.config.get_text_config(decoder=True), room)
        self._forward = Forward(model, self._cache)
        self._rows = np.zeros(1, np.int64)  # row of the root and of each node of the last draft
        self._written: list[int] = []  # the root and the draft's tokens

    @property
    def length(self) -> int:
        return self._cache.length + len(self._cache.replayed)

    @property
    def replayed(self) -> int | None:
        """The tokens that the next pass replays; None without recurrent layers."""
        return len(self._cache.replayed) if self._cache.recurrent else None

    def fit(self, tree: DraftTree, budget: int) -> DraftTree:
        """Return the draft, or an empty one if replayed tokens fill the budget."""
        return tree if len(self._cache.replayed) < budget else DraftTree.empty()

    def prefill(self, prompt: TokenArray) -> torch.Tensor:
        new = prompt[self._cache.length :]
        logits = self._read(new[None], logits_to_keep=1)
        self._cache.settle(0, len(new))
        self._cache.mark()  # a conversation may diverge after the prompt
        return logits[0]

    def verify(self, root: int, tree: DraftTree) -> torch.Tensor:
        nodes, self._rows, columns = root_to_leaf_paths(tree.parents)
        self._written = [root, *tree.token_ids.tolist()]
        # Padding after a path's end does not matter: no earlier token sees it.
        drafted = np.append(tree.token_ids, [root, root])[nodes]
        self._width = drafted.shape[1]
        replayed = np.tile(np.array(self._cache.replayed, np.int32), (len(drafted), 1))
        logits = self._read(np.hstack([replayed, drafted]))[:, replayed.shape[1] :]
        at = torch.from_numpy(self._rows), torch.from_numpy(columns)
        return logits[at[0].to(logits.device), at[1].to(logits.device)]

    def keep(self, nodes: Sequence[int]) -> None:
        left_out = self._width - len(nodes) - 1
        accepted = [self._written[row] for row in [0, *(node + 1 for node in nodes)]]
        row = int(self._rows[nodes[-1] + 1]) if nodes else 0
        self._cache.settle_or_replay(row, [*self._cache.replayed, *accepted], left_out)

    def rewind(self, length: int) -> None:
        """Hold at most the first `length` tokens.

        Recurrent states that cannot go back so far go back to the prompt's end, or to nothing.
        """
        if length < self._cache.length:
            self._cache.cut(length)
        else:
            self._cache.replay(self._cache.replayed[: length - self._cache.length])

    def _read(self, tokens: TokenArray, **inputs: Any) -> torch.Tensor:
        self._cache.begin(len(tokens))
        return self._forward(tokens, self._cache.length, **inputs)


class ChainVerifier(BatchVerifier):
    """A BatchVerifier for the draft's path with the most expected tokens."""

    def fit(self, tree: DraftTree, budget: int) -> DraftTree:
        """Cut a draft to that path, as long as a pass can verify."""
        room = budget - len(self._cache.replayed)
        return tree.subtree(best_path(tree.parents, tree.scores, room, 0.0))
