"""Linear layers whose weights oneDNN has packed once, on CPUs where passes are faster so.

torch's own linear packs its weights anew at every call with more than one row, which costs more
than reading them. Here a layer's weights are packed when the model is loaded, checked against the
plain layer, and the plain copy is given up. Which shapes gain is found by trying both ways on
the rows that decoding uses, and is kept in the user's cache for each processor, number of threads
and version of torch.
"""

from __future__ import annotations

import copy
import ctypes
import hashlib
import logging
import mmap
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ngramkit.basics.cache import TextCache
from ngramkit.basics.errors import first_line
from ngramkit.basics.machine import processor

LOG = logging.getLogger("ngramkit")
CACHE = TextCache("packing", 1024)  # one text for each shape
PACKED, PLAIN = "packed\n", "plain\n"
ROWS = (1, 16)  # of passes without drafts and with
SAMPLE = 1 << 25  # bytes of weights that are tried of a shape; more than most caches hold
ROUNDS = 5
MOST_FREED = 1 << 26  # bytes of plain weights, before their memory is given back
WORTH = 0.95  # of the plain layers' time for both numbers of rows
# Of the output's length. Another order of summing moves a float32 by a millionth.
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 0.02, torch.float16: 0.005}
MAPPED = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r.-p [0-9a-f]+ \S+ [1-9]\d* ")  # a file's, private


class PackedLinear(nn.Module):
    """A `torch.nn.Linear` whose weights are held packed, on the CPU and in their dtype. Where
    gradients are asked for, the plain weight is made anew.

    `tied` is the plain weight where another part of the model, as its embedding, has it too.
    """

    bias: nn.Parameter | None
    tied: nn.Parameter | None

    def __init__(self, linear: nn.Linear, packed: torch.Tensor, *, tied: bool) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.register_parameter("bias", linear.bias)
        self.register_parameter("tied", linear.weight if tied else None)  # type: ignore[arg-type]
        self._packed = packed

    @property
    def weight(self) -> torch.Tensor:
        """The plain weight [out_features, in_features], bit for bit; made anew if not tied."""
        return self._packed.to_dense() if self.tied is None else self.tied

    @property
    def plain_bytes(self) -> int:
        """The bytes that the plain weight would take; 0 if tied, since it is there."""
        size: int = self._packed.element_size() * self.in_features * self.out_features
        return 0 if self.tied is not None else size

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled() and inputs.requires_grad:
            return nn.functional.linear(inputs, self.weight, self.bias)
        return product(inputs, self._packed, self.bias)

    def plain(self) -> nn.Linear:
        """Return the `torch.nn.Linear` that this was."""
        linear = nn.Linear(self.in_features, self.out_features, self.bias is not None, "meta")
        linear.weight = nn.Parameter(self.weight, False) if self.tied is None else self.tied
        linear.register_parameter("bias", self.bias)
        return linear.eval()

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


def pack_linears(model: nn.Module) -> int:
    """Replace the model's linear layers on the CPU, in place, where packed ones are faster; return
    how many were.

    A layer stays as it is where the operations are missing, fail, or give another output than
    rounding explains; the log says so.
    """
    onednn: Any = torch.backends.mkldnn
    if not (onednn.is_available() and onednn.enabled):
        LOG.info("weights are not packed: this torch has no oneDNN")
        return 0
    names = Counter(id(each) for _, each in model.named_parameters(remove_duplicate=False))
    shapes: dict[tuple[Any, ...], list[tuple[nn.Module, str]]] = {}
    for parent in model.modules():
        for name, part in parent.named_children():
            if isinstance(part, nn.Linear) and _can_be_packed(part):
                shapes.setdefault(_shape(part), []).append((parent, name))
    mapped, count, freed = _mapped_files(), 0, 0
    with torch.no_grad():
        for shape, places in shapes.items():
            reason = _why_plain(shape, [getattr(*place) for place in places])
            for parent, name in places if not reason else ():
                linear = getattr(parent, name)
                tied = names[id(linear.weight)] > 1
                packed = PackedLinear(linear, pack(linear.weight), tied=tied)
                if not _agrees(linear, packed, 1):
                    reason = f"{name}'s output differs"
                    continue
                setattr(parent, name, packed)
                count += 1
                if not tied:
                    _forget(linear.weight, mapped)
                    freed += linear.weight.nbytes
                    del linear
                if freed > MOST_FREED:
                    _give_back()
                    freed = 0
            if reason:
                LOG.info("weights %s x %s in %s stay plain: %s", *shape[:3], reason)
    _give_back()
    LOG.info("%d of %d linear layers packed", count, sum(map(len, shapes.values())))
    return count


def is_packed(model: nn.Module) -> bool:
    """Return whether some of the model's weights are held packed."""
    return any(isinstance(part, PackedLinear) for part in model.modules())


def packed_bytes(model: nn.Module) -> int:
    """Return how much memory the plain copies of packed weights would take."""
    packed = [part for part in model.modules() if isinstance(part, PackedLinear)]
    return sum(part.plain_bytes for part in packed)


def unpacked(model: Any) -> Any:
    """Build the model with plain weights, as transformers loaded it; what is not packed is shared,
    and one of which nothing is packed is itself."""
    if not is_packed(model):
        return model
    shared: dict[int, Any] = {id(each): each for each in (*model.parameters(), *model.buffers())}
    packed = [part for part in model.modules() if isinstance(part, PackedLinear)]
    return copy.deepcopy(model, shared | {id(part): part.plain() for part in packed})


def _can_be_packed(part: nn.Linear) -> bool:
    """Return whether a layer is torch's own, run by its own code, with weights in this memory."""
    return (
        type(part) is nn.Linear
        and "forward" not in vars(part)
        and part.weight.device.type == "cpu"
        and part.weight.dtype in TOLERANCES
        and part.weight.numel() > 0
    )


def _shape(linear: nn.Linear) -> tuple[Any, ...]:
    """Return what decides, beside the machine, which of the two is faster."""
    kind = str(linear.weight.dtype).removeprefix("torch.")
    return linear.out_features, linear.in_features, kind, linear.bias is not None


def pack(weight: torch.Tensor) -> torch.Tensor:
    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach())
    return packed


def product(inputs: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(inputs, packed, bias, "none", [], "")
    return output


def _why_plain(shape: tuple[Any, ...], linears: Sequence[nn.Linear]) -> str:
    """Return why these layers of one shape are better left alone; "" where they are not."""
    size = linears[0].weight.nbytes
    plain = linears[: max(1, SAMPLE // size)]
    try:
        packed = [PackedLinear(each, pack(each.weight), tied=True) for each in plain]
        if not all(_agrees(plain[0], packed[0], rows) for rows in ROWS):
            return "the output differs"
        known = CACHE.get(_key(shape))  # what an earlier process measured
        if known not in (PACKED, PLAIN):
            known = PACKED if gains_of(plain, packed) else PLAIN
            CACHE.put(_key(shape), known)
    except (RuntimeError, AttributeError, TypeError) as error:
        return first_line(error)
    return "" if known == PACKED else "packed ones are not faster"


def _agrees(linear: nn.Linear, packed: PackedLinear, rows: int) -> bool:
    """Return whether both give the same output but for rounding."""
    inputs = inputs_for(linear, rows)
    plain, output = linear(inputs), packed(inputs)
    off = (output.float() - plain.float()).norm()
    return output.shape == plain.shape and bool(
        off <= TOLERANCES[linear.weight.dtype] * plain.float().norm()
    )


def inputs_for(linear: nn.Linear, rows: int) -> torch.Tensor:
    drawn = torch.randn(1, rows, linear.in_features, generator=torch.Generator().manual_seed(0))
    return drawn.to(linear.weight.dtype)


def gains_of(plain: Sequence[nn.Module], packed: Sequence[nn.Module]) -> bool:
    """Return whether passes with drafts and without together take less time packed, by turns."""
    best: dict[tuple[int, bool], float] = {}
    for rows in ROWS:
        inputs = inputs_for(plain[0], rows)  # type: ignore[arg-type]
        for _ in range(ROUNDS):
            for layers in (plain, packed):
                key, seconds = (rows, layers is packed), seconds_of(layers, inputs)
                best[key] = min(best.get(key, seconds), seconds)
    return sum(best[rows, True] for rows in ROWS) <= WORTH * sum(best[r, False] for r in ROWS)


def seconds_of(layers: Sequence[Callable[[torch.Tensor], Any]], inputs: torch.Tensor) -> float:
    started = time.perf_counter()
    for layer in layers:
        layer(inputs)
    return time.perf_counter() - started


def _key(shape: tuple[Any, ...]) -> str:
    decides = (processor(), torch.__version__, torch.get_num_threads(), *shape)
    return hashlib.sha256(repr(decides).encode()).hexdigest()[:32]


def _mapped_files() -> list[tuple[int, int]]:
    """Return the addresses at which files are mapped for this process alone, on Linux."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [(int(begin, 16), int(end, 16)) for begin, end in MAPPED.findall(maps)]


def _forget(weight: torch.Tensor, mapped: Sequence[tuple[int, int]]) -> None:
    """Give back the memory of a weight that is a part of a mapped file; it can be read again.

    Such a weight is not freed before the whole file is. Pages that it shares with others stay.
    """
    begin = -(-weight.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (weight.data_ptr() + weight.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if end > begin and any(low <= begin and end <= high for low, high in mapped):
        size = ctypes.c_size_t(end - begin)
        ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), size, mmap.MADV_DONTNEED)


def _give_back() -> None:
    """Let glibc return what was freed, as packed weights seldom fit where plain ones lay."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))
