"""Templates of the JSON that a model writes for a request's tools and response format.

They hold all keys, in the order of the schema, with constants, defaults or empty values. Models
write JSON with or without spaces, so each schema gives a template of both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

MAX_TEMPLATE_BYTES = 1 << 14  # of a request's templates; those after it are left out
MAX_VALUES = 1 << 10  # of all templates
MAX_SCHEMA_DEPTH = 8  # of objects and lists in each other
MAX_SCHEMA_STEPS = 16  # references and choices in each other for one value; tried choices
MAX_POINTER_LENGTH = 512  # of a reference, in characters
MAX_NUMBER_BITS = 64  # Python refuses to print very long integers
EMPTY = {"string": "", "integer": 0, "number": 0, "boolean": False, "null": None}
READ_KEYS = ("const", "default", "enum", "items", "properties", "type")
NULL_SCHEMA = {"type": "null"}
COMPACT_SEPARATORS = (",", ":")


def call_templates(tools: Iterable[tuple[str, Any]], schema: Any = None) -> list[str]:
    """Return templates of calls of tools, given by name and schema, and of an answer's schema.

    Clients send schemas, so any value may be in them.
    """
    values = _Values()
    found = []
    for name, parameters in tools:
        arguments = values.value_of(parameters)
        for text in _json_spellings(arguments if isinstance(arguments, dict) else {}):
            called = json.dumps(name, ensure_ascii=False)
            found.append(f'{{"name": {called}, "arguments": {text}}}')
    if schema is not None:
        found += _json_spellings(values.value_of(schema))
    kept, room = [], MAX_TEMPLATE_BYTES
    for text in found:
        room -= len(text.encode(errors="replace"))
        if room < 0:
            break
        kept.append(text)
    return kept


def offered_templates(request: Any, schema: Any = None) -> list[str]:
    """Return templates of the tools that an OpenAI chat lets the model call, and of a schema."""
    tools, choice = request.tools or [], request.tool_choice
    named = getattr(getattr(choice, "function", None), "name", None)
    if choice == "none":
        tools = []
    elif named is not None:
        tools = [tool for tool in tools if tool.function.name == named]
    return call_templates(
        [(tool.function.name, tool.function.parameters) for tool in tools], schema
    )


def _json_spellings(value: Any) -> list[str]:
    texts = [
        json.dumps(value, ensure_ascii=False, separators=each)
        for each in (COMPACT_SEPARATORS, None)
    ]
    return list(dict.fromkeys(texts))


class _Values:
    """Makes at most MAX_VALUES values, and stops after MAX_TEMPLATE_BYTES characters.

    A short schema may refer to a long text many times.
    """

    def __init__(self) -> None:
        self._left, self._room = MAX_VALUES, MAX_TEMPLATE_BYTES
        self._root: Any = None  # schema in which references are found
        self._open: list[str] = []  # references that lead to the current value

    def value_of(self, schema: Any) -> Any:
        self._root = schema
        return self._value(schema, MAX_SCHEMA_DEPTH)

    def _value(self, schema: Any, depth: int) -> Any:
        opened = len(self._open)
        try:
            return self._const_default_or_empty(self._plain(schema), depth)
        finally:
            del self._open[opened:]

    def _const_default_or_empty(self, schema: Mapping[str, Any], depth: int) -> Any:
        if depth == 0 or self._is_spent:
            return ""
        if "const" in schema:
            return self._copy(schema["const"], depth)
        choices, default = schema.get("enum"), schema.get("default")
        if isinstance(choices, list) and len(choices) == 1:
            return self._copy(choices[0], depth)
        if isinstance(default, str | int | float):
            return self._copy(default, depth)
        properties, items = schema.get("properties"), schema.get("items")
        if isinstance(properties, Mapping):
            self._room -= sum(map(len, properties))
            return {key: self._value(each, depth - 1) for key, each in properties.items()}
        if isinstance(items, Mapping):
            item = self._value(items, depth - 1)
            return [] if item is None else [item]
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = next((each for each in kind[:MAX_SCHEMA_STEPS] if each != "null"), None)
        if kind == "array":
            return []
        return {} if kind == "object" else EMPTY.get(kind, "") if isinstance(kind, str) else ""

    def _plain(self, schema: Any, steps: int = MAX_SCHEMA_STEPS) -> dict[str, Any]:
        """Return READ_KEYS of a schema merged with what it refers to, chooses and consists of.

        Its own keys come first. A reference to a schema that contains it counts as null.
        """
        self._left -= 1
        if not isinstance(schema, Mapping) or steps == 0 or self._is_spent:
            return {}
        merged = {key: schema[key] for key in READ_KEYS if key in schema}
        for part in self._parts(schema):
            if self._is_spent:
                break
            found = self._plain(part, steps - 1)
            first, more = merged.get("properties"), found.get("properties")
            merged = {**found, **merged}
            if isinstance(first, Mapping) and isinstance(more, Mapping):
                self._left -= len(first) + len(more)
                merged["properties"] = {**first, **more}
        return merged

    @property
    def _is_spent(self) -> bool:
        return self._left < 0 or self._room < 0

    def _parts(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        reference = schema.get("$ref")
        if isinstance(reference, str):
            yield self._target(reference)
        for key in ("anyOf", "oneOf"):
            choices = schema.get(key)
            if isinstance(choices, list):
                tried = choices[:MAX_SCHEMA_STEPS]
                yield next((each for each in tried if not _is_null(each)), NULL_SCHEMA)
        every = schema.get("allOf")
        if isinstance(every, list):
            yield from every

    def _target(self, reference: str) -> Any:
        """Return the part of the schema that a local reference (RFC 6901) names."""
        if reference in self._open:
            return NULL_SCHEMA
        if not reference.startswith("#") or len(reference) > MAX_POINTER_LENGTH:
            return None
        self._open.append(reference)
        found = self._root
        for name in unquote(reference[1:]).split("/")[1:]:
            if not isinstance(found, Mapping):
                return None
            found = found.get(name.replace("~1", "/").replace("~0", "~"))
        return found

    def _copy(self, value: Any, depth: int) -> Any:
        """Return a value of a schema, without what is too deep or cannot be printed."""
        self._left -= 1
        if depth == 0 or self._is_spent:
            return ""
        if isinstance(value, Mapping):
            self._room -= sum(map(len, value))
            return {key: self._copy(each, depth - 1) for key, each in value.items()}
        if isinstance(value, list):
            return [self._copy(each, depth - 1) for each in value]
        if isinstance(value, str):
            self._room -= len(value)
            return "" if self._room < 0 else value
        if isinstance(value, int) and value.bit_length() > MAX_NUMBER_BITS:
            return 0
        return value if value is None or isinstance(value, int | float) else ""


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and (
        schema.get("type") == "null" or ("const" in schema and schema["const"] is None)
    )
