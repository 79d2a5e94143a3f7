"""Ancestor masks of draft trees.

Additive floats in the model's dtype: a boolean mask is silently wrong under eager attention. The
cache drops nothing, so masks include sliding windows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ngramkit.basics.errors import InputError
from ngramkit.drafters.base import TokenArray

FULL, SLIDING = "full_attention", "sliding_attention"


def ancestor_mask(parents: TokenArray) -> npt.NDArray[np.bool_]:
    """Return which rows each row of a pass may see, bool[n + 1, n + 1].

    parents int32[n], -1 is the root; row i + 1 is node i. [-1, 0, -1] -> row 2 sees 0, 1 and 2, row
    3 sees 0 and 3.
    """
    above = np.zeros(len(parents) + 1, np.intp)  # the row 1, 2, 4, ... levels up; 0 for the root
    above[1:] = parents + 1
    seen = np.eye(len(above), dtype=np.bool_)
    while above.any():
        seen |= seen[above]
        above = above[above]
    seen[:, 0] = True
    return seen


class TreeMasks:
    def __init__(self, config: Any, dtype: torch.dtype, device: torch.device) -> None:
        self.window: int | None = getattr(config, "sliding_window", None)
        self.kinds = attention_kinds(config, self.window)
        self._device = device
        self._dtype, self._blocked = dtype, float(torch.finfo(dtype).min)

    def positions_and_mask(self, length: int, parents: TokenArray) -> tuple[torch.Tensor, Any]:
        """Return position_ids int64[1, n + 1] and the mask [1, 1, n + 1, length + n + 1].

        `length` tokens are in the cache. Models with several layer types get a dict of masks.
        """
        seen = ancestor_mask(parents)
        depths = seen.sum(-1) - 1
        positions = torch.from_numpy(depths + length).to(self._device)
        additive = torch.from_numpy(np.where(seen, np.float32(0), np.float32(self._blocked)))
        shape = (1, 1, len(seen), length + len(seen))
        full = torch.zeros(shape, dtype=self._dtype, device=self._device)
        full[..., length:] = additive.to(self._device)
        masks = {FULL: full}
        if SLIDING in self.kinds:
            masks[SLIDING] = self._windowed(full, positions)
        return positions[None], masks if len(self.kinds) > 1 else masks[self.kinds[0]]

    def _windowed(self, full: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        assert self.window is not None
        rows, columns = full.shape[-2:]
        if columns <= self.window:
            return full
        at = torch.cat([torch.arange(columns - rows, device=self._device), positions])
        too_far = at[None, :] <= positions[:, None] - self.window
        return full.masked_fill(too_far, self._blocked)


def attention_kinds(config: Any, window: int | None) -> list[str]:
    """Return the layer types; raise InputError for those that no 4D mask can express."""
    listed = getattr(config, "layer_types", None)
    kinds = sorted(set(listed)) if listed else [FULL if window is None else SLIDING]
    unknown = [kind for kind in kinds if kind not in (FULL, SLIDING)]
    if unknown:
        raise InputError(
            f"cannot verify a draft tree with {config.model_type}: it has {unknown[0]} layers",
            "Use a model whose layers all attend to the whole context or to a sliding window.",
        )
    return kinds
