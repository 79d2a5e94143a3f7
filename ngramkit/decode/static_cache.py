"""Keys and values in memory that is taken once and never moves, for passes of fixed shape.

Where a pass writes is a tensor on the device, and how far it reads is fixed, so that a recorded
pass holds for every length of the context. All layers of one shape lie in one tensor: accepted
rows are moved in all of them at once. Knows rows, not trees.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from transformers.cache_utils import Cache, DynamicLayer

from ngramkit.decode.cache import InPlaceCache, held


class Shape(NamedTuple):
    """Of a layer's keys, or of its values: [1, heads, tokens, dim]."""

    heads: int
    dim: int
    dtype: torch.dtype


# Keys' and values' shapes of every layer; None for one that reads another layer's.
Shapes = Sequence[tuple[Shape, Shape] | None]


def layer_shapes(model: Any) -> Shapes:
    """Found by reading one token: configs do not agree on how to tell."""
    cache = InPlaceCache(model.config.get_text_config().num_hidden_layers, 1)
    ids = torch.zeros((1, 1), dtype=torch.int64, device=model.device)
    model(input_ids=ids, past_key_values=cache, use_cache=True)
    return [
        (_shape(layer.keys), _shape(layer.values)) if layer.is_initialized else None
        for layer in cache.in_place
    ]


def _shape(states: torch.Tensor) -> Shape:
    return Shape(states.shape[1], states.shape[3], states.dtype)


class StaticLayer(DynamicLayer):
    """One layer's views of the memory. keys, values: [1, heads, room, dim]."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, cache: StaticCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._cache = cache

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes a pass's tokens to their columns; returns the columns that it reads."""
        at, reach = self._cache.at, self._cache.reach
        self.keys.index_copy_(2, at, key_states)
        self.values.index_copy_(2, at, value_states)
        return self.keys[:, :, :reach], self.values[:, :, :reach]

    def get_seq_length(self) -> int:
        return self._cache.length


class StaticCache(Cache):
    """`length` accepted tokens in columns 0, 1, ... of `room`.

    A pass says first where it writes, `at` int64[rows] on the device, and how many columns it
    reads, `reach`. Every column holds a finite number: masked columns are read too.
    """

    at: torch.Tensor
    reach: int

    def __init__(self, shapes: Shapes, room: int, device: torch.device) -> None:
        self.static = [StaticLayer(self) for _ in shapes]
        super().__init__(layers=list(self.static))
        self.length = 0
        self.room = 0
        self._shapes, self._device = shapes, device
        self.stores: dict[Shape, torch.Tensor] = {}  # [layers' keys and values, heads, room, dim]
        self.grow(room)

    def grow(self, room: int) -> None:
        """Takes other memory for `room` tokens; the accepted ones go with it."""
        places: dict[Shape, list[tuple[StaticLayer, str]]] = defaultdict(list)
        for layer, pair in zip(self.static, self._shapes, strict=True):
            for name, shape in zip(("keys", "values"), pair or (), strict=False):
                places[shape].append((layer, name))
        for shape, parts in places.items():
            size = (len(parts), shape.heads, room, shape.dim)
            store = torch.zeros(size, dtype=shape.dtype, device=self._device)
            if shape in self.stores:
                store[:, :, : self.length] = self.stores[shape][:, :, : self.length]
            self.stores[shape] = store
            for part, (layer, name) in zip(torch.split(store, 1), parts, strict=True):
                setattr(layer, name, part)
                layer.is_initialized = True
        self.room = room

    def clear(self) -> None:
        """For another request: what a broken one left behind (NaN) would spoil masked columns."""
        for store in self.stores.values():
            store.zero_()
        self.length = 0

    def held(self, begin: int) -> list[torch.Tensor]:
        """Keys and values of the accepted tokens from `begin` on, [tokens, heads, dim] each."""
        return held([layer for layer in self.static if layer.is_initialized], begin, self.length)

    def keep(self, rows: Sequence[int]) -> None:
        """Of the last pass's rows only `rows` stay, moved together; ascending, from 0.

        [0, 1, 2] costs nothing, [0, 1, 5] one read and one write for all layers of a shape.
        """
        lying = 0
        while lying < len(rows) and rows[lying] == lying:
            lying += 1
        if lying < len(rows):
            moved = torch.tensor([self.length + row for row in rows[lying:]])
            moved = sendable(moved, self._device).to(self._device, non_blocking=True)
            begin, end = self.length + lying, self.length + len(rows)
            for store in self.stores.values():
                store[:, :, begin:end] = store.index_select(2, moved)
        self.length += len(rows)


def sendable(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The host's tensor where a copy to the device need not be waited for."""
    return tensor.pin_memory() if device.type == "cuda" else tensor
