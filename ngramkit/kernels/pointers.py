"""Integers at an address: arrays whose item size is known only when a kernel runs.

One compiled version of a kernel then serves every width. Nothing here checks bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ngramkit.kernels.jit import part


def _loader(bits: int, *, signed: bool) -> Callable[[int, int], int]:
    """A function (address, index) -> the integer there, as a C pointer would read it."""

    @intrinsic
    def load(context: Any, address: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
            item = builder.load(builder.gep(pointer, [args[1]]))
            widen = builder.sext if signed else builder.zext
            return widen(item, ir.IntType(64)) if bits < 64 else item

        return types.int64(types.int64, types.int64), generate

    return cast(Callable[[int, int], int], load)


load_u16 = _loader(16, signed=False)
load_u32 = _loader(32, signed=False)
load_i32 = _loader(32, signed=True)
load_i64 = _loader(64, signed=True)


@part
def unsigned_at(address, size, index):
    """The integer at `index` of an array of unsigned integers of 2, 4 or 8 bytes, below 2^63."""
    if size == 2:
        return load_u16(address, index)
    if size == 4:
        return load_u32(address, index)
    return load_i64(address, index)
