"""A cache that only pretends to hold tokens: thousands of columns at the price of one layer's.

Made to find out what a model does beyond a sliding window without reading a text that long. Its
tokens have keys and values of zeros but for those before an edge, where the window ends. Those are
outsized: every query finds one there that it likes, and a pass that sees some too many or too few
is far off. Nothing that a pass writes is kept. Knows columns, not trees.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer

LIKED = 2.0  # times the size of a key
LOUD = 16.0  # times the size of a value, in the average over all columns


class HollowLayer(DynamicLayer):
    """One layer; computes its columns at every pass."""

    def __init__(self, cache: HollowCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._cache = cache
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """[rows, heads, n, dim] -> [rows, heads, length + n + behind, dim], both."""
        edge, length = self._cache.edge, self._cache.length
        keys = self._loud(key_states, LIKED)
        values = self._loud(value_states, LOUD * length / max(edge, 1) ** 0.5)
        return self._behind(keys, key_states), self._behind(values, value_states)

    def get_seq_length(self) -> int:
        return self._cache.length

    def _loud(self, new: torch.Tensor, times: float) -> torch.Tensor:
        """[edge, dim], by the size of the pass's first token, which is the same in every draft."""
        size = new[:1, :, :1].float().abs().mean()
        most = torch.finfo(new.dtype).max / 8
        return (self._cache.waves(new) * size * times).clamp(-most, most)

    def _behind(self, before: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        rows, heads, count, dim = new.shape
        begin, end = self._cache.length, self._cache.length + count
        whole = new.new_zeros((rows, heads, end + self._cache.behind, dim))
        whole[:, :, : len(before)] = before.to(new.dtype)
        whole[:, :, begin:end] = new
        return whole


class HollowCache(Cache):
    """`length` tokens, the first `edge` outsized; `behind` empty columns follow those of a pass, as
    in memory of a fixed size."""

    at: torch.Tensor  # this and `reach` are what a pass of fixed shape tells; nothing follows
    reach: int

    def __init__(self, layers: int, length: int, edge: int) -> None:
        super().__init__(layers=[HollowLayer(self) for _ in range(layers)])
        self.length, self.edge = length, edge
        self.behind = 0

    def waves(self, like: torch.Tensor) -> torch.Tensor:
        """float32[edge, dim] between -1 and 1, no two rows alike."""
        rows = torch.arange(self.edge, dtype=torch.float32, device=like.device)[:, None]
        return torch.cos(rows * torch.arange(1, like.shape[-1] + 1, device=like.device) * 0.7 + 1)
