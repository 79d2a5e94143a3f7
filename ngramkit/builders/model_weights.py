"""What is to be known of a loaded model beside its answers: which weights, and how much work.

Knows torch models; does not know tables or files.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.errors import InputError
from ngramkit.formats.container import Array

if TYPE_CHECKING:
    import torch

HASHED = 1 << 22  # elements summed up at a time
# Side of the square matrices whose product is the device's peak: a fraction of a second each.
CPU_SIDE, ACCELERATOR_SIDE = 1024, 8192


@dataclass(frozen=True)
class Work:
    """What building a table took, the model being loaded. `peak` is in FLOP/s."""

    flops: float  # floating-point operations, two for a multiplication and its addition
    seconds: float
    peak: float  # what one large matrix product reached on the same device, in the same run

    @property
    def flops_per_second(self) -> float:
        return self.flops / self.seconds


def require_usable(model: Any, tokenizer: TextTokenizer) -> None:
    """Raises InputError for models that have no next-token distribution over these ids."""
    name, config = tokenizer.record.id, model.config.get_text_config()
    if model.config.is_encoder_decoder:
        raise InputError(f"{name} is an encoder-decoder", "use a decoder-only causal model")
    if model.get_output_embeddings() is None:
        raise InputError(
            f"{name} has no output embedding ({type(model).__name__})",
            "load it with a language-modelling head: a causal LM, not its bare decoder",
        )
    if model.device.type == "meta":
        raise InputError(
            f"{name} does not fit into memory",
            "use more devices or dtype=bfloat16",
            option="dtype",
        )
    if tokenizer.record.vocabulary > config.vocab_size:
        raise InputError(
            f"the tokenizer of {name} has {tokenizer.record.vocabulary:,} ids, "
            f"its model only {config.vocab_size:,}",
            "they are not of the same model; resize the model's embeddings, or fix the tokenizer",
        )


def weights_fingerprint(model: Any) -> str:
    """sha256 over every parameter's name, shape, dtype and a checksum of its bits.

    The checksum is taken where the weights are: at the speed of their memory, not of the bus.
    """
    import torch

    digest = hashlib.sha256()
    with torch.inference_mode():
        for name, parameter in sorted(_weights(model), key=lambda each: each[0]):
            shape = tuple(parameter.shape)
            digest.update(f"{name} {shape} {parameter.dtype} {_checksum(parameter)}\n".encode())
    return digest.hexdigest()


def _weights(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield all parameters, and the weights of layers that hold them in another form, as packed
    linear layers do, and give the plain ones when they are asked."""
    for name, parameter in model.named_parameters():
        yield name, parameter
    known = {id(parameter) for parameter in model.parameters()}
    for name, part in model.named_modules():
        if isinstance(getattr(type(part), "weight", None), property):
            weight = part.weight
            if id(weight) not in known:
                yield f"{name}.weight", weight


def _checksum(parameter: torch.Tensor) -> int:
    """Sum of (2 i + 1) times the bits of element i, modulo 2**64."""
    import torch

    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    bits = parameter.detach().contiguous().view(-1).view(whole[parameter.element_size()])
    total = 0
    for begin in range(0, len(bits), HASHED):
        part = bits[begin : begin + HASHED].long()
        at = torch.arange(begin, begin + len(part), device=part.device)
        total += int((part * (2 * at + 1)).sum())
    return total & 0xFFFFFFFFFFFFFFFF


def flops_of_a_pass(model: Any, length: int = 1) -> int:
    """Operations for one text of `length` tokens, counted while one runs."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    ids = torch.zeros(1, length, dtype=torch.int64, device=model.device)
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=_packed_flops()) as counter:
        model(input_ids=ids, use_cache=False)
    return int(counter.get_total_flops())


def _packed_flops() -> dict[Any, Any]:
    """What torch's counter does not know: packed linear layers; nothing where there are none."""
    import torch

    def flops(inputs: Any, weight: Any, *_: Any, **__: Any) -> int:
        return int(2 * np.prod(inputs) * weight[0])

    found = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    return {} if found is None else {found: flops}


def absent_ids(tokenizer: TextTokenizer) -> Array:
    """int64[m], ascending: ids below the vocabulary's size that no token has."""
    present = np.zeros(tokenizer.record.vocabulary, bool)
    present[list(tokenizer.backend.get_vocab(with_added_tokens=True).values())] = True
    return np.flatnonzero(~present)


def matmul_peak(device: torch.device, dtype: torch.dtype, rounds: int = 4) -> float:
    """FLOP/s of the best of some products of large square matrices."""
    import torch

    side = CPU_SIDE if device.type == "cpu" else ACCELERATOR_SIDE
    # Not ones or zeros: an accelerator draws less power for those, and runs faster than it can.
    left = torch.randn(side, side, device=device).to(dtype)
    right = torch.randn(side, side, device=device).to(dtype)
    best = float("inf")
    for _ in range(rounds):
        synchronize(device)
        began = time.perf_counter()
        torch.mm(left, right)
        synchronize(device)
        best = min(best, time.perf_counter() - began)
    return 2.0 * side**3 / best


def synchronize(device: torch.device) -> None:
    """Waits until the device has done what it was given."""
    import torch

    if device.type != "cpu":
        torch.accelerator.synchronize(device)
