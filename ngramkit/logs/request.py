"""One request of a log, and the few ways in which programs write its parts down.

A conversation becomes messages of the three roles that every chat template knows. What a template
would write for tool calls, tool results and reasoning is written as Hermes' and Qwen's do:

    <tool_call>             <tool_response>         <think>
    {"name": ..., ...}      ...                     ...
    </tool_call>            </tool_response>        </think>
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from ngramkit.basics.errors import InputError
from ngramkit.corpus.chat import Message
from ngramkit.corpus.shapes import content_text, tool_call_text, turn_text

TokenIds = list[int]
Prompt = str | Sequence[Message] | TokenIds
SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
ROLES = {
    "system": SYSTEM, "developer": SYSTEM, "user": USER, "human": USER, "assistant": ASSISTANT,
    "ai": ASSISTANT, "gpt": ASSISTANT, "tool": USER, "function": USER, "environment": USER,
}  # fmt: skip
RESULTS = ("tool", "function")  # roles of what a tool returned
MILLISECONDS = 1e11  # from here on a time since 1970 is in milliseconds


class FilePlace(NamedTuple):
    """The place of an object or a line in a file: "FILE, line 3", or the whole file."""

    path: Path
    unit: str = ""  # "line" or "item"
    number: int = 0

    def __str__(self) -> str:
        return f"{self.path}, {self.unit} {self.number}" if self.unit else str(self.path)

    @property
    def label(self) -> str:
        """The name of an object or line that has none of its own: its number, else the file."""
        return str(self.number) if self.unit else str(self.path)


Line = tuple[FilePlace, Any]  # an object of JSON, or a line's text


@dataclass(frozen=True)
class LoggedRequest:
    """A prompt and what a model wrote after it; ids are those of the model that was served."""

    prompt: Prompt
    output: str | TokenIds
    name: str = ""
    kind: str = "all"
    references: tuple[str, ...] = ()  # texts that the output was likely to repeat
    time: float | None = None  # seconds since 1970
    run: str = ""  # of the same tasks: a trial, a step of training
    turn: int = 0  # of a conversation
    text: str = ""  # a part of the output, where that is ids: to see whose ids they are


Found = LoggedRequest | str  # a request, or in a few words why there is none
NO_TEXT = "the answer has no text"
KINDS: dict[type, str] = {list: "a list", str: "a text", dict: "an object"}  # of JSON


def take(where: FilePlace, body: Any, key: str, kind: type) -> Any:
    """Return body[key]. Raises InputError where it is missing or not of the `kind`, of KINDS."""
    if not isinstance(body, dict) or key not in body:
        raise InputError(f"{where}: no `{key}`", f"it should be {KINDS[kind]}")
    if not isinstance(body[key], kind):
        raise InputError(f"{where}: `{key}` is not {KINDS[kind]}")
    return body[key]


def is_ids(value: Any) -> bool:
    """Return whether `value` is a list of whole numbers that may be token ids."""
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 31 for n in value)


def seconds(value: Any) -> float | None:
    """Return a time as seconds since 1970: of a number or an ISO 8601 text; None of any other.

    >>> seconds("2026-11-24T12:00:00Z"), seconds(1795521600000), seconds("noon")
    (1795521600.0, 1795521600.0, None)
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            return None
        return value / 1000 if value > MILLISECONDS else float(value)
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value[:64])
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    return None


# Messages.


def requests_of(
    where: FilePlace,
    messages: Any,
    *,
    tools: Any = None,
    name: str = "",
    kind: str = "all",
    run: str = "",
) -> Iterator[LoggedRequest]:
    """Yield a request for each message that the assistant wrote, after all messages before it."""
    before: list[Message] = []
    turn = 0
    for item in _listed(where, messages):
        written = written_by_model(where, item)
        if written:
            extra = item.get("extra")
            time = seconds(extra.get("timestamp")) if isinstance(extra, dict) else None
            yield LoggedRequest(
                with_tools(before, tools), written, name, kind,
                time=time, run=run, turn=turn,
            )  # fmt: skip
            turn += 1
        _append(before, where, item)


def messages_of(where: FilePlace, messages: Any, tools: Any = None) -> list[Message]:
    """Return a conversation's messages, with the tools behind the system's message."""
    parsed: list[Message] = []
    for item in _listed(where, messages):
        _append(parsed, where, item)
    return with_tools(parsed, tools)


def with_tools(messages: Sequence[Message], tools: Any) -> list[Message]:
    """Return the messages, with the tools' descriptions in the system's."""
    if not isinstance(tools, list) or not tools:
        return list(messages)
    text = "\n".join(["<tools>", *map(_json, tools), "</tools>"])
    if messages and messages[0].role == SYSTEM:
        return [Message(SYSTEM, f"{messages[0].content}\n\n{text}"), *messages[1:]]
    return [Message(SYSTEM, text), *messages]


def written_by_model(where: FilePlace, message: Any) -> str | None:
    """Return what the model wrote for an assistant's message, its reasoning first; None of another
    role's."""
    if _is_response(message):
        return response_text(where, message["output"])
    if ROLES.get(role_of(where, message)) != ASSISTANT:
        return None
    thought = message.get("reasoning_content") or message.get("reasoning")
    thinking = f"<think>\n{thought}\n</think>\n\n" if isinstance(thought, str) and thought else ""
    return thinking + _content(where, message)


def response_text(where: FilePlace, items: Any) -> str:
    """Return what the model wrote, of the `output` of OpenAI's Responses API."""
    parts = []
    for item in _listed(where, items):
        kind = item.get("type") if isinstance(item, dict) else None
        if kind == "message":
            parts.append(text_of(where, item.get("content")))
        elif kind in ("function_call", "custom_tool_call"):
            parts.append(tool_call_text(item))
        elif kind == "reasoning":
            thought = text_of(where, item.get("content") or item.get("summary"))
            parts.append(thought and f"<think>\n{thought}\n</think>\n")
    return "\n".join(filter(None, parts))


def role_of(where: FilePlace, message: Any) -> str:
    """Return a message's role, one of ROLES. Raises InputError for another."""
    if isinstance(message, dict):
        if message.get("type") == "function_call_output":
            return "tool"
        if message.get("type") in ("function_call", "custom_tool_call", "reasoning"):
            return ASSISTANT
        role = message.get("role", message.get("from"))
        if isinstance(role, str) and role in ROLES:
            return role
    raise InputError(
        f"{where}: a message without a role ({', '.join(ROLES)})", "objects with role and content"
    )


def text_of(where: FilePlace, content: Any) -> str:
    """Return the text of a message's content: a text, a list of parts, or none."""
    try:
        return content_text(content)
    except TypeError as error:
        raise InputError(f"{where}: {error}", "objects with role and content") from error


def _append(messages: list[Message], where: FilePlace, item: Any) -> None:
    """Append a message; what tools returned to one turn is one message, as templates want it."""
    if _is_response(item):
        messages.append(Message(ASSISTANT, response_text(where, item["output"])))
        return
    role = role_of(where, item)
    text = _content(where, item)
    if role in RESULTS:
        text = f"<tool_response>\n{text}\n</tool_response>"
        last = messages[-1] if messages else None
        if last and last.role == USER and last.content.endswith("</tool_response>"):
            messages[-1] = Message(USER, f"{last.content}\n{text}")
            return
    messages.append(Message(ROLES[role], text))


def _content(where: FilePlace, message: Mapping[str, Any]) -> str:
    """Return a message's text, and the tools that it calls behind it."""
    kind = message.get("type")
    if kind in ("function_call", "custom_tool_call"):
        return tool_call_text(message)
    if kind == "function_call_output":
        return text_of(where, message.get("output"))
    if kind == "reasoning":
        return ""
    try:
        return turn_text(message)
    except TypeError as error:
        raise InputError(f"{where}: {error}", "objects with role and content") from error


def _is_response(message: Any) -> bool:
    """Return whether it is a whole answer of the Responses API, as mini-swe-agent keeps them."""
    return isinstance(message, dict) and message.get("object") == "response" and "output" in message


def _listed(where: FilePlace, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"{where}: messages are not a list", "objects with role and content")
    return value


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
