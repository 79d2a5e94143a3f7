"""Decorators of the functions that programs call: editors show their words, errors explain them.

An unknown keyword is a TypeError that names the near ones, and so is a value of another type where
a number, a text, a truth value, a path or a reporter is taken. Keywords that a function hands on as
`**words` stand in its signature one by one, with the defaults of where they go:

    class ReaderWords(TypedDict, total=False):  # for type checkers and editors
        column: str | None

    @public_with(open_corpus, ReaderWords)  # for `help`
    def tokenize(corpus, **words: Unpack[ReaderWords]): ...

Where a module has the name of such a function, `callable_module` lets it be called in its place.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from types import ModuleType, NoneType
from typing import Any, ParamSpec, TypeVar

from ngramkit.basics.errors import meant, require_list
from ngramkit.basics.progress import Reporter

P = ParamSpec("P")
R = TypeVar("R")

LIST = re.compile(r"Sequence\[[^\[\]]+\]")  # as annotations call a list alone
# What annotations call plain values, and the types that pass for them: numpy's numbers too.
PLAIN: dict[str, type] = {
    "int": Integral, "float": Real, "str": str, "bool": bool, "Path": os.PathLike, "None": NoneType,
    "Reporter": Reporter,
}  # fmt: skip


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function name the near keywords for one that it does not know."""
    return _refusing(function, inspect.signature(function))


def public_with(
    target: Callable[..., Any], words: type
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return `public`, with the keywords `words`, a TypedDict, of `target` in the signature."""
    of_target = inspect.signature(target).parameters

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        own = inspect.signature(function)
        named = [each for each in own.parameters.values() if each.kind != each.VAR_KEYWORD]
        taken = [of_target[word] for word in words.__annotations__ if word not in own.parameters]
        keywords = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in taken]
        return _refusing(function, own.replace(parameters=[*named, *keywords]))

    return decorate


def _refusing(function: Callable[P, R], signature: inspect.Signature) -> Callable[P, R]:
    @functools.wraps(function)
    def call(*args: P.args, **words: P.kwargs) -> R:
        given: Any = plain_arguments(function.__qualname__, signature.parameters, args, words)
        return function(*given[0], **given[1])

    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def unknown_keyword(function: str, word: str, known: list[str]) -> str:
    """Return the text of a TypeError for a keyword that `function` does not know."""
    return f"{function}() got an unexpected keyword argument {word!r}: {meant(word, known)}"


def plain_arguments(
    function: str,
    parameters: Mapping[str, inspect.Parameter],
    args: Sequence[Any],
    words: Mapping[str, Any],
) -> tuple[list[Any], dict[str, Any]]:
    """Return a call's positional arguments and keywords as `as_plain` does.

    Raises TypeError as that, and for an unknown keyword, with the near ones.
    """
    for word in words:
        if word not in parameters:
            raise TypeError(unknown_keyword(function, word, list(parameters)))
    plain = functools.partial(as_plain, function)
    values = [*map(plain, parameters.values(), args), *args[len(parameters) :]]
    return values, {word: plain(parameters[word], value) for word, value in words.items()}


def as_plain(function: str, parameter: inspect.Parameter, value: Any) -> Any:
    """Return the value of a parameter, a number of numpy as Python's.

    Raises TypeError where it is of none of the types of the parameter, UsageError for one thing in
    place of a list of them. Those that take anything but PLAIN types are left to the function.

    >>> as_plain("f", inspect.signature(unknown_keyword).parameters["word"], 3)
    Traceback (most recent call last):
    TypeError: f() takes str as word, not 3
    """
    if LIST.fullmatch(str(parameter.annotation)):
        require_list(parameter.name, value)
    names = str(parameter.annotation).split(" | ")
    if not PLAIN.keys() >= set(names):
        return value
    is_switch = isinstance(value, bool) and "bool" not in names  # Python counts it as a number
    if is_switch or not isinstance(value, tuple(PLAIN[name] for name in names)):
        wanted = " or ".join(names).replace("Reporter", "ngramkit.Reporter")
        raise TypeError(f"{function}() takes {wanted} as {parameter.name}, not {value!r:.60}")
    if isinstance(value, Real) and not isinstance(value, int | float):
        return int(value) if isinstance(value, Integral) else float(value)
    return value


def require_plain(given: object) -> None:
    """Raise as `as_plain` for the fields of a dataclass."""
    kind = type(given)
    for name, parameter in inspect.signature(kind).parameters.items():
        as_plain(kind.__name__, parameter, getattr(given, name))


def callable_module(module: str, home: str, name: str) -> None:
    """Let a module be called as the function `name` of the module `home`, and have its signature
    and its help. `home` is imported when one of these is wanted."""

    def function() -> Any:
        return getattr(importlib.import_module(home), name)

    class Function(ModuleType):
        def __call__(self, *args: Any, **words: Any) -> Any:
            return function()(*args, **words)

        @property
        def __signature__(self) -> inspect.Signature:
            return inspect.signature(function())

        @property
        def __doc__(self) -> str:  # type: ignore[override]
            return f"{name}{self.__signature__}\n\n{inspect.getdoc(function())}"

    sys.modules[module].__class__ = Function
