"""Arrays that kernels make while they run.

numba compiles np.empty and its like as functions of their own, anew for every type, which takes a
tenth of a second each. Here making an array is a handful of instructions where it is made.
"""

from __future__ import annotations

from typing import Any

from numba.core import cgutils, types
from numba.core.typing.templates import signature
from numba.extending import intrinsic

from ngramkit.kernels.lowering import MEMORY, WORD, array_value, axes_of, each_axis

ALIGNED = 32  # bytes

_intrinsic: Any = intrinsic  # type checkers are to see what kernels call, not what numba asks


@_intrinsic
def empty(typing: Any, shape: Any, dtype: Any) -> Any:
    """As np.empty: `shape` is a whole number or a tuple of them, `dtype` a numpy type."""
    return _made(shape, dtype, None)


@_intrinsic
def zeros(typing: Any, shape: Any, dtype: Any) -> Any:
    """As np.zeros."""
    return _made(shape, dtype, 0)


@_intrinsic
def minus_ones(typing: Any, shape: Any, dtype: Any) -> Any:
    """As np.full(shape, -1, dtype), of whole numbers."""
    return _made(shape, dtype, 255)


def _made(shape: Any, dtype: Any, byte: int | None) -> Any:
    """What numba asks of an intrinsic: its signature, and what lowers it."""
    axes = axes_of(shape)
    if not all(isinstance(axis, types.Integer) for axis in axes):
        return None
    made = types.Array(dtype.dtype, len(axes), "C")

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        given = zip(each_axis(builder, shape, args[0]), axes, strict=True)
        sizes = [context.cast(builder, size, axis, types.intp) for size, axis in given]
        item = context.get_data_type(made.dtype)
        length = WORD(context.get_abi_sizeof(item))
        for size in sizes:
            length = builder.mul(length, size)
        memory = context.nrt.meminfo_alloc_aligned(builder, length, ALIGNED)
        data = context.nrt.meminfo_data(builder, memory)
        if byte is not None:
            cgutils.memset(builder, data, length, byte)
        data = builder.bitcast(data, item.as_pointer())
        value = array_value(context, builder, made, data, sizes)
        held = builder.bitcast(memory, value.type.elements[MEMORY])
        return builder.insert_value(value, held, MEMORY)

    return signature(made, shape, dtype), lower
