"""Loops and items of arrays, as kernels write them, in fewer instructions than numba's.

numba lowers a loop as an iterator that may step by anything, and an item by way of a copy of all
words of its array; the optimiser takes nearly all of that away again, and to write it, read it and
take it away is a good part of the time that a kernel takes to compile. Here a loop counts, and an
item is an address. What is not lowered here, numba lowers: slices, strided arrays, other steps.
As numba has it, a negative index counts from the end.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.cpu import CPUContext
from numba.core.datamodel.registry import default_manager
from numba.core.imputils import impl_ret_borrowed

WORD = ir.IntType(64)
MEMORY, PARENT, ITEMS, _, DATA, SHAPE, STRIDES = range(7)  # of numba's array, see FIELDS
START, STOP, STEP = range(3)  # of its range
VALUE, END, BY, LEFT = range(4)  # of its iterator; VALUE and LEFT are addresses
# What these are made of, in this order.
FIELDS: dict[Any, tuple[str, ...]] = {
    types.Array(types.int64, 1, "C"): (
        "meminfo", "parent", "nitems", "itemsize", "data", "shape", "strides",
    ),
    types.range_state64_type: ("start", "stop", "step"),
    types.range_iter64_type: ("iter", "stop", "step", "count"),
}  # fmt: skip


@cache
def require_fields() -> None:
    """Raises ImportError where this numba puts them together in another way: items would be looked
    for where there are none."""
    for kind, fields in FIELDS.items():
        if tuple(default_manager[kind]._fields) != fields:
            raise ImportError(
                f"numba {numba.__version__} has another {kind} than kernels are lowered for: "
                "install numba 0.68"
            )


class KernelContext(CPUContext):
    """numba's own, but for what is lowered here."""

    def get_function(self, fn: Any, sig: Any, _firstcall: bool = True) -> Any:
        lower = _lowering(getattr(fn, "typing_key", fn), sig.args)
        if lower is not None:
            return _Lowered(lower, self, sig)
        return super().get_function(fn, sig, _firstcall)

    def pair_first(self, builder: Any, val: Any, ty: Any) -> Any:
        return builder.extract_value(val, 0)

    def pair_second(self, builder: Any, val: Any, ty: Any) -> Any:
        return builder.extract_value(val, 1)


class _Lowered:
    """What lowers an expression of one signature, called as numba calls its own."""

    def __init__(self, lower: Any, context: Any, sig: Any) -> None:
        self._lower, self._context, self._sig = lower, context, sig

    def __call__(self, builder: Any, args: Any, loc: Any = None) -> Any:
        return self._lower(self._context, builder, self._sig, args)


def _lowering(key: Any, kinds: Sequence[Any]) -> Callable[..., Any] | None:
    if key is operator.getitem and _is_plain(*kinds):
        return _item if len(axes_of(kinds[1])) == kinds[0].ndim else _row
    if key is operator.setitem and _is_plain(*kinds[:2]):
        return _put if len(axes_of(kinds[1])) == kinds[0].ndim else None
    if key is len and isinstance(kinds[0], types.Array):
        return _length
    if key is range and all(kind == types.int64 for kind in kinds):
        return _range
    if key == "getiter" and kinds[0] == types.range_state64_type:
        return _begin
    if key == "iternext" and kinds[0] == types.range_iter64_type:
        return _next
    return None


def _is_plain(array: Any, index: Any) -> bool:
    """Whether it is a contiguous array, and whole numbers for axes of it, at most all."""
    if not isinstance(array, types.Array) or array.layout != "C" or not array.aligned:
        return False
    axes = axes_of(index)
    return 0 < len(axes) <= array.ndim and all(isinstance(axis, types.Integer) for axis in axes)


def axes_of(index: Any) -> Sequence[Any]:
    """The type of each, where a tuple says more than one."""
    axes: Sequence[Any] = getattr(index, "types", (index,))
    return axes


def each_axis(builder: Any, kind: Any, value: Any) -> list[Any]:
    """The values that such a tuple, or a single one, holds."""
    if isinstance(kind, types.BaseTuple):
        return list(cgutils.unpack_tuple(builder, value))
    return [value]


def _address(context: Any, builder: Any, sig: Any, array: Any, index: Any) -> Any:
    """Of the item, or of the first item of the row."""
    kinds, axes = sig.args[0], axes_of(sig.args[1])
    given = each_axis(builder, sig.args[1], index)
    place = None
    for axis in range(kinds.ndim):
        size = builder.extract_value(array, [SHAPE, axis]) if axis or axes[0].signed else None
        if place is not None:
            place = builder.mul(place, size)
        if axis < len(axes):
            at = _from_end(context, builder, given[axis], axes[axis], size)
            place = at if place is None else builder.add(place, at)
    return builder.gep(builder.extract_value(array, DATA), [place])


def _from_end(context: Any, builder: Any, at: Any, kind: Any, size: Any) -> Any:
    if (isinstance(at, ir.Constant) and at.constant >= 0) or not kind.signed:
        return context.cast(builder, at, kind, types.uintp)
    at = context.cast(builder, at, kind, types.intp)
    negative = builder.icmp_signed("<", at, WORD(0))
    return builder.select(negative, builder.add(at, size), at)


def _item(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    address = _address(context, builder, sig, *args)
    return context.unpack_value(builder, sig.args[0].dtype, address)


def _put(context: Any, builder: Any, sig: Any, args: Any) -> None:
    array, index, value = args
    kind = sig.args[0].dtype
    value = context.cast(builder, value, sig.args[2], kind)
    context.pack_value(builder, kind, value, _address(context, builder, sig, array, index))


def _row(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """The array's last axes, at an index of the first ones."""
    array, _ = args
    given = len(axes_of(sig.args[1]))
    shape = [builder.extract_value(array, [SHAPE, i]) for i in range(given, sig.args[0].ndim)]
    row = array_value(
        context, builder, sig.return_type, _address(context, builder, sig, *args), shape
    )
    for word in (MEMORY, PARENT):  # what keeps it alive
        row = builder.insert_value(row, builder.extract_value(array, word), word)
    return impl_ret_borrowed(context, builder, sig.return_type, row)


def array_value(context: Any, builder: Any, kind: Any, data: Any, shape: Sequence[Any]) -> Any:
    """A contiguous array of numba's at the address `data`, which somebody else keeps alive."""
    layout = context.get_value_type(kind)
    size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    words = [ir.Constant(each, None) for each in layout.elements[: ITEMS + 1]]
    words += [WORD(size), ir.Constant(layout.elements[DATA], ir.Undefined)]
    strides = [*(WORD(ir.Undefined) for _ in shape[1:]), WORD(size)]
    words += [ir.Constant(each, ir.Undefined) for each in layout.elements[SHAPE:]]
    words[-1] = ir.Constant(layout.elements[-1], strides)
    value = builder.insert_value(ir.Constant(layout, words), data, DATA)
    items, stride = shape[0], WORD(size)
    for axis in range(len(shape) - 1, 0, -1):
        stride = builder.mul(stride, shape[axis])
        value = builder.insert_value(value, stride, [STRIDES, axis - 1])
    for axis, length in enumerate(shape):
        value = builder.insert_value(value, length, [SHAPE, axis])
        items = builder.mul(items, length, flags=["nsw"]) if axis else items
    return builder.insert_value(value, items, ITEMS)


def _length(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return builder.extract_value(args[0], [SHAPE, 0])


def _range(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Its constant parts stand in a constant, where `_begin` finds them."""
    parts = [WORD(0), *args, WORD(1)] if len(args) == 1 else [*args, WORD(1)][:3]
    constant = [each if isinstance(each, ir.Constant) else WORD(ir.Undefined) for each in parts]
    value = ir.Constant(context.get_value_type(sig.return_type), constant)
    for i, each in enumerate(parts):
        if not isinstance(each, ir.Constant):
            value = builder.insert_value(value, each, i)
    return value


def _step(value: Any) -> int | None:
    """The range's step, where it is a number in the source."""
    while isinstance(value, ir.InsertValue):
        if value.indices[0] == STEP:
            return None
        value = value.operands[0]
    known = isinstance(value, ir.Constant) and isinstance(value.constant, list | tuple)
    return value.constant[STEP].constant if known else None


def _begin(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """An iterator, by numba's layout: it counts down how many values are left."""
    step = _step(args[0])
    if step not in (1, -1):
        return CPUContext.get_function(context, "getiter", sig)(builder, args)
    start, stop = (builder.extract_value(args[0], i) for i in (START, STOP))
    left = builder.sub(stop, start) if step == 1 else builder.sub(start, stop)
    iterator = ir.Constant(
        context.get_value_type(sig.return_type),
        [ir.Constant(WORD.as_pointer(), ir.Undefined), WORD(ir.Undefined), WORD(step),
         ir.Constant(WORD.as_pointer(), ir.Undefined)],
    )  # fmt: skip
    for place, value in ((VALUE, start), (LEFT, left)):
        kept = cgutils.alloca_once(builder, WORD)
        builder.store(value, kept)
        iterator = builder.insert_value(iterator, kept, place)
    return iterator


def _next(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """(value, whether there is one); after the last nobody asks again."""
    value_at, left_at = (builder.extract_value(args[0], i) for i in (VALUE, LEFT))
    value, left = builder.load(value_at), builder.load(left_at)
    builder.store(builder.add(value, builder.extract_value(args[0], BY)), value_at)
    builder.store(builder.sub(left, WORD(1), flags=["nsw"]), left_at)
    pair = ir.Constant(context.get_value_type(sig.return_type), ir.Undefined)
    pair = builder.insert_value(pair, value, 0)
    return builder.insert_value(pair, builder.icmp_signed(">", left, WORD(0)), 1)
