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


class InPlaceLayer(DynamicLayer):
    """One layer. keys, values: [1, heads, room, head_dim], free from the cache's length on."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, cache: InPlaceCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._cache = cache

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes a pass's rows behind the accepted ones; returns both."""
        begin = self._cache.length
        end = begin + key_states.shape[-2]
        if not self.is_initialized or end > self.keys.shape[-2]:
            self._grow(key_states, value_states, begin, max(end, self._cache.room))
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

    def _grow(self, keys: torch.Tensor, values: torch.Tensor, filled: int, room: int) -> None:
        old_keys, old_values = self.keys, self.values
        self.keys, self.values = _room_for(keys, room), _room_for(values, room)
        if self.is_initialized:
            self.keys[..., :filled, :] = old_keys[..., :filled, :]
            self.values[..., :filled, :] = old_values[..., :filled, :]
        self.is_initialized = True


class InPlaceCache(Cache):
    """`length` accepted rows; `room` is how many to allocate at first."""

    def __init__(self, layers: int, room: int) -> None:
        self.in_place = [InPlaceLayer(self) for _ in range(layers)]
        super().__init__(layers=list(self.in_place))
        self.length = 0
        self.room = room

    def keep(self, rows: Sequence[int]) -> None:
        """Of the last pass's rows only `rows` stay, moved together; ascending, from 0.

        [0, 1, 2] costs nothing, [0, 1, 5] moves one row in every layer.
        """
        lying = 0
        while lying < len(rows) and rows[lying] == lying:
            lying += 1
        if lying < len(rows):
            moved = torch.tensor([self.length + row for row in rows[lying:]])
            for layer in self.in_place:
                layer.move(self.length + lying, moved)
        self.length += len(rows)


def _room_for(states: torch.Tensor, room: int) -> torch.Tensor:
    """A quarter more than `room`, so that growing row by row copies seldom."""
    return states.new_empty((*states.shape[:-2], room + room // 4, states.shape[-1]))
