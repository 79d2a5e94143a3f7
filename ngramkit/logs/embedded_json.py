"""JSON values that an exporter wrote as strings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ngramkit.basics.errors import InputError
from ngramkit.basics.untrusted import parse_json
from ngramkit.logs.request import FilePlace


def parse_embedded(where: FilePlace, value: Any, fits: Callable[[Any], bool]) -> Any:
    """Return the JSON inside a string if `fits` accepts it, else the value."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        body = parse_json(value, str(where), most_values=1 << 23)
    except InputError:
        return value
    if not fits(body):
        return value
    where.count_unread("a value that was JSON in a text")
    return body
