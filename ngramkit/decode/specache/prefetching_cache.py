"""The SpeCache of one request, as a cache of transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.decode.specache.growing import cpu_memory
from ngramkit.decode.specache.options import SpeCache
from ngramkit.decode.specache.quantize import KEYS, VALUES, LowBits
from ngramkit.decode.specache.store import Copies, PairStore


@dataclass
class Hits:
    """Quality of the fetched pairs per layer, summed over heads and steps."""

    mass: list[float]  # attention of the written row to quantised pairs
    held: list[float]  # attention of that row to fetched pairs
    wanted: list[int]  # pairs fetched
    found: list[int]  # fetched pairs in the row's true top-k

    @classmethod
    def of(cls, layers: int) -> Hits:
        return cls([0.0] * layers, [0.0] * layers, [0] * layers, [0] * layers)

    def mass_held(self) -> list[float]:
        """Return, per layer, the share of attention mass that was fetched."""
        return [
            held / mass if mass else 1.0 for held, mass in zip(self.held, self.mass, strict=True)
        ]

    def top_k_found(self) -> list[float]:
        """Return, per layer, the share of the true top-k that was fetched."""
        return [f / w if w else 1.0 for f, w in zip(self.found, self.wanted, strict=True)]


class SpeCacheRun(Cache):
    def __init__(
        self,
        options: SpeCache,
        layers: int,
        *,
        room: int,
        copies: Copies | None = None,
    ) -> None:
        self.options = options
        self._space = LayerMemory()
        copies = copies or Copies()
        self.low_layers = [
            SpeCacheLayer(options, bits, top_k, room, copies, self._space)
            for bits, top_k in options.of_layers(layers)
        ]
        super().__init__(layers=list(self.low_layers))
        self.attended: set[int] = set()  # layers that attended through this cache
        self.reads_prompt = True  # the current pass is the first, in full precision
        self.keeps = 1  # rows of the current pass that will stay
        self.hits = Hits.of(layers)

    @property
    def length(self) -> int:
        return self.low_layers[0].length

    @property
    def missing(self) -> int:
        """Layers that did not use this cache and its attention."""
        used = {i for i, layer in enumerate(self.low_layers) if layer.is_initialized}
        return len(self.low_layers) - len(used & self.attended)

    def take_weights(
        self,
        index: int,
        weights: torch.Tensor,
        weights_over: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        """Select the pairs to fetch by a layer's attention `weights` [heads, group, rows, n].

        `weights_over` returns the same queries' weights over other keys.
        """
        layer = self.low_layers[index]
        if self.options.measure and layer.fetched is not None:
            if len(weights) != len(layer.fetched.positions):
                raise InputError(
                    "cannot measure hits: this model caches compressed keys",
                    "Leave out measure.",
                )
            self._measure(index, weights_over(layer.exact_keys()))
        layer.select_heaviest(weights[:, :, -1].flatten(0, 1), self.keeps)

    def end_pass(self) -> None:
        if self.reads_prompt:  # each layer has kept all of it already
            self.reads_prompt = False
            return
        for layer in self.low_layers:
            layer.keep(self.keeps)
        for layer in self.low_layers:
            layer.fetch_selected()

    def _measure(self, index: int, exact: torch.Tensor) -> None:
        """Compare what row 0, the written one, would attend to with the fetched pairs."""
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
        """Bytes of low_bit, residual, fetched and mixed; on the CPU, store."""
        total: dict[str, int] = {"mixed": self._space.bytes}
        for layer in self.low_layers:
            for name, size in layer.bytes.items():
                total[name] = total.get(name, 0) + size
        return total


@dataclass(frozen=True)
class CacheFacts:
    options: SpeCache
    bytes: dict[str, int]  # see SpeCacheRun.bytes
    hits: Hits | None  # None: not measured

    def __str__(self) -> str:
        sizes = {name: f"{size / 1e6:.1f} MB" for name, size in self.bytes.items()}
        what = f"specache, {self.options.bits} bits" if self.options.fetches else "low bits alone"
        return (
            f"cache: {what}, not lossless; {sizes['low_bit']} low-bit, "
            f"{sizes['residual']} residual, {sizes['fetched']} fetched, "
            f"{sizes['mixed']} work space, {sizes['store']} in CPU memory"
        )

    def to_dict(self) -> dict[str, Any]:
        options = self.options
        return {
            "cache": "specache" if options.fetches else "low-bit",
            "bits": options.bits,
            "group": options.group,
            "top_k": options.top_k,
            "residual": options.residual,
            "speculative_token": options.speculative,
            "cache_bytes": self.bytes,
            "mass_held": None if self.hits is None else self.hits.mass_held(),
            "top_k_found": None if self.hits is None else self.hits.top_k_found(),
        }


# One layer of the cache: low-bit pairs, fetched pairs, and the newest in full precision.
#
# In text order: [quantised | residual | the pass's own rows]. A pass reads a quantised pair from
# its code, unless the pair itself was fetched. A pass's rows count once they are kept.

Pair = tuple[torch.Tensor, torch.Tensor]  # keys and values


class LayerMemory:
    """Mixed keys and values of one layer at a time, shared by all layers."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, int, int], torch.Tensor] = {}

    def take(self, which: int, like: torch.Tensor, tokens: int) -> torch.Tensor:
        """Return uninitialised [1, heads, tokens, dim] like `like` [1, heads, n, dim]."""
        _, heads, _, dim = like.shape
        memory = self._held.get((which, heads, dim))
        if memory is None or memory.shape[2] < tokens:
            memory = like.new_empty((1, heads, tokens + tokens // 16 + 1, dim))
            self._held[which, heads, dim] = memory
        return memory[:, :, :tokens]

    @property
    def bytes(self) -> int:
        return sum(memory.nbytes for memory in self._held.values())


@dataclass
class FetchedPairs:
    """Full-precision pairs on the device, complete once `mark` is reached."""

    positions: torch.Tensor  # int64 [heads, k], on the device
    keys: torch.Tensor  # [heads, k, dim]
    values: torch.Tensor  # [heads, k, dim]
    mark: Any


class SpeCacheLayer(CacheLayerMixin):
    """A layer with room for `room` tokens at first.

    The prompt is kept layer by layer: the full pairs of two layers are never on the device at once.
    """

    is_sliding = False  # masks handle windows: every pair is kept
    _residual: Pair  # the newest, once initialized

    def __init__(
        self,
        options: SpeCache,
        bits: int,
        top_k: int,
        room: int,
        copies: Copies,
        space: LayerMemory,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.options, self.bits, self.top_k = options, bits, top_k
        self._room, self._copies, self._space = room, copies, space
        self.length = 0
        self.fetched: FetchedPairs | None = None
        stored = options.quantised(room)
        self._low = [LowBits(kind, bits, options.group, stored) for kind in (KEYS, VALUES)]
        self.store = PairStore(copies, stored)
        self._pass: Pair | None = None
        self._asked: tuple[torch.Tensor, torch.Tensor, Any] | None = None
        self._buffers: list[Pair] = []

    @property
    def quantised(self) -> int:
        return self.store.length

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        for part in (key_states, value_states):
            channels = part.shape[-1]
            if channels % self.options.group:
                fitting = [str(size) for size in (128, 64, 32, 16, 8) if channels % size == 0]
                raise UsageError(
                    f"group must divide {channels}, the channels that the model caches, got "
                    f"{self.options.group}",
                    f"Use {' or '.join(fitting)}." if fitting else "",
                    option="group",
                )
        empty = [part[:, :, :0] for part in (key_states, value_states)]
        self._residual = (empty[0], empty[1])
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> Pair:
        """Map a pass's [1, heads, rows, dim] to all pairs [1, heads, length + rows, dim]."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if self.length == 0:
            self._add(key_states, value_states)
            return key_states, value_states
        self._pass = (key_states, value_states)
        if self.fetched is not None:
            self._copies.wait(self.fetched.mark)
        return self._mixed(0, key_states), self._mixed(1, value_states)

    def _mixed(self, which: int, rows: torch.Tensor) -> torch.Tensor:
        """Return all keys (0) or values (1) of a pass, [1, heads, length + rows, dim]."""
        out = self._space.take(which, rows, self.length + rows.shape[2])
        self._low[which].read_into(out[0, :, : self.quantised])
        if self.fetched is not None:
            pairs = (self.fetched.keys, self.fetched.values)[which]
            index = self.fetched.positions.unsqueeze(-1).expand_as(pairs)
            out[0].scatter_(1, index, pairs)
        out[:, :, self.quantised : self.length] = self._residual[which]
        out[:, :, self.length :] = rows
        return out

    def exact_keys(self) -> torch.Tensor:
        """Return keys [1, heads, length + rows, dim] in full precision."""
        assert self._pass is not None
        newest = torch.cat([self._residual[0], self._pass[0]], 2)
        if self.quantised == 0:
            return newest
        return torch.cat([self.store.keys[None].to(newest), newest], 2)

    def select_heaviest(self, weights: torch.Tensor, keeps: int) -> None:
        """Select the next pass's pairs; begin copying their positions to the CPU.

        They are the heaviest in their head's mean of `weights` [query heads, n], among those that
        are quantised `keeps` tokens later.
        """
        among = self.options.quantised(self.length + keeps)
        k = min(self.top_k, among)
        if k == 0:
            self._asked = None
            return
        heads = self._residual[0].shape[1]
        mean = weights[:, :among].view(heads, -1, among).mean(1)
        positions = mean.topk(k, sorted=False).indices
        there = cpu_memory(positions, tuple(positions.shape))
        self._copies.copy(there, positions)
        self._asked = (positions, there, self._copies.mark())

    def fetch_selected(self) -> None:
        self.fetched = None
        if self._asked is None:
            return
        positions, there, mark = self._asked
        self._copies.wait_here(mark)
        pairs = self.store.gather(there)
        buffers = self._buffer(self._residual, positions.shape[1])
        for buffer, part in zip(buffers, pairs, strict=True):
            self._copies.copy(buffer, part, now=True)
        self.fetched = FetchedPairs(positions, *buffers, self._copies.mark())

    def _buffer(self, like: Pair, k: int) -> Pair:
        """Return the buffer that the last pass did not read, cut to `k` pairs."""
        if not self._buffers or self._buffers[0][0].shape[1] < k:
            size = max(k, min(self.top_k, self.options.quantised(self._room)))
            shapes = [(part.shape[1], size, part.shape[3]) for part in like]
            self._buffers = [
                (like[0].new_empty(shapes[0]), like[1].new_empty(shapes[1])) for _ in range(2)
            ]
        self._buffers.reverse()
        keys, values = self._buffers[0]
        return keys[:, :k], values[:, :k]

    def keep(self, rows: int) -> None:
        assert self._pass is not None
        keys, values = self._pass
        self._pass = None
        if rows:
            self._add(keys[:, :, :rows], values[:, :, :rows])

    def _add(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Add pairs [1, heads, n, dim]; quantise and store groups beyond the residual."""
        parts = [
            torch.cat([old, new], 2)
            for old, new in zip(self._residual, (keys, values), strict=True)
        ]
        self.length += keys.shape[2]
        ready = self.options.quantised(self.length) - self.quantised
        if ready > 0:
            for low, part in zip(self._low, parts, strict=True):
                low.append(part[0, :, :ready])
            self.store.append(parts[0][0, :, :ready], parts[1][0, :, :ready])
            parts = [part[:, :, ready:].clone() for part in parts]
        self._residual = (parts[0], parts[1])

    def get_seq_length(self) -> int:
        return self.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_max_length(self) -> int:
        return -1

    @property
    def bytes(self) -> dict[str, int]:
        return {
            "low_bit": sum(low.bytes for low in self._low),
            "residual": sum(part.nbytes for part in self._residual) if self.length else 0,
            "fetched": sum(part.nbytes for pair in self._buffers for part in pair),
            "store": self.store.bytes,
        }
