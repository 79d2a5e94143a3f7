"""Values that an exporter has written as JSON in a text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ngramkit.basics.errors import InputError
from ngramkit.basics.untrusted import parse_json
from ngramkit.logs.request import FilePlace

UNFOLDED = "a value that was JSON in a text"
MOST_VALUES = 1 << 23


def unfolded(where: FilePlace, value: Any, fits: Callable[[Any], bool]) -> Any:
    """Return the JSON in a text, if it is what `fits` says; else the value as it is."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        body = parse_json(value, str(where), most_values=MOST_VALUES)
    except InputError:
        return value
    if not fits(body):
        return value
    where.lose(UNFOLDED)
    return body
