"""Verification of a whole draft tree in one forward call."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from ngramkit.decode.cache import InPlaceCache
from ngramkit.decode.masks import TreeMasks
from ngramkit.drafters.base import DraftTree, TokenArray


class TreeVerifier:
    """The passes of one request: `prefill` once, then `verify` and `keep` in turn.

    `model` is a transformers causal LM in evaluation mode. `room` is the number of tokens (prompt,
    output, one draft) to allocate at first. `cache` replaces an empty one.
    """

    def __init__(self, model: Any, *, room: int, cache: Any = None) -> None:
        config = model.config.get_text_config()
        self._model = model
        self._device = model.device
        self._cache = cache or InPlaceCache(config.num_hidden_layers, room)
        self._masks = TreeMasks(config, model.dtype, model.device)
        self._takes_positions = takes_positions(model)

    @property
    def length(self) -> int:
        return self._cache.length

    def prefill(self, prompt: TokenArray) -> torch.Tensor:
        logits = self._forward(prompt[self.length :], logits_to_keep=1)
        self._cache.length = len(prompt)
        return logits

    def verify(self, root: int, tree: DraftTree) -> torch.Tensor:
        if len(tree) == 0:
            return self._forward([root])
        positions, mask = self._masks.positions_and_mask(self.length, tree.parents)
        tokens = [root, *tree.token_ids.tolist()]
        return self._forward(tokens, position_ids=positions, attention_mask=mask)

    def keep(self, nodes: Sequence[int]) -> None:
        self._cache.keep([0, *(node + 1 for node in nodes)])

    def rewind(self, length: int) -> None:
        self._cache.length = length

    def _forward(self, tokens: Any, **inputs: Any) -> torch.Tensor:
        ids = torch.as_tensor(tokens, dtype=torch.int64).to(self._device)
        if self._takes_positions and "position_ids" not in inputs:
            begin = self.length
            positions = torch.arange(begin, begin + len(ids), device=self._device)
            inputs["position_ids"] = positions[None]
        output = self._model(
            input_ids=ids[None], past_key_values=self._cache, use_cache=True, **inputs
        )
        logits: torch.Tensor = output.logits[0]
        return logits


def takes_positions(model: Any) -> bool:
    """Return whether `generate` passes positions; some models count differently without."""
    return "position_ids" in inspect.signature(model.forward).parameters
