"""Shorter ways to what numba does, in force while a kernel compiles.

numba tries all overloads at every call, looks for new extensions at every access to an array,
parses a module for the size of every variable, and finds where variables live after each pass. It
copies arrays and ranges to the stack to read a field, and divides to count a loop's rounds.
Its extensions, such as awkward's, import for half a second.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from llvmlite import ir
from numba.core import cgutils, entrypoints, ir as numba_ir, types
from numba.core.base import BaseContext
from numba.core.postproc import PostProcessor, VariableLifetime
from numba.core.transforms import canonicalize_cfg
from numba.np import arrayobj

RANGE, RANGE_ITERATOR = types.range_state64_type, types.range_iter64_type
WORD = ir.IntType(64)
ONE = ir.Constant(WORD, 1)

_call_type = types.Function.get_call_type
_get_function = BaseContext.get_function
_make_array = arrayobj.make_array


@contextlib.contextmanager
def shortcuts() -> Iterator[None]:
    """Replace numba's functions in the block, in which numba's lock must be held."""
    with contextlib.ExitStack() as undo:
        for owner, name, shorter in SHORTCUTS:
            undo.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, shorter)
        yield


def _call_type_once(function: Any, context: Any, args: Any, kws: Any) -> Any:
    return _call_type(function, context, args, kws) if kws else _typed(function, context, args)


@functools.cache
def _typed(function: Any, context: Any, args: Any) -> Any:
    return _call_type(function, context, args, {})


def _post_process(code: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
    """Do as numba does for functions that are compiled whole and do not yield."""
    code.func_ir.blocks = canonicalize_cfg(code.func_ir.blocks)
    code.func_ir.variable_lifetime = VariableLifetime(code.func_ir.blocks)
    if emit_dels:
        code._insert_var_dels(extend_lifetimes=extend_lifetimes)


LEAVES = {str, int, type(None), numba_ir.Loc}


def _variables_in(instruction: Any, value: Any) -> list[Any]:
    """Return the variables in an instruction's field; numba tests each value for five classes."""
    kind = type(value)
    if kind is numba_ir.Var:
        return [value]
    if kind not in (dict, list, tuple):
        return value.list_vars() if isinstance(value, numba_ir.Inst) else []
    found: list[Any] = []
    for each in value.values() if kind is dict else value:
        if type(each) is numba_ir.Var:
            found.append(each)
        elif type(each) not in LEAVES:
            found += _variables_in(instruction, each)
    return found


def _get_function_at_once(context: Any, function: Any, sig: Any, _firstcall: bool = True) -> Any:
    if sig.return_type == RANGE:
        return _range
    if function == "iternext" and sig.args[0] == RANGE_ITERATOR:
        return _next_of_range
    found = _get_function(context, function, sig, _firstcall and not isinstance(function, str))
    if function == "getiter" and sig.args[0] == RANGE:
        return functools.partial(_iterate, context, found)
    return found


def _struct(builder: Any, kind: Any, *fields: Any) -> Any:
    struct = ir.Constant(kind, ir.Undefined)
    for at, field in enumerate(fields):
        struct = builder.insert_value(struct, field, at)
    return struct


def _range(builder: Any, args: Any, loc: Any = None) -> Any:
    start, stop, step = {
        1: (WORD(0), *args, ONE), 2: (*args, ONE), 3: args
    }[len(args)]  # fmt: skip
    return _struct(builder, ir.LiteralStructType([WORD] * 3), start, stop, step)


def _iterate(context: Any, numbas: Any, builder: Any, args: Any) -> Any:
    """Count the rounds of a range; numba's way serves one whose step is not the constant 1."""
    start, stop, step = (_field(builder, args[0], at) for at in range(3))
    if step != ONE:
        return numbas(builder, args)
    next_value, rounds = (cgutils.alloca_once(builder, WORD) for _ in range(2))
    builder.store(start, next_value)
    builder.store(builder.sub(stop, start), rounds)
    return _struct(builder, context.get_value_type(RANGE_ITERATOR), next_value, stop, step, rounds)


def _next_of_range(builder: Any, args: Any) -> Any:
    next_value, _, step, rounds = (_field(builder, args[0], at) for at in range(4))
    value, left = builder.load(next_value), builder.load(rounds)
    builder.store(builder.add(value, step), next_value)
    builder.store(builder.sub(left, ONE), rounds)
    valid = builder.icmp_signed(">", left, WORD(0))
    return _struct(builder, ir.LiteralStructType([WORD, valid.type]), value, valid)


def _field(builder: Any, struct: Any, at: int) -> Any:
    """Return a field; the value itself if the struct was put together in this function."""
    source = struct
    while isinstance(source, ir.instructions.InsertValue):
        if source.indices == [at]:
            return source.operands[1]
        source = source.operands[0]
    return builder.extract_value(struct, at)


class _ArrayValue:
    """The fields of an array's value."""

    def __init__(self, kind: Any, context: Any, builder: Any, value: Any) -> None:
        self._model = context.data_model_manager[kind]
        self._builder, self._value = builder, value

    def __getattr__(self, field: str) -> Any:
        return _field(self._builder, self._value, self._model.get_field_position(field))

    def _getvalue(self) -> Any:
        return self._value


def _make_array_of_value(kind: Any) -> Any:
    def make(context: Any, builder: Any, value: Any = None, ref: Any = None) -> Any:
        if value is None:
            return _make_array(kind)(context, builder, ref=ref)
        return _ArrayValue(kind, context, builder, value)

    return make


def _nothing() -> None: ...


SHORTCUTS: list[tuple[Any, str, Any]] = [
    (entrypoints, "init_all", _nothing),
    (types.Function, "get_call_type", _call_type_once),
    (PostProcessor, "run", _post_process),
    (numba_ir.Inst, "_rec_list_vars", _variables_in),
    (BaseContext, "get_function", _get_function_at_once),
    (arrayobj, "make_array", _make_array_of_value),
    (ir.Type, "get_abi_size", functools.cache(ir.Type.get_abi_size)),
]
