"""Turns of conversations in corpora and logs: what is a turn, its role and its text.

A turn is {"role": ..., "content": ...}, ShareGPT's {"from": ..., "value": ...} or Gemini's {"role":
..., "parts": ...}. Tool calls, results and thoughts take Hermes' and Qwen's form:

    <tool_call>             <tool_response>         <think>
    {"name": ..., ...}      ...                     ...
    </tool_call>            </tool_response>        </think>
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from itertools import groupby
from typing import Any

SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
RESULT_ROLES = frozenset({"tool", "function", "ipython", "observation", "tool_response"})
ROLES = {
    "system": SYSTEM, "developer": SYSTEM, "user": USER, "human": USER, "environment": USER,
    "assistant": ASSISTANT, "ai": ASSISTANT, "gpt": ASSISTANT, "chatgpt": ASSISTANT,
    "bot": ASSISTANT, "chatbot": ASSISTANT, "model": ASSISTANT, "function_call": ASSISTANT,
    **dict.fromkeys(RESULT_ROLES, USER),
}  # fmt: skip
TOOL_CALL_ITEMS = ("function_call", "custom_tool_call")  # of OpenAI's Responses API
# Keys of a turn that may hold more than its content.
MORE_THAN_TEXT = {
    "type", "tool_calls", "function_call", "reasoning_content", "reasoning", "thinking",
    "reasoning_details", "refusal",
}  # fmt: skip
OBJECT = (dict, Mapping)  # isinstance is fast for dict, slow for Mapping
Unread = Counter[str]  # counts of parts that are not read, by reason


class BadTurnError(TypeError):
    """A turn without a readable role or content."""


def is_turn(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and ("role" in value or "from" in value)
        and any(name in value for name in ("content", "value", "tool_calls"))
    )


def role_of(turn: Any) -> str:
    """Return a turn's role, a key of ROLES. Raises BadTurnError for any other.

    >>> role_of({"from": "gpt", "value": "Hi."}), role_of({"role": "ipython", "content": "4"})
    ('gpt', 'ipython')
    """
    if not isinstance(turn, OBJECT):
        raise BadTurnError(f"a message must be an object, got {type(turn).__name__}")
    role, kind = turn.get("role"), turn.get("type")
    if isinstance(role, str) and role in ROLES:
        return role
    if kind == "function_call_output":
        return "tool"
    if kind in (*TOOL_CALL_ITEMS, "reasoning"):
        return ASSISTANT
    role = turn.get("from", kind) if role is None else role
    name = role.lower() if isinstance(role, str) else role
    if isinstance(name, str) and name in ROLES:
        return name
    raise BadTurnError(f"unknown role of a message: {role!r:.40}")


def turn_text(turn: Mapping[str, Any], unread: Unread | None = None) -> str:
    """Return a turn's text and tool calls, without thoughts, or raise BadTurnError."""
    plain = _plain_content(turn)
    return _join_parts(_parts_of_turn(turn, unread)) if plain is None else plain


def written_text(turn: Mapping[str, Any], unread: Unread | None = None) -> str:
    """Return a turn as the model wrote it; repeated thoughts are written once.

    >>> written_text({"reasoning": "Two.", "content": "<think>Two.</think>4"})
    '<think>Two.</think>4'
    """
    plain = _plain_content(turn)
    if plain is not None:
        return plain
    parts = _parts_of_turn(turn, unread)
    thoughts = "\n".join(part for kind, part in parts if kind == "think")
    text = _join_parts(parts)
    return text if thoughts.strip() in text else with_thoughts(thoughts, text)


def with_thoughts(thoughts: str, text: str) -> str:
    if not thoughts:
        return text
    if not text:  # cut off while thinking
        return f"<think>\n{thoughts}"
    return f"<think>\n{thoughts}\n</think>\n\n{text}"


def content_text(content: Any, unread: Unread | None = None) -> str:
    """Return the text of a string, a list of parts, or None.

    >>> content_text([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])
    'ab'
    """
    return _join_parts(_parts_of_content(content, unread))


def tool_call_text(call: Any) -> str:
    """Return a tool call in Hermes' and Qwen's form; "" for other values."""
    if not isinstance(call, Mapping):
        return ""
    inside = call.get("function")
    inside = inside if isinstance(inside, Mapping) else call
    arguments: Any = next((inside[k] for k in ("arguments", "input", "args") if k in inside), {})
    if not isinstance(arguments, str):
        arguments = to_json(arguments)
    name = to_json(inside.get("name"))
    return f'<tool_call>\n{{"name": {name}, "arguments": {arguments}}}\n</tool_call>'


def tool_result_text(text: str) -> str:
    return f"<tool_response>\n{text}\n</tool_response>"


def to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _plain_content(turn: Mapping[str, Any]) -> str | None:
    content = turn.get("content", turn.get("value"))
    return content if isinstance(content, str) and MORE_THAN_TEXT.isdisjoint(turn) else None


Part = tuple[str, str]  # kind ("text", "block" or "think"), text


def _parts_of_turn(turn: Mapping[str, Any], unread: Unread | None) -> list[Part]:
    kind = turn.get("type")
    if kind in TOOL_CALL_ITEMS:
        return [("block", tool_call_text(turn))]
    if kind == "function_call_output":
        return _parts_of_content(turn.get("output"), unread)
    if kind == "reasoning":
        return [("think", content_text(turn.get("content") or turn.get("summary"), unread))]
    calls = turn.get("tool_calls") or []
    if isinstance(turn.get("function_call"), Mapping):
        calls = [turn["function_call"]]
    if not isinstance(calls, list):
        raise BadTurnError(f"`tool_calls` must be a list, got {type(calls).__name__}")
    thoughts = (turn.get(key) for key in ("reasoning_content", "reasoning", "thinking"))
    thought = next((each for each in thoughts if isinstance(each, str) and each), "")
    if not thought and isinstance(turn.get("reasoning_details"), list):
        thought = _join_parts(_parts_of_content(turn["reasoning_details"], unread))
    named = sorted(
        (key for key in ("content", "value", "parts") if key in turn),
        key=lambda key: turn[key] is None,
    )
    name = named[0] if named else None
    if isinstance(turn.get("refusal"), str) and (name is None or turn[name] is None):
        name = "refusal"
    if name is None and not calls and not thought:
        raise BadTurnError("a message must have content")
    parts = [("think", thought)] if thought else []
    parts += _parts_of_content(turn[name], unread) if name else []
    return parts + [("block", tool_call_text(call)) for call in calls]


def _parts_of_content(content: Any, unread: Unread | None) -> list[Part]:
    if content is None:
        return []
    if isinstance(content, str):
        return [("text", content)]
    if not isinstance(content, list):
        raise BadTurnError(
            f"a message's content must be a text or a list of parts, got {type(content).__name__}"
        )
    return [_part_of_content(part, unread) for part in content]


def _part_of_content(part: Any, unread: Unread | None) -> Part:
    if isinstance(part, str):
        return "text", part
    if isinstance(part, OBJECT):
        kind = part.get("type")
        if kind == "tool_use" or isinstance(part.get("functionCall"), Mapping):
            return "block", tool_call_text(part.get("functionCall", part))
        if kind == "tool_result":
            return "block", tool_result_text(content_text(part.get("content"), unread))
        if isinstance(answer := part.get("functionResponse"), Mapping):
            return "block", tool_result_text(to_json(answer.get("response")))
        if kind == "thinking" and isinstance(part.get("thinking"), str):
            return "think", part["thinking"]
        text = part.get("refusal" if kind == "refusal" else "text")
        if isinstance(text, str):
            return ("think" if part.get("thought") is True else "text"), text
    if unread is not None:
        unread["a part of a message that is not text"] += 1
    return "text", ""


def _join_parts(parts: list[Part]) -> str:
    """Join all parts but thoughts."""
    shown = [part for part in parts if part[0] != "think"]
    runs = [
        ("" if is_text else "\n").join(text for _, text in run)
        for is_text, run in groupby(shown, key=lambda part: part[0] == "text")
    ]
    return "\n".join(filter(None, runs))
