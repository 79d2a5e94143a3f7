"""Checks of parameters: types (numpy's numbers are accepted), and earlier names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import wraps
from inspect import signature
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from ngramkit.basics.errors import require_list
from ngramkit.basics.progress import Reporter

# Annotated type: (accepted types, name in errors).
ACCEPTED_TYPES: dict[type, tuple[Any, str]] = {
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    bool: (bool, "True or False"),
    str: (str, "a text"),
    Path: ((str, PathLike), "a path"),
    Reporter: (Reporter, "an ngramkit.Reporter"),
}
BY_NAME = {kind.__name__: kind for kind in ACCEPTED_TYPES}
P = ParamSpec("P")
T = TypeVar("T")


def renamed(**names: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let a function refuse earlier names of its parameters; the TypeError has the new ones.

    >>> renamed(tokens="budget")(len)(tokens=3)
    Traceback (most recent call last):
    TypeError: unknown argument 'tokens' of len: use budget
    """

    def refusing(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def checked(*values: P.args, **named: P.kwargs) -> T:
            for old in sorted(names.keys() & named.keys()):
                new, name = names[old], function.__name__
                raise TypeError(f"unknown argument {old!r} of {name}: use {new}")
            return function(*values, **named)

        return checked

    return refusing


def typed(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function check its arguments by their annotations; numpy's numbers become Python's.

    >>> def trim(tokens: "int | None" = None): ...
    >>> typed(trim)("5")
    Traceback (most recent call last):
    TypeError: tokens must be a whole number, got '5'
    """
    taking = signature(function)
    kinds = {name: _kinds(parameter.annotation) for name, parameter in taking.parameters.items()}

    @wraps(function)
    def checked(*values: P.args, **named: P.kwargs) -> T:
        try:
            given = taking.bind(*values, **named)
        except TypeError:
            return function(*values, **named)  # Python's error names the function
        for name, value in given.arguments.items():
            given.arguments[name] = _check_annotated(name, value, kinds[name])
        return function(*given.args, **given.kwargs)

    return checked


def check_type(name: str, value: Any, kinds: Sequence[type]) -> Any:
    """Return the value of the parameter `name`; numpy's numbers become Python's, 3.0 an int."""
    whole = int in kinds and float not in kinds and isinstance(value, Real)
    if whole and not isinstance(value, bool) and float(value).is_integer():
        return int(value)
    taken = tuple(ACCEPTED_TYPES[kind][0] for kind in kinds)
    # bool is a subclass of int.
    if not isinstance(value, taken) or (isinstance(value, bool) and bool not in kinds):
        wanted = " or ".join(ACCEPTED_TYPES[kind][1] for kind in kinds)
        raise TypeError(f"{name} must be {wanted}, got {value!r:.60}")
    if isinstance(value, Real) and not isinstance(value, int | float):
        return int(value) if isinstance(value, Integral) else float(value)
    return value


def check_fields(options: Any) -> None:
    """Check a dataclass's fields by their annotations; numpy's numbers become Python's.

    Raises TypeError, or UsageError for a text where a Sequence is annotated.
    """
    for field in fields(options):
        value, names = getattr(options, field.name), str(field.type).split(" | ")
        if names[0].startswith("Sequence[") and len(names) == 1:
            require_list(field.name, value)
        plain = _check_annotated(field.name, value, _kinds(field.type))
        if plain is not value:
            object.__setattr__(options, field.name, plain)


def _kinds(annotation: Any) -> Sequence[type | None]:
    """Return the types of an annotation as it is written; none if one of them is not checked."""
    names = str(annotation).split(" | ")
    return [BY_NAME.get(name) for name in names] if {*names} <= {*BY_NAME, "None"} else []


def _check_annotated(name: str, value: Any, kinds: Sequence[type | None]) -> Any:
    if not kinds or (value is None and None in kinds):
        return value
    return check_type(name, value, [kind for kind in kinds if kind is not None])
