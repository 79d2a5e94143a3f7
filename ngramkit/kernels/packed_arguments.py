"""Pass integers of any width and NamedTuples of arrays to kernels by address.

One compiled kernel serves every width. Bounds are not checked.

numba passes a tuple as eight words per array, which dominates compiling and calls with a hundred
arrays. `Packed` passes the address of a block of addresses and shapes; a kernel reads
`packed.name`. A block must not change while a kernel runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache, reduce
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AttributeTemplate, signature
from numba.extending import (
    NativeValue,
    infer_getattr,
    intrinsic,
    lower_getattr_generic,
    models,
    register_model,
    unbox,
)
from numba.np.numpy_support import from_dtype

from ngramkit.kernels.jit import part


def _integer_loader(bits: int, *, signed: bool) -> Callable[[int, int], int]:
    """Return a function (address, index) that loads an integer like a C pointer."""

    @intrinsic
    def load(context: Any, address: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
            item = builder.load(builder.gep(pointer, [args[1]]))
            widen = builder.sext if signed else builder.zext
            return widen(item, ir.IntType(64)) if bits < 64 else item

        return types.int64(types.int64, types.int64), generate

    return cast(Callable[[int, int], int], load)


load_u16 = _integer_loader(16, signed=False)
load_u32 = _integer_loader(32, signed=False)
load_i32 = _integer_loader(32, signed=True)
load_i64 = _integer_loader(64, signed=True)


@part
def unsigned_at(address, size, index):
    """Return an unsigned integer of `size` 2, 4 or 8 bytes, below 2^63."""
    if size == 2:
        return load_u16(address, index)
    if size == 4:
        return load_u32(address, index)
    return load_i64(address, index)


WORD = ir.IntType(64)
_intrinsic: Any = intrinsic
TYPESTR = {
    from_dtype(dtype): dtype.str
    for dtype in map(np.dtype, ("u1", "i4", "u4", "i8", "u8", "f4", "f8"))
}


class Packed:
    """A block for `parts`, a NamedTuple of C-contiguous arrays and of such NamedTuples.

    `inside` has the inner ones by name. Raises ValueError for other arrays.
    """

    _numba_type_: Any
    address: int

    def __init__(self, parts: Any) -> None:
        self.parts = parts
        self.inside: dict[str, Packed] = {}
        fields, words = [], []
        for name, value in zip(parts._fields, parts, strict=True):
            if isinstance(value, np.ndarray):
                if not value.flags.c_contiguous:
                    raise ValueError(f"{name} is not contiguous")
                fields.append((name, _array_of(value.dtype, value.ndim)))
                words += [value.__array_interface__["data"][0], *value.shape]
            else:
                inner = Packed(value)
                self.inside[name] = inner
                fields.append((name, inner._numba_type_))
                words.append(inner.address)
        self._block = np.array(words, np.int64)
        self.address = int(self._block.ctypes.data)
        self._numba_type_ = _type_of(type(parts).__name__, tuple(fields))

    def replace(self, **parts: Any) -> Packed:
        """Return a block with other parts: arrays, or blocks of inner NamedTuples.

        Raises ValueError for another type or layout.
        """
        packed = object.__new__(Packed)
        packed._numba_type_, packed.inside = self._numba_type_, dict(self.inside)
        packed._block = self._block.copy()
        packed.address = packed._block.__array_interface__["data"][0]
        for name, value in parts.items():
            kind, word = self._numba_type_.fields[name]
            if isinstance(value, Packed):
                if value._numba_type_ != kind:
                    raise ValueError(f"{name} has another type")
                packed.inside[name], parts[name] = value, value.parts
                packed._block[word] = value.address
                continue
            interface = value.__array_interface__
            if (value.ndim, interface["typestr"]) != (kind.ndim, TYPESTR[kind.dtype]):
                raise ValueError(f"{name} has another type")
            if not value.flags.c_contiguous:
                raise ValueError(f"{name} is not contiguous")
            packed._block[word] = interface["data"][0]
            packed._block[word + 1 : word + 1 + value.ndim] = value.shape
        packed.parts = self.parts._replace(**parts)
        return packed


@_intrinsic
def packed_at(typing: Any, address: Any, like: Any) -> Any:
    """Return the block at an address, with the type of `like`."""
    return signature(like, address, like), lambda context, builder, sig, args: args[0]


class PackedType(types.Type):
    """A block's layout: `fields`, name -> (type, first word)."""

    def __init__(self, name: str, fields: tuple[tuple[str, Any], ...]) -> None:
        self.fields: dict[str, tuple[Any, int]] = {}
        word = 0
        for field, kind in fields:
            self.fields[field] = (kind, word)
            word += 1 + kind.ndim if isinstance(kind, types.Array) else 1
        digest = hashlib.sha256(repr(fields).encode()).hexdigest()[:8]
        super().__init__(f"{name}_{digest}")


_type_of = cache(PackedType)


@cache
def _array_of(dtype: np.dtype[Any], dimensions: int) -> types.Array:
    return types.Array(from_dtype(dtype), dimensions, "C")


@register_model(PackedType)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: PackedType) -> None:
        super().__init__(manager, kind, WORD)


@unbox(PackedType)
def _unbox_arguments(kind: Any, packed: Any, c: Any) -> Any:
    address = c.pyapi.object_getattr_string(packed, "address")
    word = c.pyapi.long_as_longlong(address)
    c.pyapi.decref(address)
    return NativeValue(word, is_error=cgutils.is_not_null(c.builder, c.pyapi.err_occurred()))


@infer_getattr
class _Attributes(AttributeTemplate):
    key = PackedType

    def generic_resolve(self, kind: Any, name: str) -> Any:  # type: ignore[override]
        field = kind.fields.get(name)
        return field and field[0]


@lower_getattr_generic(PackedType)
def _read_attribute(context: Any, builder: Any, kind: PackedType, address: Any, name: str) -> Any:
    field, word = kind.fields[name]
    block = builder.inttoptr(address, WORD.as_pointer())

    def at(index: int) -> Any:
        value = builder.load(builder.gep(block, [ir.Constant(WORD, index)]))
        # LLVM may then read it once.
        value.set_metadata("invariant.load", builder.module.add_metadata([]))
        return value

    if isinstance(field, PackedType):
        return at(word)
    model = context.data_model_manager[field]
    shape = [at(word + 1 + i) for i in range(field.ndim)]
    size = ir.Constant(WORD, context.get_abi_sizeof(context.get_data_type(field.dtype)))
    strides = [size]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    array = ir.Constant(model.get_value_type(), None)  # the array owns no memory
    for member, value in (
        ("data", builder.inttoptr(at(word), context.get_value_type(model.get_type("data")))),
        ("nitems", reduce(builder.mul, shape)),
        ("itemsize", size),
        ("shape", cgutils.pack_array(builder, shape)),
        ("strides", cgutils.pack_array(builder, strides)),
    ):
        array = model.set(builder, array, value, member)
    return array
