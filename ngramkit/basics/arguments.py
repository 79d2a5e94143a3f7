"""Checks of parameters: types (numpy's numbers are accepted), and earlier names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import wraps
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


def refuse_earlier_names(**names: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let a function refuse earlier names of its parameters; the TypeError has the new ones.

    >>> refuse_earlier_names(tokens="budget")(len)(tokens=3)
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


def check_type(name: str, value: Any, kinds: Sequence[type]) -> Any:
    """Return the value of the parameter `name`; numpy's numbers become Python's."""
    taken = tuple(ACCEPTED_TYPES[kind][0] for kind in kinds)
    # bool is a subclass of int.
    if not isinstance(value, taken) or (isinstance(value, bool) and bool not in kinds):
        wanted = " or ".join(ACCEPTED_TYPES[kind][1] for kind in kinds)
        raise TypeError(f"{name} must be {wanted}, got {value!r:.60}")
    if isinstance(value, Real) and not isinstance(value, int | float):
        return int(value) if isinstance(value, Integral) else float(value)
    return value


def check_types(kind: type, **values: Any) -> list[Any]:
    return [
        None if value is None else check_type(name, value, [kind]) for name, value in values.items()
    ]


def check_fields(options: Any) -> None:
    """Check a dataclass's fields by their annotations; numpy's numbers become Python's.

    Raises TypeError, or UsageError for a text where a Sequence is annotated.
    """
    for field in fields(options):
        value, names = getattr(options, field.name), str(field.type).split(" | ")
        if names[0].startswith("Sequence[") and len(names) == 1:
            require_list(field.name, value)
            if not isinstance(value, Sequence):  # such as a generator, which can be read once
                object.__setattr__(options, field.name, tuple(value))
        if not BY_NAME.keys() >= set(names) - {"None"} or (value is None and "None" in names):
            continue
        plain = check_type(field.name, value, [BY_NAME[name] for name in names if name != "None"])
        if plain is not value:
            object.__setattr__(options, field.name, plain)
