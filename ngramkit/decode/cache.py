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
    """One layer. keys, values: [rows, heads, room, head_dim], free from the cache's length on.

    Every row holds the accepted tokens; a pass uses the first ones, as many as it has.
    """

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, cache: InPlaceCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._cache = cache

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write a pass's tokens behind the accepted ones; return keys and values."""
        begin = self._cache.length
        rows, end = len(key_states), begin + key_states.shape[-2]
        if not self.is_initialized or end > self.keys.shape[-2] or rows > len(self.keys):
            self._grow(key_states, value_states, begin, end)
        self.keys[:rows, :, begin:end] = key_states
        self.values[:rows, :, begin:end] = value_states
        return self.keys[:rows, :, :end], self.values[:rows, :, :end]

    def get_seq_length(self) -> int:
        return self._cache.length

    def move(self, target: int, rows: torch.Tensor) -> None:
        """Copy `rows` (int64[k], ascending) to target, target + 1, ..."""
        if not self.is_initialized:  # a layer that shares another's keys
            return
        rows = rows.to(self.keys.device)
        end = target + len(rows)
        self.keys[..., target:end, :] = self.keys.index_select(-2, rows)
        self.values[..., target:end, :] = self.values.index_select(-2, rows)

    def spread(self, row: int, begin: int, end: int) -> None:
        """Copy what `row` holds from begin to end into every row."""
        if self.is_initialized and len(self.keys) > 1:
            self.keys[:, :, begin:end] = self.keys[row, :, begin:end].clone()
            self.values[:, :, begin:end] = self.values[row, :, begin:end].clone()

    def _grow(self, keys: torch.Tensor, values: torch.Tensor, filled: int, end: int) -> None:
        """Take larger buffers and copy the accepted tokens to every row of them.

        A quarter more room than is needed, so that growing token by token copies seldom.
        """
        old_keys, old_values = self.keys, self.values
        rows, room = len(keys), max(end, self._cache.room)
        if self.is_initialized:
            rows, room = max(rows, len(old_keys)), old_keys.shape[-2]
        if not self.is_initialized or end > room:
            room = max(end, room) + max(end, room) // 4
        self.keys = keys.new_empty((rows, keys.shape[1], room, keys.shape[-1]))
        self.values = values.new_empty((rows, values.shape[1], room, values.shape[-1]))
        if self.is_initialized:
            self.keys[:, :, :filled] = old_keys[0, :, :filled]
            self.values[:, :, :filled] = old_values[0, :, :filled]
        self.is_initialized = True


class InPlaceCache(Cache):
    """`length` accepted rows; `room` is how many to allocate at first."""

    def __init__(self, layers: int, room: int) -> None:
        self.in_place = [InPlaceLayer(self) for _ in range(layers)]
        super().__init__(layers=list(self.in_place))
        self.length = 0
        self.room = room

    @property
    def bytes(self) -> int:
        layers = [layer for layer in self.in_place if layer.is_initialized]
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in layers)

    def keep(self, rows: Sequence[int]) -> None:
        """Keep only `rows` of the last pass's rows, ascending from 0; those that move, move
        together.

        [0, 1, 2] costs nothing, [0, 1, 5] moves one row in every layer.
        """
        staying = 0
        while staying < len(rows) and rows[staying] == staying:
            staying += 1
        if staying < len(rows):
            moved = torch.tensor([self.length + row for row in rows[staying:]])
            for layer in self.in_place:
                layer.move(self.length + staying, moved)
        self.length += len(rows)

    def keep_row(self, row: int, tokens: int) -> None:
        """Keep only the first `tokens` of one `row` of the last pass, in all rows."""
        for layer in self.in_place:
            layer.spread(row, self.length, self.length + tokens)
        self.length += tokens
