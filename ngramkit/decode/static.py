"""Draft trees verified in passes of a few fixed shapes, over memory that does not move.

Slower than `verify` where the device is the limit (a CPU), because it computes rows that only fill
up; made for devices that are faster than the host can tell them what to do. There a pass is
recorded (static_graphs) and replayed. Memory and recordings outlive a request.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from ngramkit.budget.static_sizes import SIZES, STEP
from ngramkit.decode.load import context_of
from ngramkit.decode.static_cache import Shapes, StaticCache, layer_shapes, sendable
from ngramkit.decode.static_graphs import CudaGraphs, Recorder, Recordings
from ngramkit.decode.static_pass import StaticPass, packed
from ngramkit.drafters.base import DraftTree, TokenArray

FIRST_REACH = 256  # columns; then 512, 1024, ...
ALIGNED = 64  # columns


def reach_of(columns: int) -> int:
    """How many columns are read where so many are in use."""
    return max(FIRST_REACH, 1 << (columns - 1).bit_length())


def aligned(columns: int) -> int:
    """Attention kernels want masks whose rows begin at even addresses."""
    return -(-columns // ALIGNED) * ALIGNED


class Memory:
    """What a request needs for itself; bound to a model's device, not to the model."""

    def __init__(self, shapes: Shapes, room: int, device: torch.device, recorder: Any) -> None:
        self.cache = StaticCache(shapes, room, device)
        self.recordings = Recordings(recorder)
        self._device = device
        self._inputs: dict[int, torch.Tensor] = {}  # by their size: addresses that stay

    def grow(self, room: int) -> None:
        self.recordings.clear()
        self.cache.grow(room)

    def told(self, numbers: torch.Tensor) -> torch.Tensor:
        """The numbers on the device, always in the same place, without waiting for it."""
        size = len(numbers)
        if size not in self._inputs:
            self._inputs[size] = torch.zeros(size, dtype=numbers.dtype, device=self._device)
        return self._inputs[size].copy_(sendable(numbers, self._device), non_blocking=True)


class Pool:
    """A model's memories that are in no request's use. Holds nothing of the model itself.

    For one thread: a CUDA graph cannot be captured beside another thread's work.
    """

    def __init__(self, model: Any, recorder: Recorder | None) -> None:
        self.addresses = addresses(model)
        self.device = model.device
        self.recorder = recorder
        self._shapes = layer_shapes(model)
        limit = context_of(model)
        self._longest = None if limit is None else aligned(limit + SIZES[-1] + 1)
        self.free: list[Memory] = []

    def take(self, room: int) -> Memory:
        """One for `room` tokens: the smallest that has it, the largest that is made to, or new."""
        free = sorted(self.free, key=lambda memory: memory.cache.room)
        fitting = [memory for memory in free if memory.cache.room >= room]
        memory = fitting[0] if fitting else free[-1] if free else None
        if memory is None:
            return Memory(self._shapes, self.room_for(room), self.device, self.recorder)
        self.free.remove(memory)
        memory.cache.clear()
        if not fitting:
            memory.grow(self.room_for(room))
        return memory

    def give(self, memory: Memory) -> None:
        self.free.append(memory)

    def room_for(self, tokens: int) -> int:
        """With some to spare, so that the next request fits too; not beyond the model's context."""
        room = reach_of(tokens)
        return room if self._longest is None else min(room, max(aligned(tokens), self._longest))


POOLS: weakref.WeakKeyDictionary[Any, Pool] = weakref.WeakKeyDictionary()


def pool_of(model: Any) -> Pool:
    """The model's pool; another one once its weights lie elsewhere."""
    pool = POOLS.get(model)
    if pool is not None and pool.addresses == addresses(model):
        return pool
    stays = pool is not None and pool.device == model.device
    POOLS[model] = Pool(model, pool.recorder if pool and stays else recorder_for(model))
    return POOLS[model]


def recorder_for(model: Any) -> Recorder | None:
    if model.device.type != "cuda":
        return None
    return CudaGraphs(model.config.model_type, model.device)


def addresses(model: Any) -> tuple[Any, ...]:
    """Of all weights; a recording reads them there, whatever lies there."""
    held = [*model.parameters(), *model.buffers()]
    places = ((each.data_ptr(), each.dtype, each.device) for each in held)
    return (model.config._attn_implementation, *places)


class StaticVerifier:
    """One request, as TreeVerifier. Logits are overwritten by the next pass of the same model."""

    def __init__(self, model: Any, *, room: int) -> None:
        self._model = model
        self._device = model.device
        self._pass = StaticPass(model)
        with torch.inference_mode():
            self._pool = pool_of(model)
            self.memory = self._pool.take(room + STEP)
        weakref.finalize(self, self._pool.give, self.memory).atexit = False

    @property
    def length(self) -> int:
        """Tokens in the cache."""
        return self.memory.cache.length

    @torch.inference_mode()
    def prefill(self, prompt: TokenArray) -> torch.Tensor:
        """Reads what of the prompt is not held yet, unrecorded; the logits [1, V] after it."""
        self.require(len(prompt))
        cache = self.memory.cache
        ids = torch.from_numpy(prompt[cache.length :].astype(np.int64)).to(self._device)
        cache.at = torch.arange(cache.length, len(prompt), device=self._device)
        cache.reach = len(prompt)
        output = self._model(
            input_ids=ids[None], past_key_values=cache, use_cache=True, logits_to_keep=1
        )
        cache.length = len(prompt)
        logits: torch.Tensor = output.logits[0]
        return logits

    @torch.inference_mode()
    def verify(self, root: int, tree: DraftTree) -> torch.Tensor:
        """Logits [n + 1, V]: row 0 follows `root` (the last token written), row i + 1 node i."""
        numbers = packed(self.length, root, tree)
        rows = len(numbers) // 2
        self.require(self.length + rows)
        memory = self.memory
        reach = min(reach_of(self.length + rows), memory.cache.room)
        told = memory.told(torch.from_numpy(numbers))
        body = partial(self._pass.run, memory.cache, told, reach)
        return memory.recordings.run((rows, reach), body)[: len(tree) + 1]

    @torch.inference_mode()
    def keep(self, nodes: Sequence[int]) -> None:
        """The root and these nodes (a path, from the top) are now part of the context."""
        self.memory.cache.keep([0, *(node + 1 for node in nodes)])

    def held(self, begin: int) -> list[torch.Tensor]:
        """Keys and values of the accepted tokens from `begin` on, [tokens, heads, dim] each."""
        return self.memory.cache.held(begin)

    def rewind(self, length: int) -> None:
        """Only the first `length` tokens are held from now on."""
        self.memory.cache.length = length

    def require(self, columns: int) -> None:
        """Memory for so many columns; what was recorded is forgotten where it must grow."""
        if columns > self.memory.cache.room:
            self.memory.grow(self._pool.room_for(columns))
