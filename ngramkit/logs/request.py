"""One request of a log, and the few ways in which programs write its parts down.

A conversation becomes messages of the three roles that every chat template knows; how a turn
becomes text is in `corpus.shapes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ngramkit.basics.errors import BadRecordError, InputError
from ngramkit.corpus.chat import Message
from ngramkit.corpus.shapes import (
    ASSISTANT,
    ITEMS,
    RESULTS,
    ROLES,
    SYSTEM,
    USER,
    BadTurnError,
    Lost,
    as_json,
    content_text,
    result_text,
    role_of,
    tool_call_text,
    turn_text,
    written_text,
)
from ngramkit.drafters.base import TokenArray

Prompt = str | Sequence[Message] | TokenArray
MILLISECONDS = 1e11  # a larger time since 1970 is in milliseconds, microseconds or nanoseconds


class FilePlace(NamedTuple):
    """The place of an object or a line in a file: "FILE, line 3", or the whole file."""

    path: Path
    unit: str = ""  # "line" or "item"
    number: int = 0
    lost: Lost | None = None  # counts what is not read of the records of a log

    def __str__(self) -> str:
        return f"{self.path}, {self.unit} {self.number}" if self.unit else str(self.path)

    def lose(self, what: str) -> None:
        """Count a part of a record that is not read."""
        if self.lost is not None:
            self.lost[what] += 1


Line = tuple[FilePlace, Any]  # an object of JSON, or a line's text


@dataclass(frozen=True, eq=False)
class LoggedRequest:
    """A prompt and what a model wrote after it; ids, int32[n], are of the served model."""

    prompt: Prompt
    output: str | TokenArray
    name: str = ""  # "" if the log has none
    kind: str = "all"
    references: tuple[str, ...] = ()  # texts that the output was likely to repeat
    time: float | None = None  # seconds since 1970
    run: str = ""  # of the same tasks: a trial, a step of training
    turn: int = 0  # of a conversation
    text: str = ""  # a part of the output, if that is ids: to see whose ids they are
    model: str = ""  # that wrote the output
    finished: bool = True  # False: the output was cut, no end of sequence follows
    continued: bool = False  # the output goes on within the prompt's last message
    where: FilePlace | None = None


class LeftOut(NamedTuple):
    """A record, or a request of one, that is not read."""

    where: FilePlace
    why: str  # up to the first colon the same for all records of the kind
    hint: str = ""

    @classmethod
    def of(cls, where: FilePlace, error: InputError) -> LeftOut:
        return cls(where, str(error).removeprefix(f"{where}: "), error.hint)


Found = LoggedRequest | LeftOut
Reader = Callable[[Iterator[Line]], Iterator[Found]]
NO_TEXT = "the answer has no text"
FAILED = "the request failed"
NO_PROMPT = "an answer whose prompt the log does not hold"
KINDS: dict[type, str] = {list: "a list", str: "a text", dict: "an object"}  # of JSON


def attempt(where: FilePlace, found: Iterator[LoggedRequest | str]) -> Iterator[Found]:
    """Yield the requests of one record; for a text, or if the record is bad, what is left out."""
    try:
        for each in found:
            if isinstance(each, str):
                yield LeftOut(where, each)
            elif len(each.output):
                object.__setattr__(each, "where", where)  # replace() takes as long as the rest
                yield each
            else:
                yield LeftOut(where, NO_TEXT)
    except InputError as error:
        yield LeftOut.of(where, error)
    except BadTurnError as error:
        yield LeftOut(where, str(error), f"Use messages with a role ({', '.join(ROLES)}).")
    except RecursionError:
        yield LeftOut(where, "the record nests too deeply")


def by_record(read: Callable[[FilePlace, Any], Iterator[LoggedRequest | str]]) -> Reader:
    """Make the reader of a log of a function that reads one record."""

    @wraps(read)
    def reader(lines: Iterator[Line]) -> Iterator[Found]:
        for where, body in lines:
            yield from attempt(where, read(where, body))

    return reader


def take(where: FilePlace, body: Any, key: str, kind: type) -> Any:
    """Return body[key]. Raises BadRecordError if it is missing or not of the `kind`, of KINDS."""
    if not isinstance(body, dict) or key not in body:
        raise BadRecordError(f"{where}: no `{key}`", f"It must be {KINDS[kind]}.")
    if not isinstance(body[key], kind):
        raise BadRecordError(f"{where}: `{key}` is not {KINDS[kind]}")
    return body[key]


def token_ids(value: Any) -> TokenArray | None:
    """Return token ids, int32[n], of a list of whole numbers that may be some; else None."""
    if not isinstance(value, list) or not all(type(n) is int for n in value):
        return None
    try:
        ids = np.array(value, np.int32)
    except OverflowError:
        return None
    return ids if ids.min(initial=0) >= 0 else None


def seconds(value: Any) -> float | None:
    """Return a time as seconds since 1970: of a number or a text with one, in any unit, or of an
    ISO 8601 text; None for anything else.

    >>> seconds("2026-11-24T12:00:00Z"), seconds(1795521600000), seconds("1795521600"), seconds("x")
    (1795521600.0, 1795521600.0, 1795521600.0, None)
    """
    time = _number(value)
    if time is None:
        return _moment(value) if isinstance(value, str) else None
    while time > MILLISECONDS:
        time /= 1000
    return time


def _moment(text: str) -> float | None:
    try:
        moment = datetime.fromisoformat(text[:64].strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def number_of(value: Any) -> int | None:
    """Return a whole number, of a number or a text with one; None for anything else.

    >>> number_of("2"), number_of(2.0), number_of("two")
    (2, 2, None)
    """
    number = _number(value)
    if number is None or not number.is_integer() or abs(number) >= 1 << 62:
        return None
    return int(number)


def _number(value: Any) -> float | None:
    """Return the finite number that a value is, or that a text holds; else None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value[:64] if isinstance(value, str) else value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def is_cut(reason: Any) -> bool:
    """Return whether an answer with this finish reason ended before the model's own end.

    >>> is_cut("length"), is_cut({"type": "stop"}), is_cut(None)
    (True, False, False)
    """
    reason = reason.get("type") if isinstance(reason, dict) else reason
    return isinstance(reason, str) and reason.lower() in CUT


CUT = {
    "length", "max_tokens", "max_output_tokens", "model_length", "limit", "incomplete", "abort",
    "aborted", "cancelled", "canceled", "content_filter", "error", "stop_sequence",
}  # fmt: skip


# Messages.


class Before(Sequence[Message]):
    """The first messages of a conversation that goes on: they are shared, not copied."""

    def __init__(self, messages: list[Message]) -> None:
        self.shared, self._count = messages, len(messages)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self.shared[i] for i in range(*at.indices(self._count))]
        return self.shared[range(self._count)[at]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


def requests_of(
    where: FilePlace,
    messages: Any,
    *,
    tools: Any = None,
    name: str = "",
    kind: str = "all",
    run: str = "",
) -> Iterator[LoggedRequest | str]:
    """Yield a request for each message that the assistant wrote, after all messages before it."""
    talk = Talk(where, tools)
    turn = 0
    for item in _listed(messages):
        if isinstance(item, dict) and item.get("type") == "reasoning":
            where.lose("thoughts that stand in an item of their own")
            continue
        written = written_by_model(where, item)
        if written:
            extra = item.get("extra")
            time = seconds(extra.get("timestamp")) if isinstance(extra, dict) else None
            yield LoggedRequest(
                talk.so_far(), written, name, kind, time=time, run=run, turn=turn
            )  # fmt: skip
            turn += 1
        elif written is not None:
            yield NO_TEXT
        talk.add(item)


def messages_of(where: FilePlace, messages: Any, tools: Any = None) -> list[Message]:
    """Return a conversation's messages, with the tools after the system's message."""
    talk = Talk(where, tools)
    talk.add_all(messages)
    return list(talk.so_far())


class Talk:
    """A conversation that is read message by message.

    The tools' descriptions join the system's message. What tools returned to one turn is one
    message, as templates want it.
    """

    def __init__(self, where: FilePlace, tools: Any = None) -> None:
        self._where = where
        self._tools = tools if isinstance(tools, list) else []
        self._messages: list[Message] = []
        self._results: list[str] = []

    def add(self, item: Any) -> None:
        """Append a message of a log. Raises BadRecordError if it is not one."""
        if _is_response(item):
            self.say(ASSISTANT, response_text(self._where, item["output"]))
            return
        role = role_of(item)
        if item.get("type") == "reasoning":
            return  # templates leave earlier thoughts out
        text = turn_text(item, self._where.lost)
        if role in RESULTS:
            self._results.append(result_text(text))
        else:
            self.say(ROLES[role], text)

    def add_all(self, items: Any) -> None:
        """Append a list of messages. Raises BadRecordError if it is not one."""
        for item in _listed(items):
            self.add(item)

    def say(self, role: str, text: str) -> None:
        """Append a message of one of the three roles."""
        self._end_results()
        if not self._messages and self._tools:
            tools = "\n".join(["<tools>", *map(as_json, self._tools), "</tools>"])
            if role == SYSTEM:
                text = f"{text}\n\n{tools}" if text else tools
            else:
                self._messages.append(Message(SYSTEM, tools))
        self._messages.append(Message(role, text))

    def so_far(self) -> Before:
        """Return the messages up to here."""
        self._end_results()
        return Before(self._messages)

    def _end_results(self) -> None:
        results, self._results = self._results, []
        if results:
            self.say(USER, "\n".join(results))


def written_by_model(where: FilePlace, message: Any) -> str | None:
    """Return what the model wrote for an assistant's message, its reasoning first; None for another
    role."""
    if _is_response(message):
        return response_text(where, message["output"])
    if ROLES[role_of(message)] != ASSISTANT:
        return None
    return written_text(message, where.lost)


def response_text(where: FilePlace, items: Any) -> str:
    """Return what the model wrote, of the `output` of OpenAI's Responses API."""
    parts = []
    for item in _listed(items):
        kind = item.get("type") if isinstance(item, dict) else None
        if kind == "message":
            parts.append(content_text(item.get("content"), where.lost))
        elif kind in ITEMS:
            parts.append(tool_call_text(item))
        elif kind == "reasoning":
            thought = content_text(item.get("content") or item.get("summary"), where.lost)
            parts.append(thought and f"<think>\n{thought}\n</think>\n")
    return "\n".join(filter(None, parts))


def _is_response(message: Any) -> bool:
    """Return whether it is a whole answer of the Responses API, as mini-swe-agent keeps them."""
    return isinstance(message, dict) and "output" in message and message.get("object") == "response"


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise BadRecordError(
            f"messages must be a list, got {type(value).__name__}",
            "Use objects with role and content.",
        )
    return value
