"""A SpeCache of one request: transformers' cache, and what a run of it learns on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache

from ngramkit.decode.specache.layer import SpeCacheLayer, Workspace
from ngramkit.decode.specache.options import SpeCache
from ngramkit.decode.specache.store import Copies, InLine
from ngramkit.errors import InputError


@dataclass
class Hits:
    """How good the fetched pairs were, summed over heads and steps; one entry per layer."""

    mass: list[float]  # attention that the written row pays to quantised pairs
    held: list[float]  # of it, to pairs that were fetched
    wanted: list[int]  # pairs fetched
    found: list[int]  # of them, among as many that the row pays most attention to

    @classmethod
    def of(cls, layers: int) -> Hits:
        return cls([0.0] * layers, [0.0] * layers, [0] * layers, [0] * layers)

    def mass_held(self) -> list[float]:
        """Per layer, the share of the attention mass that was fetched, 0 to 1."""
        return [
            held / mass if mass else 1.0 for held, mass in zip(self.held, self.mass, strict=True)
        ]

    def top_k_found(self) -> list[float]:
        """Per layer, the share of the true top-k that was fetched, 0 to 1."""
        return [f / w if w else 1.0 for f, w in zip(self.found, self.wanted, strict=True)]


class SpeCacheRun(Cache):
    """What `model(past_key_values=run)` is given. One request at a time."""

    def __init__(
        self,
        options: SpeCache,
        layers: int,
        *,
        room: int,
        copies: Copies | None = None,
    ) -> None:
        self.options = options
        self._space = Workspace()
        copies = copies or InLine()
        self.low_layers = [
            SpeCacheLayer(options, bits, top_k, room, copies, self._space)
            for bits, top_k in options.of_layers(layers)
        ]
        super().__init__(layers=list(self.low_layers))
        self._attended: set[int] = set()
        self.reads_prompt = True  # the pass under way is the first, in full precision
        self.keeps = 1  # rows of the pass under way that will stay
        self.hits = Hits.of(layers)

    @property
    def length(self) -> int:
        """Tokens that are kept."""
        return self.low_layers[0].length

    @property
    def missing(self) -> int:
        """Layers whose attention or pairs never came here: the model goes its own ways."""
        used = {i for i, layer in enumerate(self.low_layers) if layer.is_initialized}
        return len(self.low_layers) - len(used & self._attended)

    def attended(
        self,
        module: Any,
        weights: torch.Tensor | None,
        exactly: Callable[[torch.Tensor], torch.Tensor] | None,
    ) -> None:
        """Called by the attention of every layer: `weights` [heads, group, rows, n] of a pass.

        `exactly` gives the weights that the same queries have over other keys.
        """
        index = int(module.layer_idx)
        self._attended.add(index)
        layer = self.low_layers[index]
        if weights is None:
            return
        if self.options.measure and exactly is not None and layer.fetched is not None:
            if len(weights) != len(layer.fetched.positions):
                raise InputError(
                    "hits cannot be measured where a model caches compressed keys",
                    "leave out measure",
                )
            self._measure(index, exactly(layer.exact_keys()))
        layer.ask(weights[:, :, -1].flatten(0, 1), self.keeps)

    def end_pass(self) -> None:
        """The pass's rows that were to stay do; what its last row asked for is on its way."""
        if self.reads_prompt:  # layer by layer all of it was kept already
            self.reads_prompt = False
            return
        for layer in self.low_layers:
            layer.keep(self.keeps)
        for layer in self.low_layers:
            layer.prefetch_asked()

    def reset(self) -> None:
        """For another request."""
        for layer in self.low_layers:
            layer.reset()
        self._attended.clear()
        self.reads_prompt = True

    def _measure(self, index: int, exact: torch.Tensor) -> None:
        """Row 0, the one whose result is written: what it would attend to, what was there."""
        layer, hits = self.low_layers[index], self.hits
        assert layer.fetched is not None
        weights = exact[:, :, 0, : layer.quantised].mean(1)  # [heads, quantised]
        positions = layer.fetched.positions
        best = weights.topk(positions.shape[1], sorted=False).indices
        hits.mass[index] += float(weights.sum())
        hits.held[index] += float(weights.gather(1, positions).sum())
        hits.wanted[index] += positions.numel()
        hits.found[index] += int((best[:, :, None] == positions[:, None, :]).sum())

    @property
    def bytes(self) -> dict[str, int]:
        """Of the tensors that exist: low_bit, residual, fetched and mixed; on the CPU, store."""
        total: dict[str, int] = {"mixed": self._space.bytes}
        for layer in self.low_layers:
            for name, size in layer.bytes.items():
                total[name] = total.get(name, 0) + size
        return total
