"""A logged request, and parsers that most log formats share."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ngramkit.basics.errors import BadRecordError, InputError
from ngramkit.basics.untrusted import parse_json
from ngramkit.corpus.chat import Message
from ngramkit.corpus.message_prefix import MessagePrefix
from ngramkit.corpus.turns import (
    ASSISTANT,
    RESULT_ROLES,
    ROLES,
    SYSTEM,
    TOOL_CALL_ITEMS,
    USER,
    BadTurnError,
    content_text,
    role_of,
    to_json,
    tool_call_text,
    tool_result_text,
    turn_text,
    written_text,
)
from ngramkit.drafters.base import TokenArray

Prompt = str | Sequence[Message] | TokenArray


class FilePlace(NamedTuple):
    """The place of a record: "FILE, line 3", or a whole file."""

    path: Path
    unit: str = ""  # "line" or "item"
    number: int = 0
    unread: Counter[str] | None = None  # counts parts of records that are not read

    def __str__(self) -> str:
        return f"{self.path}, {self.unit} {self.number}" if self.unit else str(self.path)

    def count_unread(self, what: str) -> None:
        if self.unread is not None:
            self.unread[what] += 1


Line = tuple[FilePlace, Any]  # a JSON object, or the text of a line


@dataclass(eq=False, slots=True)
class LoggedRequest:
    """A prompt and the model's answer. Token ids are int32[n] of the served model."""

    prompt: Prompt
    output: str | TokenArray
    name: str = ""  # "" if the log has none
    kind: str = "all"
    references: tuple[str, ...] = ()  # texts that the output was likely to repeat
    time: float | None = None  # seconds since 1970
    run: str = ""  # a trial or training step
    turn: int = 0  # number in the conversation
    text: str = ""  # of an output of token ids, to check the tokenizer
    model: str = ""  # writer of the output
    finished: bool = True  # False: the output was cut off, so no end of sequence follows
    continued: bool = False  # the output continues the prompt's last message
    where: FilePlace | None = None
    agent: str = ""  # that recorded it in a session


class SkippedRecord(NamedTuple):
    where: FilePlace
    reason: str  # counted by its text before ": " or ", got "
    hint: str = ""

    @classmethod
    def of(cls, where: FilePlace, error: InputError) -> SkippedRecord:
        return cls(where, str(error).removeprefix(f"{where}: "), error.hint)


Found = LoggedRequest | SkippedRecord
Reader = Callable[[Iterator[Line]], Iterator[Found]]
NO_TEXT = "the answer has no text"
FAILED = "the request failed"
NO_PROMPT = "an answer whose prompt the log does not hold"


def skip_bad(where: FilePlace, found: Iterator[LoggedRequest | str]) -> Iterator[Found]:
    """Yield the requests of one record; turn reasons (str) and errors into SkippedRecord."""
    try:
        for each in found:
            if isinstance(each, str):
                yield SkippedRecord(where, each)
            elif len(each.output):
                each.where = where
                yield each
            else:
                yield SkippedRecord(where, NO_TEXT)
    except InputError as error:
        yield SkippedRecord.of(where, error)
    except BadTurnError as error:
        yield SkippedRecord(where, str(error), f"Use messages with a role ({', '.join(ROLES)}).")
    except RecursionError:
        yield SkippedRecord(where, "the record nests too deeply")


def record_reader(read: Callable[[FilePlace, Any], Iterator[LoggedRequest | str]]) -> Reader:
    """Make a log reader from a function that reads one record."""

    @wraps(read)
    def reader(lines: Iterator[Line]) -> Iterator[Found]:
        for where, body in lines:
            yield from skip_bad(where, read(where, body))

    return reader


def require_field(where: FilePlace, body: Any, key: str, kind: type) -> Any:
    """Return body[key], a list, str or dict. Raises BadRecordError for anything else."""
    kinds: dict[type, str] = {list: "a list", str: "a text", dict: "an object"}
    if not isinstance(body, dict) or key not in body:
        raise BadRecordError(
            f"{where}: `{key}` must be {kinds[kind]}, got nothing",
            f"Write `{key}` as {kinds[kind]}.",
        )
    if not isinstance(body[key], kind):
        raise BadRecordError(
            f"{where}: `{key}` must be {kinds[kind]}, got {type(body[key]).__name__}"
        )
    return body[key]


def plain_text(value: Any) -> str:
    """Return a value as text, 1.0 as 1."""
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53
    return str(int(value) if is_whole else value)


def text_of(body: Mapping[str, Any], *keys: str) -> str:
    """Return the first value of `keys` that is not null as a text; "" without one."""
    return next((plain_text(body[key]) for key in keys if body.get(key) is not None), "")


def token_ids(value: Any) -> TokenArray | None:
    """Return a list of non-negative integers as int32[n]; None for anything else."""
    if not isinstance(value, list) or not all(type(n) is int for n in value):
        return None
    try:
        ids = np.array(value, np.int32)
    except OverflowError:
        return None
    return ids if ids.min(initial=0) >= 0 else None


def parse_embedded(where: FilePlace, value: Any, fits: Callable[[Any], bool]) -> Any:
    """Return the JSON that an exporter wrote as a string if `fits` accepts it, else the value."""
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


def parse_time(value: Any) -> float | None:
    """Return seconds since 1970 of ISO 8601, or of s, ms, us or ns (also as text), else None."""
    time = _finite_number(value)
    if time is None:
        return _parse_iso(value) if isinstance(value, str) else None
    while time > 1e11:  # the year 5138 in seconds, 1973 in milliseconds
        time /= 1000
    return time


def _parse_iso(text: str) -> float | None:
    try:
        moment = datetime.fromisoformat(text[:64].strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def parse_integer(value: Any) -> int | None:
    number = _finite_number(value)
    if number is None or not number.is_integer() or abs(number) >= 1 << 62:
        return None
    return int(number)


def _finite_number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value[:64] if isinstance(value, str) else value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


CUT_OFF = {
    "length", "max_tokens", "max_output_tokens", "model_length", "limit", "incomplete", "abort",
    "aborted", "cancelled", "canceled", "content_filter", "error", "stop_sequence",
}  # fmt: skip


def is_cut_off(reason: Any) -> bool:
    """Return whether a finish reason means that the model did not end its answer."""
    if isinstance(reason, dict):
        if isinstance(reason.get("matched"), str):  # SGLang: a stop string, not an end's id
            return True
        reason = reason.get("type")
    return isinstance(reason, str) and reason.lower() in CUT_OFF


# Conversations.


def conversation_requests(
    where: FilePlace,
    messages: Any,
    *,
    tools: Any = None,
    name: str = "",
    kind: str = "all",
    run: str = "",
    model: str = "",
    time: float | None = None,
    finished: bool = True,
) -> Iterator[LoggedRequest | str]:
    """Yield a request per message of the assistant; its prompt is all earlier messages.

    `time`: of messages without their own. `finished`: whether the last answer was not cut off.
    """
    conversation = ConversationReader(where, tools)
    turn = 0
    for number, item in enumerate(_require_list(messages), 1):
        if isinstance(item, dict) and item.get("type") == "reasoning":
            where.count_unread("reasoning in separate items")
            continue
        written = assistant_text(where, item)
        if written:
            extra = item.get("extra")
            own = parse_time(extra.get("timestamp")) if isinstance(extra, dict) else None
            yield LoggedRequest(
                conversation.messages(), written, name, kind,
                time=time if own is None else own,
                run=run, turn=turn, model=model,
                finished=finished or number < len(messages),
            )  # fmt: skip
            turn += 1
        elif written is not None:
            yield NO_TEXT
        conversation.add(item)


def read_messages(where: FilePlace, messages: Any, tools: Any = None) -> list[Message]:
    conversation = ConversationReader(where, tools)
    conversation.add_all(messages)
    return list(conversation.messages())


class ConversationReader:
    """A converter of messages to the three roles that every chat template knows.

    Descriptions of tools join the system message; consecutive tool results become one message.
    """

    def __init__(self, where: FilePlace, tools: Any = None) -> None:
        self._where = where
        self._tools = tools if isinstance(tools, list) else []
        self._messages: list[Message] = []
        self._results: list[str] = []  # tool results, not yet a message

    def add(self, item: Any) -> None:
        """Append a logged message. Raises BadRecordError or BadTurnError."""
        if _is_response(item):
            self.append(ASSISTANT, response_text(self._where, item["output"]))
            return
        role = role_of(item)
        if item.get("type") == "reasoning":
            return  # templates drop the reasoning of earlier turns
        text = turn_text(item, self._where.unread)
        if role in RESULT_ROLES:
            self._results.append(tool_result_text(text))
        else:
            self.append(ROLES[role], text)

    def add_all(self, items: Any) -> None:
        for item in _require_list(items):
            self.add(item)

    def append(self, role: str, text: str) -> None:
        self._append_results()
        if self._tools and not self._messages:
            tools = "\n".join(["<tools>", *map(to_json, self._tools), "</tools>"])
            if role == SYSTEM:
                text = f"{text}\n\n{tools}" if text else tools
            else:
                self._messages.append(Message(SYSTEM, tools))
        self._messages.append(Message(role, text))

    def messages(self) -> MessagePrefix:
        self._append_results()
        return MessagePrefix(self._messages, len(self._messages))

    def _append_results(self) -> None:
        results, self._results = self._results, []
        if results:
            self.append(USER, "\n".join(results))


def assistant_text(where: FilePlace, message: Any) -> str | None:
    """Return what the model wrote (reasoning, text, tool calls); None for another role."""
    if _is_response(message):
        return response_text(where, message["output"])
    if ROLES[role_of(message)] != ASSISTANT:
        return None
    return written_text(message, where.unread)


def message_text(where: FilePlace, message: Mapping[str, Any]) -> str:
    if "content" not in message:
        message = {"content": None, **message}
    return written_text(message, where.unread)


def response_text(where: FilePlace, items: Any) -> str:
    parts = []
    for item in _require_list(items):
        kind = item.get("type") if isinstance(item, dict) else None
        if kind == "message":
            parts.append(content_text(item.get("content"), where.unread))
        elif kind in TOOL_CALL_ITEMS:
            parts.append(tool_call_text(item))
        elif kind == "reasoning":
            thought = content_text(item.get("content") or item.get("summary"), where.unread)
            parts.append(thought and f"<think>\n{thought}\n</think>\n")
    return "\n".join(filter(None, parts))


def _is_response(message: Any) -> bool:
    """Return whether this is a whole Responses object, as mini-swe-agent logs it."""
    return isinstance(message, dict) and "output" in message and message.get("object") == "response"


def _require_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise BadRecordError(
            f"messages must be a list, got {type(value).__name__}",
            "Use objects with role and content.",
        )
    return value
