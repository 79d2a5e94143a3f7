"""Caches of the accepted tokens: keys and values, and states of recurrent layers.

transformers' DynamicCache copies every layer at every pass, and its sliding layers drop rows that
are needed after a rejected draft.

Tokens cannot be removed from recurrent states, so every pass works on a copy, which is held only if
all its tokens were accepted. Convolution states can be cut anywhere.

Held data change in one last assignment, so an interrupted pass changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from transformers import cache_utils
from transformers.cache_utils import (
    Cache,
    DynamicCache,
    DynamicLayer,
    LinearAttentionCacheLayerMixin,
    LinearAttentionLayer,
)

# A layer without a cache; transformers before 5.21 has no class for it.
DUMMY: Any = getattr(cache_utils, "DummyLayer", ())
States = dict[int, torch.Tensor]  # by their number in the layer, [rows, ...]


class InPlaceLayer(DynamicLayer):
    """A layer. keys, values: [rows, heads, room, head_dim], unused after the cache's length.

    Every row holds the accepted tokens.
    """

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, cache: InPlaceCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._cache = cache

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
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
        if self.is_initialized and len(self.keys) > 1:
            self.keys[:, :, begin:end] = self.keys[row, :, begin:end].clone()
            self.values[:, :, begin:end] = self.values[row, :, begin:end].clone()

    def _grow(self, keys: torch.Tensor, values: torch.Tensor, filled: int, end: int) -> None:
        """Copy the accepted tokens to larger buffers, with spare room to copy rarely."""
        old = self.keys, self.values
        rows, room = len(keys), self._cache.room
        if self.is_initialized:
            rows, room = max(rows, len(old[0])), old[0].shape[-2]
        if end > room:
            room = end + end // 4
        new = [
            states.new_empty((rows, states.shape[1], room, states.shape[-1]))
            for states in (keys, values)
        ]
        if self.is_initialized:
            for larger, states in zip(new, old, strict=True):
                larger[:, :, :filled] = states[0, :, :filled]
        self.keys, self.values = new
        self.is_initialized = True


class InPlaceCache(Cache):
    """A cache of `length` tokens; `room`: tokens to allocate at first."""

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
        """Keep only `rows` of the last pass's rows, ascending from 0."""
        staying = 0
        while staying < len(rows) and rows[staying] == staying:
            staying += 1
        if staying < len(rows):
            moved = torch.tensor([self.length + row for row in rows[staying:]])
            for layer in self.in_place:
                layer.move(self.length + staying, moved)
        self.length += len(rows)


def is_recurrent(model: Any) -> bool:
    layers = _layers(model.config.get_text_config(decoder=True))
    return any(isinstance(each, LinearAttentionCacheLayerMixin) for each in layers)


class LayerStates(NamedTuple):
    """One row of a recurrent layer's states; never written to."""

    convolutions: States
    sums: States
    follows: dict[int, bool]  # transformers' has_previous_state


class RecurrentLayer(LinearAttentionLayer):
    def __init__(self, number_of_states: int = 1) -> None:
        super().__init__(number_of_states=number_of_states)
        self._inputs: States = {}  # of the pass's convolutions, with earlier ones

    def update_conv_state(
        self,
        conv_states: torch.Tensor,
        state_idx: int = 0,
        conv_kernel_size: int | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        inputs = super().update_conv_state(conv_states, state_idx, conv_kernel_size, **kwargs)
        self._inputs[state_idx] = inputs
        return inputs

    @property
    def sums(self) -> bool:
        """Whether it has states that cannot be cut."""
        return any(self.is_recurrent_states_initialized.values())

    def begin(self, held: LayerStates, rows: int) -> None:
        for number in range(self.number_of_states):
            convolution, summed = held.convolutions.get(number), held.sums.get(number)
            self.conv_states[number] = _repeat_rows(convolution, rows)
            self.recurrent_states[number] = _repeat_rows(summed, rows)
            self.is_conv_states_initialized[number] = convolution is not None
            self.is_recurrent_states_initialized[number] = summed is not None
            self.has_previous_state[number] = held.follows.get(number, False)
        self._inputs = {}

    def ends(self, row: int, left_out: int) -> LayerStates:
        """Return the row's states `left_out` tokens before the pass's end."""
        convolutions = _existing_states(self.conv_states)
        sums = _existing_states(self.recurrent_states)
        for number, state in convolutions.items() if left_out else ():
            width, inputs = state.shape[-1], self._inputs[number]
            convolutions[number] = inputs[..., : inputs.shape[-1] - left_out][..., -width:]
        return LayerStates(
            {number: state[row : row + 1] for number, state in convolutions.items()},
            {number: state[row : row + 1] for number, state in sums.items()},
            dict(self.has_previous_state),
        )


class RecurrentAndAttentionLayer(RecurrentLayer, InPlaceLayer):  # type: ignore
    """A layer with both, as in Falcon-H1."""

    def __init__(self, cache: InPlaceCache, number_of_states: int = 1) -> None:
        InPlaceLayer.__init__(self, cache)
        RecurrentLayer.__init__(self, number_of_states)


class Held(NamedTuple):
    """A cache's content; `replayed` tokens are accepted but not in the states."""

    length: int
    states: tuple[LayerStates, ...]
    replayed: tuple[int, ...] = ()


class RecurrentCache(InPlaceCache):
    def __init__(self, config: Any, room: int) -> None:
        layers = [self._own(layer) for layer in _layers(config)]
        self.in_place = [layer for layer in layers if isinstance(layer, InPlaceLayer)]
        self.recurrent = [layer for layer in layers if isinstance(layer, RecurrentLayer)]
        Cache.__init__(self, layers=layers)
        self._nothing = Held(0, tuple(LayerStates({}, {}, {}) for _ in self.recurrent))
        self._held = self._marked = self._nothing
        self.room = room

    def _own(self, layer: Any) -> Any:
        if isinstance(layer, LinearAttentionCacheLayerMixin):
            if isinstance(layer, DynamicLayer):
                return RecurrentAndAttentionLayer(self, layer.number_of_states)
            return RecurrentLayer(layer.number_of_states)
        return layer if isinstance(layer, DUMMY) else InPlaceLayer(self)

    @property
    def length(self) -> int:  # type: ignore[override]
        return self._held.length

    @property
    def replayed(self) -> tuple[int, ...]:
        return self._held.replayed

    def begin(self, rows: int) -> None:
        for layer, states in zip(self.recurrent, self._held.states, strict=True):
            layer.begin(states, rows)

    def settle_or_replay(self, row: int, tokens: Sequence[int], left_out: int) -> None:
        """Keep `tokens`, the first of one `row` of the last pass; `left_out` came after them.

        If some states can only be kept whole, the next pass reads `tokens` again.
        """
        if left_out and any(layer.sums for layer in self.recurrent):
            self.replay(tokens)
        else:
            self.settle(row, len(tokens), left_out)

    def settle(self, row: int, tokens: int, left_out: int = 0) -> None:
        """Keep the states after the first `tokens` of one `row`; `left_out` came after them."""
        end = self.length + tokens
        for layer in self.in_place:
            layer.spread(row, self.length, end)
        self._held = Held(end, tuple(layer.ends(row, left_out) for layer in self.recurrent))

    def replay(self, tokens: Sequence[int]) -> None:
        """Set the accepted tokens that the next pass reads again."""
        self._held = self._held._replace(replayed=tuple(tokens))

    def mark(self) -> None:
        """Mark the held tokens for `cut`."""
        self._marked = self._held

    def cut(self, length: int) -> None:
        """Hold at most the first `length` tokens.

        Recurrent states can only return to the marked tokens or to none.
        """
        held = Held(length, ())
        if self.recurrent:
            held = self._marked if self._marked.length <= length else self._nothing
        self._marked = held  # first: marked states must never outlast their keys
        self._held = held


def _layers(config: Any) -> list[Any]:
    return list(DynamicCache(config=config).layers)


def _existing_states(states: Any) -> States:
    return {number: state for number, state in states.items() if state is not None}


def _repeat_rows(state: torch.Tensor | None, rows: int) -> torch.Tensor | None:
    return None if state is None else state.repeat(rows, *[1] * (state.dim() - 1))
