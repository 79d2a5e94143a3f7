"""A kernel compiler that optimises each part once per entry; uses numba's internals.

numba optimises every function by itself and again inside each caller. A `part` is optimised only
inside each `entry` that reaches it, so the first decode is 25 s shorter. Both omit reference
counts, which cost a small kernel more than its work.

Names of code files have a digest of all sources, so no index can be overwritten by two processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import pickle
import sys
import tempfile
from pathlib import Path
from typing import Any

import numba
from numba import types
from numba.core.caching import NullCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps
from numba.core.typed_passes import (
    DumpParforDiagnostics,
    InlineOverloads,
    NopythonRewrites,
    NoPythonSupportedFeatureValidation,
)
from numba.core.untyped_passes import (
    DeadBranchPrune,
    FindLiterallyCalls,
    InlineClosureLikes,
    InlineInlinables,
    LiteralPropagationSubPipelinePass,
    LiteralUnroll,
    MakeFunctionToJitFunction,
    RewriteDynamicRaises,
    WithLifting,
)

from ngramkit.kernels.code_folder import delete_oldest, file_ending, machine_code_folder

PACKAGE = "ngramkit.kernels."
# They serve closures, overloads, literals, `with`, parallel loops, branches on None, errors made at
# run time and array expressions; kernels have none.
UNUSED_PASSES = {
    DeadBranchPrune,
    DumpParforDiagnostics,
    FindLiterallyCalls,
    InlineClosureLikes,
    InlineInlinables,
    InlineOverloads,
    LiteralPropagationSubPipelinePass,
    LiteralUnroll,
    MakeFunctionToJitFunction,
    NoPythonSupportedFeatureValidation,
    NopythonRewrites,
    RewriteDynamicRaises,
    WithLifting,
}
_compiled: list[str] = []
_VERSIONS = numba.__version__, sys.implementation.cache_tag
_njit: Any = numba.njit  # has options that its stub lacks


class _Whole(JITCodeLibrary):
    """An entry's module: parts are linked in, then optimised together."""

    def add_linking_library(self, library: Any) -> None:
        if not isinstance(library, _Part):
            super().add_linking_library(library)
            return
        for each in (library, *library._linking_libraries):
            if each not in self._linking_libraries:
                self._linking_libraries.append(each)

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout  # the passes run on the whole module

    def finalize(self) -> None:
        defined = (f for f in self._final_module.functions if not f.is_declaration)
        self._own = {function.name for function in defined}
        super().finalize()

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if not function.is_declaration and function.name not in self._own:
                function.linkage = "internal"  # so that unused code is removed
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)


class _Part(_Whole):
    """A part's module, which never becomes machine code by itself."""

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
        """Return a function that raises TypeError when called from Python."""
        return ctypes.cast(ctypes.pythonapi.PyErr_BadArgument, ctypes.c_void_p).value or 0

    @property
    def codegen(self) -> Any:
        return _WithoutEnvironments(self._codegen)


class _WithoutEnvironments:
    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def set_env(self, name: str, environment: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)


def _shortcuts() -> contextlib.AbstractContextManager[None]:
    from ngramkit.kernels.numba_shortcuts import shortcuts  # not imported for kernels that are kept

    return shortcuts()


class _EntryCompiler(Compiler):
    library: type[_Whole] = _Whole

    def __init__(self, *arguments: Any) -> None:
        with _shortcuts():
            super().__init__(*arguments)

    def define_pipelines(self) -> Any:
        if self.state.library is None:
            codegen = self.state.targetctx.codegen()
            self.state.library = self.library(codegen, self.state.func_id.func_qualname)
            self.state.library.enable_object_caching()
        pipelines = super().define_pipelines()
        for each in pipelines:
            each.passes = [step for step in each.passes if step[0] not in UNUSED_PASSES]
            each.finalize()
        return pipelines

    def _compile_core(self) -> Any:
        with _shortcuts():
            return super()._compile_core()


class _PartCompiler(_EntryCompiler):
    library = _Part


class CodeCache(NullCache):
    def __init__(self, kernel: Any, options: str) -> None:
        self._name = f"{kernel.__module__}.{kernel.__qualname__}"
        self._options = options
        code = kernel.__code__  # the digest of sources does not cover kernels in tests
        self._code = repr((code.co_code, code.co_consts, code.co_names))

    @property
    def cache_path(self) -> str | None:
        place = machine_code_folder()
        return None if place is None else str(place)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return a kernel's code, or None if it is missing or damaged.

        Initialises only numba's memory manager: the typing tables import scipy and all extensions.
        """
        rtsys.initialize(target_context)
        path = self._path_by_cache_key(sig, target_context.codegen())
        if path is None:
            return None
        try:
            state = pickle.loads(path.read_bytes())
            return CompileResult._rebuild(target_context, *state)
        except FileNotFoundError:
            return None
        except Exception:  # damaged: compile and write it again
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        path = self._path_by_cache_key(sig, data.codegen)
        if path is None or data.lifted or data.library.has_dynamic_globals:
            return
        with contextlib.suppress(OSError):
            handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(dumps(data._reduce()))
                Path(partial).replace(path)
                delete_oldest(path.parent)
                _compiled.append(self._name.removeprefix(PACKAGE))
            except BaseException:
                Path(partial).unlink(missing_ok=True)
                raise

    def _path_by_cache_key(self, sig: Any, codegen: Any) -> Path | None:
        place = machine_code_folder()
        key = self._name, self._code, self._options, str(sig), codegen.magic_tuple(), _VERSIONS
        digest = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        name = f"{self._name.removeprefix(PACKAGE)}-{digest}{file_ending()}"
        return None if place is None else place / name


ENTRY_OPTIONS: dict[str, Any] = {
    "nogil": True, "no_cfunc_wrapper": True, "pipeline_class": _EntryCompiler
}  # fmt: skip
PART_OPTIONS: dict[str, Any] = {
    "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": _PartCompiler
}  # fmt: skip


def _with_wide_integers(dispatcher: Any) -> Any:
    """Make a part take all integers but uint64 as int64, to compile it once."""
    typed = dispatcher.get_call_template

    def get_call_template(args: Any, kwargs: Any) -> Any:
        return typed(
            [_wide_type(kind) for kind in args], {n: _wide_type(k) for n, k in kwargs.items()}
        )

    dispatcher.get_call_template = get_call_template
    return dispatcher


def _wide_type(kind: Any) -> Any:
    kind = types.unliteral(kind)
    whole = isinstance(kind, types.Integer) and kind != types.uint64
    return types.int64 if whole else kind


def part(function: Any) -> Any:
    return _with_wide_integers(_njit(**PART_OPTIONS, _nrt=False)(function))


def allocating_part(function: Any) -> Any:
    return _with_wide_integers(_njit(**PART_OPTIONS)(function))


def _nothing(*arguments: Any) -> None: ...


def entry(function: Any) -> Any:
    return _with_cache(_njit(**ENTRY_OPTIONS, _nrt=False)(function))


def allocating_entry(function: Any) -> Any:
    return _with_cache(_njit(**ENTRY_OPTIONS)(function))


def _with_cache(dispatcher: Any) -> Any:
    options = sorted((name, str(value)) for name, value in dispatcher.targetoptions.items())
    dispatcher._cache = CodeCache(dispatcher.py_func, repr(options))
    dispatcher._compilation_chain_init_hook = _nothing  # compiling loads extensions
    return dispatcher


def compiled() -> list[str]:
    """Return the kernels that this process has compiled and written, as MODULE.NAME."""
    return sorted(_compiled)
