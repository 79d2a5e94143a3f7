"""Linear layers whose weights oneDNN packs once, on CPUs where that is faster.

A packed layer becomes plain when its parameters are accessed, and is packed again before the next
request if nothing holds its weight. The faster kind is cached per shape, processor, number of
threads and torch version.
"""

from __future__ import annotations

import copy
import ctypes
import hashlib
import logging
import mmap
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import sqrt
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from ngramkit.basics.cache import TextCache
from ngramkit.basics.errors import first_line
from ngramkit.basics.machine import Lock, processor

LOG = logging.getLogger("ngramkit")
PACKING_CACHE = TextCache("packing", 1024)  # one text per shape
PACKED, PLAIN = "packed\n", "plain\n"
# Decisions that are not cached: a reloaded model computes the same in this process.
PACKING_DECISIONS: dict[str, str] = {}
TIMED_ROWS = (1, 16)  # rows of a pass without and with drafts
TIMED_BYTES = 1 << 25  # bytes of weights to time per shape; exceeds most CPU caches
# Limits of timing a shape. A sign test needs MIN_ROUNDS, however long they take.
MIN_ROUNDS, MAX_ROUNDS, MAX_SECONDS = 5, 25, 1.0
MAX_FREED = 1 << 26  # bytes of freed weights before their memory is returned to the system
MAX_RATIO_TO_PACK = 0.98  # packed time / plain time, over TIMED_ROWS, that is worth packing
HASHED_ROWS = 4096  # rows of a shared weight per step of its fingerprint
# Relative to the output's norm. Another summation order moves a float32 by a millionth.
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 0.02, torch.float16: 0.005}
MAPPED_FILE = re.compile(
    r"([0-9a-f]+)-([0-9a-f]+) r.-p [0-9a-f]+ \S+ [1-9]\d* "
)  # private file maps


class PackedLinear(nn.Linear):
    """A linear layer on the CPU that holds its weight packed.

    It becomes plain when its parameters are accessed or gradients are enabled. A weight shared with
    another part can change unseen, so the packed one is used only within `packed_weights_of`.
    """

    _packed: torch.Tensor
    _print: torch.Tensor | None  # fingerprint of a shared weight; None: not shared
    trusted: bool  # the packed weight equals the plain one

    @property
    def _parameters(self) -> dict[str, Any]:  # type: ignore[override]
        state = vars(self)
        if state.get("_print") is None:
            make_plain(self)
        held: dict[str, Any] = state["_parameters"]
        return held

    @property
    def weight(self) -> nn.Parameter:  # type: ignore[override]
        found: nn.Parameter = self._parameters["weight"]
        return found

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        state = vars(self)  # another thread may make the layer plain
        packed = state.get("_packed") if state.get("trusted") else None
        if packed is not None and not torch.is_grad_enabled():
            return packed_product(input, packed, self.bias)
        return nn.Linear.forward(self, input)

    def __reduce_ex__(self, protocol: Any) -> Any:
        make_plain(self)
        return self.__reduce_ex__(protocol)  # now of nn.Linear


@dataclass
class _Packing:
    layers: dict[nn.Linear, None] = field(default_factory=dict)
    requests: int = 0

    @property
    def shared(self) -> list[PackedLinear]:
        return [
            layer
            for layer in self.layers
            if isinstance(layer, PackedLinear) and layer._print is not None
        ]


_PACKINGS: WeakKeyDictionary[nn.Module, _Packing] = WeakKeyDictionary()
_LOCK = Lock()  # of all layers' kinds, which requests in several threads change


def make_plain(layer: nn.Linear) -> None:
    with _LOCK:
        state = vars(layer)
        if type(layer) is nn.Linear:
            return
        if state["_print"] is None:
            with torch.inference_mode(False), torch.no_grad():
                state["_parameters"]["weight"].data = state["_packed"].to_dense()
        layer.__class__ = nn.Linear
        for name in ("_packed", "_print", "trusted"):
            del state[name]


def pack_linears(model: nn.Module, parts: Iterable[nn.Module] | None = None) -> int:
    """Pack the linear layers among `parts` (default: all) where that is faster; count them."""
    onednn: Any = torch.backends.mkldnn
    if not (onednn.is_available() and onednn.enabled):
        LOG.info("weights are not packed: this torch has no oneDNN")
        return 0
    parts = model.modules() if parts is None else parts
    layers: list[Any] = [part for part in parts if _can_be_packed(part)]
    held = _PACKINGS.setdefault(model, _Packing()).layers
    owners = _count_owners(model)
    shapes: dict[tuple[Any, ...], list[nn.Linear]] = {}
    for layer in layers:
        shapes.setdefault(_shape_of_layer(layer), []).append(layer)
    mapped, count, freed = _mapped_files(), 0, 0
    with torch.inference_mode(False), torch.no_grad():
        for shape, alike in shapes.items():
            reason = _why_not_packed(shape, alike)
            for layer in alike if not reason else ():
                weight, packed = layer.weight, pack_weight(layer.weight)
                if not _same_product(layer, packed, 1):
                    reason = "the output of one differs"
                    continue
                shared = owners[id(weight)] > 1
                known = _fingerprint(weight) if shared else None
                vars(layer).update(_packed=packed, _print=known, trusted=not shared)
                layer.__class__ = PackedLinear
                held[layer] = None
                count += 1
                if not shared:
                    address, size = weight.data_ptr(), weight.nbytes
                    weight.data = weight.new_empty(0)
                    _release_pages(address, size, mapped)
                    freed += size
                if freed > MAX_FREED:
                    _return_freed_memory()
                    freed = 0
            if reason:
                LOG.info("weights %s x %s in %s stay plain: %s", *shape[:3], reason)
    _return_freed_memory()
    LOG.info("%d of %d linear layers packed", count, len(layers))
    return count


@contextmanager
def packed_weights_of(model: nn.Module) -> Iterator[None]:
    """Use the model's packed weights in the context, if they equal the plain ones.

    Plain layers are packed again unless their weight is held elsewhere, or used by a request in
    another thread.
    """
    packing = _PACKINGS.get(model)
    if packing is None:
        yield
        return
    with _LOCK:
        for layer in packing.shared:
            if not _is_current(layer):
                make_plain(layer)
        if not packing.requests and any(type(each) is nn.Linear for each in packing.layers):
            _pack_again(model, packing.layers)
        packing.requests += 1
        for layer in packing.shared:
            layer.trusted = True
    try:
        yield
    finally:
        with _LOCK:
            packing.requests -= 1
            for layer in packing.shared if not packing.requests else ():
                layer.trusted = False


def _pack_again(model: nn.Module, layers: dict[nn.Linear, None]) -> None:
    # On "meta" nothing is drawn from torch's generator, whose next numbers choose tokens.
    owners, alone = _count_owners(model), _reference_counts(nn.Linear(1, 1, device="meta"))
    plain = [layer for layer in layers if type(layer) is nn.Linear]
    free = [
        layer
        for layer in plain
        if owners[id(layer.weight)] > 1 or (alone is not None and _reference_counts(layer) == alone)
    ]
    if free:
        pack_linears(model, free)
    for layer in free:
        if not isinstance(layer, PackedLinear):
            del layers[layer]


def _reference_counts(layer: nn.Linear) -> tuple[object, ...] | None:
    """Return reference counts of a layer's weight; None if torch hides them."""
    weight: Any = layer.weight
    try:
        memory = torch._C._storage_Use_Count(weight.untyped_storage()._cdata)
        return sys.getrefcount(weight), weight._use_count(), memory, weight.grad is None
    except AttributeError:
        return None


def _is_current(layer: PackedLinear) -> bool:
    weight, known = vars(layer)["_parameters"]["weight"], layer._print
    return known is None or (
        weight.device.type == "cpu"
        and weight.dtype == layer._packed.dtype
        and weight.shape == layer._packed.shape
        and torch.equal(_fingerprint(weight), known)
    )


def _fingerprint(weight: torch.Tensor) -> torch.Tensor:
    """Return a weighted sum of each row, float32[out_features].

    Changes through `weight.data` or numpy leave no other trace.
    """
    factors = torch.randn(weight.shape[1], generator=torch.Generator().manual_seed(0))
    with torch.inference_mode(False), torch.no_grad():
        return torch.cat([part.float() @ factors for part in torch.split(weight, HASHED_ROWS)])


def _count_owners(model: nn.Module) -> Counter[int]:
    return Counter(id(each) for each in _held_parameters(model))


def is_packed(model: nn.Module) -> bool:
    return any(isinstance(part, PackedLinear) for part in model.modules())


def packed_bytes(model: nn.Module) -> int:
    """Return the bytes that plain copies of packed weights would add."""
    return sum(part._packed.nbytes for part in _packed_layers(model) if part._print is None)


def unpacked(model: Any) -> Any:
    """Return a copy with plain weights that shares other tensors; the model if it is plain."""
    packed = _packed_layers(model)
    if not packed:
        return model
    shared = {id(each): each for each in (*_held_parameters(model), *model.buffers())}
    return copy.deepcopy(model, {**shared, **{id(part): _plain_copy(part) for part in packed}})


def _packed_layers(model: nn.Module) -> list[PackedLinear]:
    return [part for part in model.modules() if isinstance(part, PackedLinear)]


def _plain_copy(layer: PackedLinear) -> nn.Linear:
    state = vars(layer)
    weight, bias = (state["_parameters"][name] for name in ("weight", "bias"))
    plain = nn.Linear(layer.in_features, layer.out_features, bias is not None, "meta")
    if state["_print"] is None:
        weight = nn.Parameter(layer._packed.to_dense(), requires_grad=False)
    plain.weight = weight
    plain.register_parameter("bias", bias)
    return plain.eval()


def _held_parameters(model: nn.Module) -> Iterator[nn.Parameter]:
    """Yield the parameters of every part, shared ones repeatedly; packed layers stay packed."""
    for part in model.modules():
        yield from (each for each in vars(part)["_parameters"].values() if each is not None)


def devices_of(model: nn.Module) -> list[str]:
    return sorted({str(each.device) for each in _held_parameters(model)})


def _can_be_packed(part: nn.Module) -> bool:
    return (
        type(part) is nn.Linear
        and "forward" not in vars(part)
        and part.weight.device.type == "cpu"
        and part.weight.dtype in TOLERANCES
        and part.weight.numel() > 0
    )


def _shape_of_layer(linear: nn.Linear) -> tuple[Any, ...]:
    kind = str(linear.weight.dtype).removeprefix("torch.")
    return linear.out_features, linear.in_features, kind, linear.bias is not None


def pack_weight(weight: torch.Tensor) -> torch.Tensor:
    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach())
    return packed


def packed_product(
    inputs: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(inputs, packed, bias, "none", [], "")
    return output


def _why_not_packed(shape: tuple[Any, ...], linears: Sequence[nn.Linear]) -> str:
    try:
        first = pack_weight(linears[0].weight)
        if not all(_same_product(linears[0], first, rows) for rows in TIMED_ROWS):
            return "the output differs"
        return "" if _is_faster_packed(shape, linears) else "packed ones are not faster"
    except (RuntimeError, AttributeError, TypeError) as error:
        return first_line(error)


def _same_product(linear: nn.Linear, packed: torch.Tensor, rows: int) -> bool:
    inputs = inputs_for(linear, rows)
    plain, output = linear(inputs), packed_product(inputs, packed, linear.bias)
    off = (output.float() - plain.float()).norm()
    return output.shape == plain.shape and bool(
        off <= TOLERANCES[linear.weight.dtype] * plain.float().norm()
    )


def inputs_for(linear: nn.Linear, rows: int) -> torch.Tensor:
    drawn = torch.randn(1, rows, linear.in_features, generator=torch.Generator().manual_seed(0))
    return drawn.to(linear.weight.dtype)


def _is_faster_packed(shape: tuple[Any, ...], linears: Sequence[nn.Linear]) -> bool:
    key = _cache_key(shape)
    known = PACKING_DECISIONS.get(key) or PACKING_CACHE.get(key)
    if known not in (PACKED, PLAIN):
        timed = linears[: max(1, TIMED_BYTES // linears[0].weight.nbytes)]
        packed = [
            partial(packed_product, packed=pack_weight(each.weight), bias=each.bias)
            for each in timed
        ]
        is_faster, is_certain = saves_time(timed, packed)
        known = PACKED if is_faster else PLAIN
        if not (is_certain and PACKING_CACHE.put(key, known)):
            PACKING_DECISIONS[key] = known
    return known == PACKED


Layers = Sequence[Callable[[torch.Tensor], Any]]


def saves_time(plain: Layers, packed: Layers) -> tuple[bool, bool]:
    """Return whether packed layers take at most MAX_RATIO_TO_PACK of the time in most rounds.

    Also return whether that is certain: by a sign test, or because neither is faster in MAX_ROUNDS.
    """
    inputs = [inputs_for(plain[0], rows) for rows in TIMED_ROWS]  # type: ignore[arg-type]
    layers = {PACKED: packed, PLAIN: plain}
    faster, began = 0, time.perf_counter()
    for rounds in range(1, MAX_ROUNDS + 1):
        seconds = {}
        for kind in (PACKED, PLAIN) if rounds % 2 else (PLAIN, PACKED):
            seconds[kind] = sum(seconds_of(layers[kind], each) for each in inputs)
        faster += seconds[PACKED] <= MAX_RATIO_TO_PACK * seconds[PLAIN]
        is_certain = abs(2 * faster - rounds) > 2 * sqrt(rounds) or rounds == MAX_ROUNDS
        enough = rounds >= MIN_ROUNDS and time.perf_counter() - began > MAX_SECONDS
        if is_certain or enough:
            break
    return 2 * faster > rounds, is_certain


def seconds_of(layers: Layers, inputs: torch.Tensor) -> float:
    started = time.perf_counter()
    for layer in layers:
        layer(inputs)
    return time.perf_counter() - started


def _cache_key(shape: tuple[Any, ...]) -> str:
    decides = (processor(), torch.__version__, torch.get_num_threads(), *shape)
    return hashlib.sha256(repr(decides).encode()).hexdigest()[:32]


def _mapped_files() -> list[tuple[int, int]]:
    """Return the address ranges of private file mappings."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [(int(begin, 16), int(end, 16)) for begin, end in MAPPED_FILE.findall(maps)]


def _release_pages(address: int, size: int, mapped: Sequence[tuple[int, int]]) -> None:
    """Release the pages of a weight in a mapped file, which is freed only as a whole."""
    begin = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (address + size) // mmap.PAGESIZE * mmap.PAGESIZE
    if end > begin and any(low <= begin and end <= high for low, high in mapped):
        pages = ctypes.c_size_t(end - begin)
        ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), pages, mmap.MADV_DONTNEED)


def _return_freed_memory() -> None:
    """Return freed memory to the system: packed weights seldom fit where plain ones were."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))
