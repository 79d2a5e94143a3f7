"""The decorators of kernels, and how what they decorate becomes machine code.

numba optimises and assembles every function by itself, and again inside each of its callers, all
the way up. Here a function that only kernels call is a `part`: typed and lowered alone, optimised
and assembled once, inside each `entry`, a kernel that Python calls, that reaches it. What is
kept on disk is entries, each with all of its parts (`machine_code`).

`part` and `entry` do without numba's reference counts: counting the arrays of its arguments up and
down costs a small kernel more than its work. `allocating_part` and `allocating_entry` make arrays.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numba
from numba import types
from numba.core import typed_passes, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, Flags
from numba.core.compiler_machinery import PassManager

from ngramkit.kernels import cache, collecting, notice
from ngramkit.kernels.lowering import KernelContext, require_fields
from ngramkit.kernels.machine_code import KeptCode

cache.prepare()  # before the first kernel is asked for
notice.listen()
collecting.listen()


# Passes for what no kernel has: closures, `with`, literal_unroll, arrays as operands.
UNUSED = {
    untyped_passes.WithLifting,
    untyped_passes.InlineClosureLikes,
    untyped_passes.RewriteSemanticConstants,
    untyped_passes.DeadBranchPrune,
    untyped_passes.RewriteDynamicRaises,
    untyped_passes.MakeFunctionToJitFunction,
    untyped_passes.InlineInlinables,
    untyped_passes.FindLiterallyCalls,
    untyped_passes.LiteralUnroll,
    untyped_passes.LiteralPropagationSubPipelinePass,
    typed_passes.InlineOverloads,
    typed_passes.NopythonRewrites,
}


class _Whole(JITCodeLibrary):
    """An entry's module: its parts are linked in, then everything is optimised at once."""

    def add_linking_library(self, library: Any) -> None:
        if not isinstance(library, _Part):
            super().add_linking_library(library)
            return
        for each in (library, *library._linking_libraries):
            if each not in self._linking_libraries:
                self._linking_libraries.append(each)

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout  # the rest is done with the whole

    def finalize(self) -> None:
        defined = (f for f in self._final_module.functions if not f.is_declaration)
        self._own = {function.name for function in defined}
        super().finalize()

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if not function.is_declaration and function.name not in self._own:
                function.linkage = "internal"  # what is inlined everywhere, or unused, goes
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)


class _Part(_Whole):
    """A module that waits for its wholes; it never becomes machine code by itself."""

    def _ensure_finalized(self) -> None:
        pass

    def _get_module_for_linking(self) -> Any:
        if self._shared_module is None:
            for function in self._final_module.functions:
                if not function.is_declaration and function.linkage.name == "external":
                    function.linkage = "linkonce_odr"
            self._shared_module = self._final_module
        return self._shared_module

    def get_pointer_to_function(self, name: str) -> int:
        """What Python would call: this one raises TypeError."""
        return ctypes.cast(ctypes.pythonapi.PyErr_BadArgument, ctypes.c_void_p).value or 0

    @property
    def codegen(self) -> Any:
        return _WithoutEnvironments(self._codegen)


class _WithoutEnvironments:
    """A code generator that keeps no Python objects for a part: it uses none."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def set_env(self, name: str, environment: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)


class _Flags(Flags):
    """Compared by what was set; numba makes a dictionary of every flag for every call typed."""

    def __hash__(self) -> int:
        return _FLAGS  # numba's, too, is the same for any values: it hashes the names

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        same = isinstance(other, _Flags) and self._values == other._values
        return same or super().__eq__(other)


_FLAGS = hash(Flags())


class _Compiler(Compiler):
    library: type[_Whole] = _Whole

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.state.flags = _Flags(self.state.flags)
        require_fields()
        self.state.targetctx.__class__ = KernelContext  # it is this compilation's own copy

    def define_pipelines(self) -> Any:
        if self.state.library is None:
            codegen = self.state.targetctx.codegen()
            self.state.library = self.library(codegen, self.state.func_id.func_qualname)
            self.state.library.enable_object_caching()
        passes = PassManager("kernel")
        for whole in super().define_pipelines():
            passes.passes += [each for each in whole.passes if each[0] not in UNUSED]
        passes.finalize()
        return [passes]


class _PartCompiler(_Compiler):
    library = _Part


_njit: Any = numba.njit  # takes more than its stub says
_entry: dict[str, Any] = {
    "nogil": True, "no_cfunc_wrapper": True, "pipeline_class": _Compiler
}  # fmt: skip
_part: dict[str, Any] = {
    "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": _PartCompiler
}  # fmt: skip


def _compiled_once(dispatcher: Any) -> Any:
    """A part that takes every whole number as int64: not once more for 0, a 32-bit index, ..."""
    typed = dispatcher.get_call_template

    def get_call_template(args: Any, kwargs: Any) -> Any:
        return typed([_wide(kind) for kind in args], {n: _wide(k) for n, k in kwargs.items()})

    dispatcher.get_call_template = get_call_template
    return dispatcher


def _wide(kind: Any) -> Any:
    kind = types.unliteral(kind)
    whole = isinstance(kind, types.Integer) and kind != types.uint64
    return types.int64 if whole else kind


def part(function: Any) -> Any:
    return _compiled_once(_njit(**_part, _nrt=False)(function))


def allocating_part(function: Any) -> Any:
    return _compiled_once(_njit(**_part)(function))


def optional_part(function: Any) -> Any:
    """A part that returns nothing and is left out where its first argument is `packed.Absent`: what
    calls it is compiled once without its code, and once more with it where it is met."""
    present, absent = part(function), part(_nothing)
    typed, overload = present.get_call_template, present.get_overload

    def get_call_template(args: Any, kwargs: Any) -> Any:
        left_out = getattr(args[0], "absent", False)
        return absent.get_call_template(args, kwargs) if left_out else typed(args, kwargs)

    def get_overload(args: Any) -> Any:
        return (absent.get_overload if args in absent.overloads else overload)(args)

    present.get_call_template, present.get_overload = get_call_template, get_overload
    return present


def _nothing(*arguments: Any) -> None: ...


def entry(function: Any) -> Any:
    return _kept(_njit(**_entry, _nrt=False)(function))


def allocating_entry(function: Any) -> Any:
    return _kept(_njit(**_entry)(function))


def _kept(dispatcher: Any) -> Any:
    """Its code is kept by us instead of by numba, see machine_code."""
    options = sorted((name, str(value)) for name, value in dispatcher.targetoptions.items())
    dispatcher._cache = KeptCode(dispatcher.py_func, repr(options))
    dispatcher._compilation_chain_init_hook = _nothing  # compiling loads extensions
    return dispatcher
