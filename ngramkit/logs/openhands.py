"""OpenHands' trajectories: a JSON list of events, or an evaluation's output.jsonl with `history`.

    {"id": 4, "timestamp": "...", "source": "agent", "action": "run", "args": {"thought": ...},
     "tool_call_metadata": {"model_response": {"id": ..., "choices": [...]}, ...}}
    {"id": 5, "source": "agent", "observation": "run", "content": "...", ...}

What the model wrote is its `model_response`; several actions may share one. Where there is none
(models without tool calls) it is the action's message or thought and command, so not to the letter.
`log_completions` keeps calls whole: those files are read as OpenAI's.

Read from: All-Hands-AI/OpenHands openhands/events/serialization/event.py at 04e2840.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ngramkit.corpus.chat import Message
from ngramkit.logs.request import (
    PLACE,
    Found,
    Line,
    LoggedRequest,
    file_name,
    seconds,
    take,
    text_of,
    with_tools,
    written_by_model,
)

COMMANDS = ("command", "code", "path", "url", "content")  # of an action, in `args`


def matches(body: Mapping[str, Any]) -> bool:
    return _is_event(body) or (
        isinstance(body.get("history"), list)
        and len(body["history"]) > 0
        and isinstance(body["history"][0], dict)
        and _is_event(body["history"][0])
    )


def _is_event(body: Mapping[str, Any]) -> bool:
    return "source" in body and ("action" in body or "observation" in body)


def read(lines: Iterator[Line]) -> Iterator[Found]:
    talk = _Conversation("")
    last = ""
    for where, body in lines:
        if "history" in body:
            events = take(where, body, "history", list, "a list")
            talk = _Conversation(str(body.get("instance_id", "")))
        else:
            events = [body]
            file = PLACE.sub("", where)
            if file != last:
                talk, last = _Conversation(file_name(where)), file
        for event in events:
            if isinstance(event, dict):
                yield from talk.take_in(where, event)


class _Conversation:
    """The messages that the model has read so far."""

    def __init__(self, name: str) -> None:
        self._name, self._turn = name, 0
        self._messages: list[Message] = []
        self._response: Any = None  # the id of the one that was taken in last

    def take_in(self, where: str, event: Mapping[str, Any]) -> Iterator[LoggedRequest]:
        """Add an event; yield a request where the model wrote it."""
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        if "observation" in event:
            text = text_of(where, event.get("content"))
            self._messages.append(Message("user", f"<tool_response>\n{text}\n</tool_response>"))
        elif event.get("action") == "system":
            system = [Message("system", text_of(where, args.get("content")))]
            self._messages += with_tools(system, args.get("tools"))
        elif event.get("source") == "user":
            self._messages.append(Message("user", text_of(where, args.get("content"))))
        elif event.get("source") == "agent":
            written = self._written(where, event, args)
            if written:
                prompt, time = tuple(self._messages), seconds(event.get("timestamp"))
                self._messages.append(Message("assistant", written))
                yield LoggedRequest(
                    prompt, written, self._name, "openhands", time=time, turn=self._turn
                )
                self._turn += 1

    def _written(self, where: str, event: Mapping[str, Any], args: Mapping[str, Any]) -> str:
        told = event.get("tool_call_metadata")
        response = told.get("model_response") if isinstance(told, dict) else None
        if isinstance(response, dict) and response.get("choices"):
            if response.get("id") is not None and response["id"] == self._response:
                return ""  # of an earlier action
            self._response = response.get("id")
            choice = response["choices"][0] if isinstance(response["choices"], list) else {}
            message = choice.get("message") if isinstance(choice, dict) else None
            if isinstance(message, dict):
                whole = {"content": None, **message, "role": "assistant"}
                return written_by_model(where, whole) or ""
        parts = [args.get("thought"), *(args.get(key) for key in COMMANDS)]
        return "\n".join(part for part in parts if isinstance(part, str) and part)
