"""Templates of the JSON that a model writes for a request's tools and response format.

They hold all keys, in the order of the schema, with empty values. Models write JSON with or without
spaces, so each schema gives a template of both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

MAX_TEMPLATE_BYTES = 1 << 14  # of a request's templates; those after it are left out
MOST_VALUES = 1 << 10  # of all templates
MAX_SCHEMA_DEPTH = 8  # of objects and lists in each other
EMPTY = {"string": "", "integer": 0, "number": 0, "boolean": False, "null": None}
COMPACT_SEPARATORS = (",", ":")


def call_templates(tools: Iterable[tuple[str, Any]], schema: Any = None) -> list[str]:
    """Return templates of calls of tools, given by name and schema, and of an answer's schema.

    Clients send schemas, so any value may be in them.
    """
    values = _Values()
    found = []
    for name, parameters in tools:
        arguments = values.empty(parameters)
        for text in _json_spellings(arguments if isinstance(arguments, dict) else {}):
            called = json.dumps(name, ensure_ascii=False)
            found.append(f'{{"name": {called}, "arguments": {text}}}')
    if schema is not None:
        found += _json_spellings(values.empty(schema))
    kept, room = [], MAX_TEMPLATE_BYTES
    for text in found:
        room -= len(text.encode(errors="replace"))
        if room < 0:
            break
        kept.append(text)
    return kept


def _json_spellings(value: Any) -> list[str]:
    texts = [
        json.dumps(value, ensure_ascii=False, separators=each)
        for each in (COMPACT_SEPARATORS, None)
    ]
    return list(dict.fromkeys(texts))


class _Values:
    """Makes at most MOST_VALUES empty values."""

    def __init__(self) -> None:
        self._left = MOST_VALUES

    def empty(self, schema: Any, depth: int = MAX_SCHEMA_DEPTH) -> Any:
        self._left -= 1
        if not isinstance(schema, Mapping) or depth == 0 or self._left < 0:
            return ""
        choices = schema.get("enum")
        if isinstance(choices, list) and len(choices) == 1 and isinstance(choices[0], str):
            return choices[0]
        properties, items = schema.get("properties"), schema.get("items")
        if isinstance(properties, Mapping):
            return {str(key): self.empty(each, depth - 1) for key, each in properties.items()}
        if isinstance(items, Mapping):
            return [self.empty(items, depth - 1)]
        kind = schema.get("type")
        if kind == "array":
            return []
        return {} if kind == "object" else EMPTY.get(kind, "") if isinstance(kind, str) else ""
