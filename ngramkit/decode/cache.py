"""Keys and values of the accepted tokens, in buffers that are written in place.

transformers' own DynamicCache copies itself whole in every layer at every pass, and a sliding
layer drops rows that a rejected draft would have to give back. Here a pass writes its rows behind
the accepted ones, and `keep` decides which of them stay. Knows rows, not trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer


class InPlaceLayer(DynamicLayer):  # type: ignore[misc]
    """One layer. keys, values: [1, heads, room, head_dim], rows beyond the cache's length unused."""

    def __init__(self, cache: InPlaceCache) -> None:
        super().__init__()
        self._cache = cache

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes a pass's rows behind the accepted ones; returns both."""
        begin = self._cache.length
        end = begin + key_states.shape[-2]
        if not self.is_initialized or end > self.keys.shape[-2]:
            room = max(end, self._cache.room)
            self.keys = _enlarged(self.keys, key_states, begin, room)
            self.values = _enlarged(self.values, value_states, begin, room)
            self.is_initialized = True
        self.keys[..., begin:end, :] = key_states
        self.values[..., begin:end, :] = value_states
        return self.keys[..., :end, :], self.values[..., :end, :]

    def get_seq_length(self) -> int:
        return self._cache.length

    def move(self, target: int, rows: torch.Tensor) -> None:
        """Copies `rows` (int64[k], ascending) to target, target + 1, ..."""
        if not self.is_initialized:  # a layer that shares another's keys
            return
        rows = rows.to(self.keys.device)
        end = target + len(rows)
        self.keys[..., target:end, :] = self.keys.index_select(-2, rows)
        self.values[..., target:end, :] = self.values.index_select(-2, rows)


class InPlaceCache(Cache):  # type: ignore[misc]
    """`length` accepted rows; `room` is how many to allocate at first."""

    def __init__(self, layers: int, room: int) -> None:
        super().__init__(layers=[InPlaceLayer(self) for _ in range(layers)])
        self.length = 0
        self.room = room

    def keep(self, rows: Sequence[int]) -> None:
        """Of the last pass's rows only `rows` stay, moved together; ascending, from 0.

        [0, 1, 2] costs nothing, [0, 1, 5] moves one row in every layer.
        """
        in_place = 0
        while in_place < len(rows) and rows[in_place] == in_place:
            in_place += 1
        if in_place < len(rows):
            moved = torch.tensor([self.length + row for row in rows[in_place:]])
            for layer in self.layers:
                layer.move(self.length + in_place, moved)
        self.length += len(rows)


def _enlarged(old: torch.Tensor | None, like: torch.Tensor, filled: int, room: int) -> torch.Tensor:
    new = like.new_empty((*like.shape[:-2], room + room // 4, like.shape[-1]))
    if old is not None:
        new[..., :filled, :] = old[..., :filled, :]
    return new
