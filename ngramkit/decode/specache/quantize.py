"""1- and 2-bit codes of keys and values, as in KIVI (Liu et al. 2024, arXiv:2402.02750).

A group is `group` tokens of one channel for keys, `group` channels of one token for values. With
its min and max,

    2 bits   zero = min                  scale = (max - min) / 3    codes 0 to 3
    1 bit    zero = (3 min + max) / 4    scale = (max - min) / 2    codes 0 and 1

x becomes round((x - zero) / scale), read back as zero + scale * code. Codes are packed along the
channels, the first in the lowest bits. Scales and zeros are float16 before codes are computed.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch.nn.functional import embedding

from ngramkit.decode.specache.growing import Rows

KEYS, VALUES = "keys", "values"
LARGEST = torch.finfo(torch.float16).max


class Block(NamedTuple):
    codes: torch.Tensor  # uint8 [heads, tokens, dim * bits / 8]
    # float16: of keys [heads, tokens / group, dim], of values [heads, tokens, dim / group]
    scale: torch.Tensor
    zero: torch.Tensor


class LowBits:
    """Numbers of one kind, quantised when appended; `room` in tokens."""

    def __init__(self, kind: str, bits: int, group: int, room: int) -> None:
        self._kind, self._bits, self._group = kind, bits, group
        shared = group if kind == KEYS else 1  # tokens per scale and zero of a channel
        self._parts = [Rows(room), Rows(room // shared), Rows(room // shared)]

    def append(self, numbers: torch.Tensor) -> None:
        """Append [heads, tokens, dim], whole groups of tokens."""
        new = quantize(numbers, self._kind, self._bits, self._group)
        for rows, part in zip(self._parts, new, strict=True):
            rows.extend(part).copy_(part)

    def read_into(self, out: torch.Tensor) -> None:
        """Dequantise into `out` [heads, length, dim]."""
        if out.shape[1]:
            block = Block(*(rows.held for rows in self._parts))
            dequantize_into(out, block, self._kind, self._bits, self._group)

    @property
    def bytes(self) -> int:
        return sum(rows.bytes for rows in self._parts)


def quantize(numbers: torch.Tensor, kind: str, bits: int, group: int) -> Block:
    """Quantise `numbers` [heads, tokens, dim]; for keys, whole groups of tokens."""
    heads, tokens, dim = numbers.shape
    exact = numbers if numbers.dtype == torch.float64 else numbers.float()
    groups = _group_keys_by_channel_values_by_token(exact.contiguous(), kind, group)
    axis = _axis_of_group(kind)
    low, high = groups.amin(axis, keepdim=True), groups.amax(axis, keepdim=True)
    if bits == 1:
        zero, scale = (3 * low + high) / 4, (high - low) / 2
    else:
        zero, scale = low, (high - low) / 3
    zero, scale = (part.clamp(-LARGEST, LARGEST).half() for part in (zero, scale))
    steps = (groups - zero.to(groups)) / scale.to(groups)
    codes = (
        torch.nan_to_num(steps, 0.0, 0.0, 0.0).round_().clamp_(0, (1 << bits) - 1).to(torch.uint8)
    )
    packed = _pack_codes(codes.reshape(heads, tokens, dim), bits)
    return Block(packed, scale.squeeze(axis), zero.squeeze(axis))


def dequantize_into(out: torch.Tensor, block: Block, kind: str, bits: int, group: int) -> None:
    """Dequantise `block` into `out` [heads, tokens, dim]."""
    axis = _axis_of_group(kind)
    codes = embedding(block.codes.int(), _codes_by_byte(bits, out.dtype, out.device)).flatten(-2)
    scale, zero = (part.unsqueeze(axis).to(out.dtype) for part in (block.scale, block.zero))
    torch.addcmul(
        zero,
        scale,
        _group_keys_by_channel_values_by_token(codes, kind, group),
        out=_group_keys_by_channel_values_by_token(out, kind, group),
    )


@cache
def _codes_by_byte(bits: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return the codes in every byte, [256, 8 / bits]: a lookup takes a third of shifting."""
    every = torch.arange(256, dtype=torch.uint8, device=device)[:, None]
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=device)
    return ((every >> shifts) & ((1 << bits) - 1)).to(dtype)


def _group_keys_by_channel_values_by_token(
    numbers: torch.Tensor, kind: str, group: int
) -> torch.Tensor:
    heads, tokens, dim = numbers.shape
    if kind == KEYS:
        return numbers.view(heads, tokens // group, group, dim)
    return numbers.view(heads, tokens, dim // group, group)


def _axis_of_group(kind: str) -> int:
    return 2 if kind == KEYS else 3


def _pack_codes(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Pack uint8 [..., dim] -> uint8 [..., dim * bits / 8]."""
    apart = codes.view(*codes.shape[:-1], -1, 8 // bits)
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=codes.device)
    packed: torch.Tensor = (apart << shifts).sum(-1, dtype=torch.uint8)
    return packed
