"""The model's memory of the accepted tokens: keys and values, and states of recurrent layers.

transformers' own DynamicCache copies itself whole in every layer at every pass, and a sliding
layer drops rows that a rejected draft would have to give back. Here a pass writes its rows behind
the accepted ones, and `keep` decides which of them stay.

A recurrent layer (Mamba 2, gated delta nets, short convolutions) sums its past up in states, which
cannot be taken apart again. So the states that the accepted tokens left are kept aside, and every
pass works on a copy. What a pass leaves behind becomes the kept states only where all its tokens
were accepted. Convolutions alone can be cut anywhere: their state is their last inputs.
Knows rows, not trees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import cache_utils
from transformers.cache_utils import (
    Cache,
    DynamicCache,
    DynamicLayer,
    LinearAttentionCacheLayerMixin,
    LinearAttentionLayer,
)

# A layer that keeps nothing; transformers before 5.21 has no class for it.
DUMMY: Any = getattr(cache_utils, "DummyLayer", ())
States = dict[int, torch.Tensor]  # by their number in the layer, [rows, ...]


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


def is_recurrent(model: Any) -> bool:
    """Return whether transformers keeps states for any of the model's layers."""
    layers = _layers(model.config.get_text_config(decoder=True))
    return any(isinstance(each, LinearAttentionCacheLayerMixin) for each in layers)


class RecurrentLayer(LinearAttentionLayer):
    """The states of one layer: those of the pass under way, and a row of those that are kept."""

    def __init__(self, number_of_states: int = 1) -> None:
        super().__init__(number_of_states=number_of_states)
        self._convolutions: States = {}
        self._states: States = {}
        self._marked: tuple[States, States] = {}, {}
        self._inputs: States = {}  # of the pass's convolutions, what came before included

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
        """True where it has states that cannot be cut."""
        return any(self.is_recurrent_states_initialized.values())

    def begin(self, rows: int) -> None:
        """Begin a pass of so many rows, each behind the kept states."""
        for number, state in self._convolutions.items():
            self.conv_states[number] = _spread(state, rows)
        for number, state in self._states.items():
            self.recurrent_states[number] = _spread(state, rows)
        self._inputs = {}

    def settle(self, row: int, left_out: int = 0) -> None:
        """Keep the row's states as of `left_out` tokens before the pass's end."""
        for number, state in self._present(self.conv_states):
            window = state
            if left_out:
                width, inputs = state.shape[-1], self._inputs[number]
                window = inputs[..., : inputs.shape[-1] - left_out][..., -width:]
            self._convolutions[number] = window[row : row + 1]
        for number, state in self._present(self.recurrent_states):
            self._states[number] = state[row : row + 1]

    def mark(self) -> None:
        """Remember the kept states for `back`. Kept states are replaced, never written to."""
        self._marked = dict(self._convolutions), dict(self._states)

    def back(self) -> None:
        self._convolutions, self._states = map(dict, self._marked)

    def clear(self) -> None:
        """Forget all states."""
        for number in range(self.number_of_states):
            self.is_conv_states_initialized[number] = False
            self.is_recurrent_states_initialized[number] = False
            self.has_previous_state[number] = False
            self.conv_states[number] = self.recurrent_states[number] = None
        self._convolutions, self._states, self._inputs = {}, {}, {}
        self._marked = {}, {}

    @staticmethod
    def _present(states: Any) -> Iterator[tuple[int, torch.Tensor]]:
        return ((number, state) for number, state in states.items() if state is not None)


class RecurrentAndAttentionLayer(RecurrentLayer, InPlaceLayer):  # type: ignore
    """A layer with both, as Falcon-H1's."""

    def __init__(self, cache: InPlaceCache, number_of_states: int = 1) -> None:
        InPlaceLayer.__init__(self, cache)
        RecurrentLayer.__init__(self, number_of_states)


class RecurrentCache(InPlaceCache):
    """`length` tokens are in the kept states and in the keys and values."""

    def __init__(self, config: Any, room: int) -> None:
        layers = [self._own(layer) for layer in _layers(config)]
        self.in_place = [layer for layer in layers if isinstance(layer, InPlaceLayer)]
        self.recurrent = [layer for layer in layers if isinstance(layer, RecurrentLayer)]
        Cache.__init__(self, layers=layers)
        self.length = self.marked = 0
        self.room = room

    def _own(self, layer: Any) -> Any:
        if isinstance(layer, LinearAttentionCacheLayerMixin):
            if isinstance(layer, DynamicLayer):
                return RecurrentAndAttentionLayer(self, layer.number_of_states)
            return RecurrentLayer(layer.number_of_states)
        return layer if isinstance(layer, DUMMY) else InPlaceLayer(self)

    @property
    def sums(self) -> bool:
        """True where a pass can only be kept whole."""
        return any(layer.sums for layer in self.recurrent)

    def begin(self, rows: int) -> None:
        """Begin a pass of so many rows, each behind the tokens that are held."""
        for layer in self.recurrent:
            layer.begin(rows)

    def settle(self, row: int, tokens: int, left_out: int = 0) -> None:
        """Keep only the first `tokens` of one `row` of the last pass; `left_out` came behind
        them."""
        for layer in self.recurrent:
            layer.settle(row, left_out)
        self.keep_row(row, tokens)

    def mark(self) -> None:
        """Remember the tokens that are held now, for `cut`."""
        for layer in self.recurrent:
            layer.mark()
        self.marked = self.length

    def cut(self, length: int) -> None:
        """Hold no more than the first `length` tokens. With recurrent states that is the marked
        tokens where they are no more than `length`, else none."""
        if self.recurrent:
            back = 0 < self.marked <= length
            for layer in self.recurrent:
                if back:
                    layer.back()
                else:
                    layer.clear()
            length = self.marked = self.marked if back else 0
        self.length = length


def _layers(config: Any) -> list[Any]:
    return list(DynamicCache(config=config).layers)


def _spread(state: torch.Tensor, rows: int) -> torch.Tensor:
    """Copy a state to every row."""
    return state.repeat(rows, *[1] * (state.dim() - 1))
