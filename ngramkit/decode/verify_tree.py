"""The model's side of a pass: a whole draft tree verified in one forward call.

Knows trees and tensors; does not know who drafted, or how a token is chosen from its logits.
"""

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

    `model` is a transformers causal LM in evaluation mode, `room` the number of tokens (prompt,
    output, one draft) for which memory is taken at first; it grows where that was too little.
    `cache` takes the place of an empty one.
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
        """The number of tokens in the cache."""
        return self._cache.length

    def prefill(self, prompt: TokenArray) -> torch.Tensor:
        """Read the part of the prompt that is not held yet; return logits [1, V] after its end."""
        logits = self._forward(prompt[self.length :], logits_to_keep=1)
        self._cache.length = len(prompt)
        return logits

    def verify(self, root: int, tree: DraftTree) -> torch.Tensor:
        """Return logits [n + 1, V]: row 0 follows `root`, the last token, row i + 1 node i."""
        if len(tree) == 0:
            return self._forward([root])
        positions, mask = self._masks.positions_and_mask(self.length, tree.parents)
        tokens = [root, *tree.token_ids.tolist()]
        return self._forward(tokens, position_ids=positions, attention_mask=mask)

    def keep(self, nodes: Sequence[int]) -> None:
        """Make the root and these nodes, a path from the top, part of the context."""
        self._cache.keep([0, *(node + 1 for node in nodes)])

    def rewind(self, length: int) -> None:
        """Hold only the first `length` tokens from now on."""
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
    """Return whether `generate` gives the model positions; some models count differently without
    them."""
    return "position_ids" in inspect.signature(model.forward).parameters
