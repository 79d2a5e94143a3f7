"""Type checks of parameters. numpy's numbers are accepted, wrong types raise TypeError."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any

from ngramkit.basics.errors import require_list
from ngramkit.basics.progress import Reporter

# Annotated type: (accepted types, name in errors).
TAKEN: dict[type, tuple[Any, str]] = {
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    bool: (bool, "True or False"),
    str: (str, "a text"),
    Path: ((str, PathLike), "a path"),
    Reporter: (Reporter, "an ngramkit.Reporter"),
}
BY_NAME = {kind.__name__: kind for kind in TAKEN}


def check_type(name: str, value: Any, kinds: Sequence[type]) -> Any:
    """Return the value of the parameter `name`; numpy's numbers become Python's."""
    taken = tuple(TAKEN[kind][0] for kind in kinds)
    # bool is a subclass of int.
    if not isinstance(value, taken) or (isinstance(value, bool) and bool not in kinds):
        wanted = " or ".join(TAKEN[kind][1] for kind in kinds)
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
        if not BY_NAME.keys() >= set(names) - {"None"} or (value is None and "None" in names):
            continue
        plain = check_type(field.name, value, [BY_NAME[name] for name in names if name != "None"])
        if plain is not value:
            object.__setattr__(options, field.name, plain)
