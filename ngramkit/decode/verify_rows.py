"""A draft verified as rows: its root-to-leaf paths, each an ordinary continuation of the context.

Needs no mask that an attention kernel might not take, so it works where trees do not; it costs a
row of cache per path, and tokens that paths share are computed in each. The accepted tokens are
held once per row and never copied again: of a pass, the accepted row alone is written to the
others. A draft of one path costs nothing more than in a tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ngramkit.decode.cache import InPlaceCache
from ngramkit.drafters.base import DraftTree, TokenArray
from ngramkit.kernels.tree import paths


class BatchVerifier:
    """The passes of one request, as TreeVerifier; memory is taken for as many rows as the widest
    draft has."""

    def __init__(self, model: Any, *, room: int) -> None:
        config = model.config.get_text_config()
        self._model = model
        self._device = model.device
        self._cache = InPlaceCache(config.num_hidden_layers, room)
        self._rows = np.zeros(1, np.int64)  # of the root and every node of the last draft

    @property
    def length(self) -> int:
        """The number of tokens in the cache."""
        return self._cache.length

    def prefill(self, prompt: TokenArray) -> torch.Tensor:
        """Read the part of the prompt that is not held yet; return logits [1, V] after its end."""
        new = prompt[self.length :]
        logits = self._forward(new[None], logits_to_keep=1)
        self._cache.keep_row(0, len(new))
        return logits[0]

    def verify(self, root: int, tree: DraftTree) -> torch.Tensor:
        """Return logits [n + 1, V]: row 0 follows `root`, the last token, row i + 1 node i."""
        nodes, self._rows, columns = paths(tree.parents)
        # What is behind a path's end does not matter: nothing before it sees it.
        tokens = np.append(tree.token_ids, [root, root])[nodes]
        logits = self._forward(tokens)
        at = torch.from_numpy(self._rows), torch.from_numpy(columns)
        return logits[at[0].to(logits.device), at[1].to(logits.device)]

    def keep(self, nodes: Sequence[int]) -> None:
        """Make the root and these nodes, a path from the top, part of the context."""
        last = nodes[-1] + 1 if nodes else 0
        self._cache.keep_row(int(self._rows[last]), len(nodes) + 1)

    def rewind(self, length: int) -> None:
        """Hold only the first `length` tokens from now on."""
        self._cache.length = length

    def _forward(self, tokens: TokenArray, **inputs: Any) -> torch.Tensor:
        ids = torch.from_numpy(tokens.astype(np.int64)).to(self._device)
        output = self._model(input_ids=ids, past_key_values=self._cache, use_cache=True, **inputs)
        logits: torch.Tensor = output.logits
        return logits
