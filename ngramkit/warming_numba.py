"""numba made quicker, in a process that compiles kernels and does nothing else.

What numba asks of itself again and again is answered once here; the machine code is the same. None
of this is for a process of the user's, where other code may be compiled: it is done to numba's own
classes.
"""

from __future__ import annotations

import sys
from typing import Any

from numba.core import base, cpu, entrypoints, ir, types
from numba.core.typing import context as typing_context

FUNCTION: Any = types.BaseFunction
INSTRUCTION: Any = ir.Inst
TARGET: Any = base.BaseContext
LOADING: tuple[Any, ...] = (cpu.CPUContext, typing_context.Context)
PLAIN = {str, int, float, bool, type(None), ir.Loc}  # parts of instructions without variables
SEVERAL = {dict, list, tuple}


def spare() -> None:
    """All of it; before numba has compiled anything."""
    look_for_nothing_else()
    type_once()
    size_once()
    for context in LOADING:
        load_once(context)
    pass_over_plain()


def look_for_nothing_else() -> None:
    """Of what numba looks for before it first compiles, no kernel uses BLAS (scipy), C's
    declarations (cffi) or other packages' extensions. Without them it begins half a second
    sooner."""
    not_there: Any = dict.fromkeys(("scipy", "cffi"))  # importing them raises ImportError
    sys.modules.update(not_there)
    entrypoints._already_initialized = True


def type_once() -> None:
    """What a function of numba's own returns for given types. Its templates are tried in turn, six
    of seven in vain, and kernels add whole numbers a thousand times."""
    typed = FUNCTION.get_call_type
    known: dict[Any, Any] = {}

    def get_call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
        key = id(self), args, tuple(kws.items())
        if key not in known:
            known[key] = self, typed(self, context, args, kws)  # alive, so that its id is its own
        return known[key][1]

    FUNCTION.get_call_type = get_call_type


def size_once() -> None:
    """How large a type is: numba writes a module for LLVM to read, to ask that of it."""
    sized = TARGET.get_abi_sizeof
    known: dict[Any, int] = {}

    def get_abi_sizeof(self: Any, ty: Any) -> int:
        if ty not in known:
            known[ty] = sized(self, ty)
        return known[ty]

    TARGET.get_abi_sizeof = get_abi_sizeof


def load_once(context: Any) -> None:
    """What numba can compile stands in a dozen modules. It looks for more of that whenever a kernel
    calls one that is new; nothing is added to them after the first time."""
    loaded = context.load_additional_registries
    done: set[int] = set()

    def load_additional_registries(self: Any) -> None:
        if id(self) not in done:
            loaded(self)
            done.add(id(self))

    context.load_additional_registries = load_additional_registries


def pass_over_plain() -> None:
    """Variables are looked for in all that an instruction holds: names, lines and numbers too."""
    walked = INSTRUCTION._rec_list_vars

    def rec_list_vars(self: Any, value: Any) -> Any:
        kind = type(value)
        if kind is ir.Var:
            return [value]
        if kind not in SEVERAL:
            return [] if kind in PLAIN else walked(self, value)
        found: list[Any] = []
        for each in value.values() if kind is dict else value:
            if type(each) not in PLAIN:
                found += rec_list_vars(self, each)
        return found

    INSTRUCTION._rec_list_vars = rec_list_vars
