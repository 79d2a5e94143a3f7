"""JSON in corpora and logs: lines or one document, the value at a path, missing values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ngramkit.basics.errors import InputError
from ngramkit.basics.untrusted import parse_json


def is_document(first: bytes, second: bytes | None = None) -> bool:
    """Return whether JSON is one document, from its first two non-blank lines."""
    if first.lstrip().startswith(b"["):
        return second is None or not _is_whole(first)
    return second is not None and not (_is_whole(first) or _is_whole(second))


def _is_whole(line: bytes) -> bool:
    try:
        parse_json(line, "", most_values=len(line) + 1)
    except InputError:
        return False
    return True


def value_at(record: Any, path: str) -> Any:
    """Return the value at a path such as `a.b`, or raise KeyError; names may contain dots.

    In a list, a number selects an item; other names apply to every item.
    """
    if record is None:
        return None
    if isinstance(record, list):
        head, _, rest = path.partition(".")
        if not head.isdecimal() and record:
            return [value for item in record for value in _as_list(value_at(item, path))]
        if head.isdecimal() and int(head[:9]) < len(record):
            item = record[int(head[:9])]
            return value_at(item, rest) if rest else item
    elif isinstance(record, Mapping):
        if path in record:
            return record[path]
        at = path.rfind(".")
        while at > 0:
            if path[:at] in record:
                try:
                    return value_at(record[path[:at]], path[at + 1 :])
                except KeyError:
                    pass
            at = path.rfind(".", 0, at)
    raise KeyError(path)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def is_null(value: Any) -> bool:
    """Return whether a value is None, NaN or pandas' NA."""
    if isinstance(value, float):
        return value != value
    return value is None or type(value).__name__ == "NAType"
