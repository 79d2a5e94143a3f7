"""Shapes of JSON records, the same in corpora and in logs: lines or a document, paths, turns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ngramkit.basics.errors import InputError
from ngramkit.basics.untrusted import parse_json


def is_document(first: bytes, second: bytes | None = None) -> bool:
    """Return whether JSON is one document rather than a record a line, by its first two lines that
    are not blank.

    A line that is cut off, before a whole one, is a damaged record.
    """
    if second is None or first.lstrip().startswith(b"["):
        return first.lstrip().startswith(b"[")
    return not (_is_whole(first) or _is_whole(second))


def _is_whole(line: bytes) -> bool:
    try:
        parse_json(line, "", most_values=len(line) + 1)
    except InputError:
        return False
    return True


def value_at(record: Any, path: str) -> Any:
    """Return the value of the name `path`, else of b inside a for the path a.b.

    Names may hold dots, numbers are places in a list, and nothing but null is inside null. Raises
    KeyError where there is no such value.
    """
    if record is None:
        return None
    if isinstance(record, list):
        head, _, rest = path.partition(".")
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


def turn_text(turn: Mapping[str, Any]) -> str:
    """Return the text of a turn's content, then its tool calls.

    Raises TypeError for a turn without content, or with content that is no text.
    """
    called = turn.get("tool_calls") or []
    if isinstance(turn.get("function_call"), Mapping):
        called = [turn["function_call"]]
    if not isinstance(called, list):
        raise TypeError("`tool_calls` is not a list")
    if not called and "content" not in turn and "value" not in turn:
        raise TypeError("a turn without content")
    text = content_text(turn.get("content", turn.get("value")))
    return "\n".join(filter(None, [text, *map(tool_call_text, called)]))


def content_text(content: Any) -> str:
    """Return the text of a turn's content: of null, a text, or a list of parts.

    Raises TypeError for any other.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(map(_part_text, content))
    raise TypeError(f"content is neither a text nor a list of parts: {content!r:.60}")


def _part_text(part: Any) -> str:
    """Return a part's text; nothing of an image or a sound."""
    text = part.get("text") if isinstance(part, Mapping) else part
    return text if isinstance(text, str) else ""


def tool_call_text(call: Any) -> str:
    """Return a call as text. Arguments that are text are the model's own."""
    if not isinstance(call, Mapping):
        return ""
    inside = call.get("function")
    inside = inside if isinstance(inside, Mapping) else call
    arguments = inside.get("arguments", inside.get("input", {}))
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    name = json.dumps(inside.get("name"), ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {arguments}}}\n</tool_call>'
