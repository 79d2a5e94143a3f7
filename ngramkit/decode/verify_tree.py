"""Verification of a whole draft tree in one forward call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ngramkit.decode.cache import InPlaceCache
from ngramkit.decode.masks import TreeMasks
from ngramkit.decode.passes import Forward
from ngramkit.drafters.base import DraftTree, TokenArray


class TreeVerifier:
    """The passes of one request: `prefill` once, then `verify` and `keep` in turn.

    `model` is a transformers causal LM in evaluation mode. `room` is the number of tokens (prompt,
    output, one draft) to allocate at first. `cache` replaces an empty one.
    """

    def __init__(self, model: Any, *, room: int, cache: Any = None) -> None:
        config = model.config.get_text_config()
        self._cache = cache or InPlaceCache(config.num_hidden_layers, room)
        self._masks = TreeMasks(config, model.dtype, model.device)
        self._forward = Forward(model, self._cache)

    @property
    def length(self) -> int:
        return self._cache.length

    def prefill(self, prompt: TokenArray) -> torch.Tensor:
        logits = self._forward(prompt[None, self.length :], self.length, logits_to_keep=1)
        self._cache.length = len(prompt)
        return logits[0]

    def verify(self, root: int, tree: DraftTree) -> torch.Tensor:
        if len(tree) == 0:
            return self._forward([[root]], self.length)[0]
        positions, mask = self._masks.positions_and_mask(self.length, tree.parents)
        tokens = [[root, *tree.token_ids.tolist()]]
        logits = self._forward(tokens, self.length, position_ids=positions, attention_mask=mask)
        return logits[0]

    def keep(self, nodes: Sequence[int]) -> None:
        self._cache.keep([0, *(node + 1 for node in nodes)])

    def rewind(self, length: int) -> None:
        self._cache.length = length
