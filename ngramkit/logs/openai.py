"""Requests and answers of OpenAI's API, as batches and gateways keep them.

A batch is two files, joined by `custom_id` (vLLM's run_batch writes the same):

    {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": ...}}
    {"custom_id": "a", "response": {"status_code": 200, "body": {"choices": ...}}, "error": null}

A gateway's log has both in one object: `request` and `response`, or `messages` (`prompt`, `input`)
beside `response`, which is a whole answer. OpenHands writes one file of that kind for each call
(`log_completions`); where it kept the model's own text (`raw_response`), that counts.

Read from: All-Hands-AI/OpenHands openhands/llm/llm.py; OpenHands/software-agent-sdk@1706605
openhands-sdk/openhands/sdk/llm/utils/telemetry.py; OpenAI's reference of the batch, chat,
completion and response objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ngramkit.corpus.chat import Message
from ngramkit.logs.request import (
    NO_TEXT,
    FilePlace,
    Found,
    Line,
    LoggedRequest,
    Prompt,
    is_ids,
    messages_of,
    response_text,
    seconds,
    text_of,
    with_tools,
    written_by_model,
)

ASKED = ("messages", "prompt", "input")  # of a request
KINDS = {"messages": "chat", "prompt": "completion", "input": "response"}


def is_openai(body: Mapping[str, Any]) -> bool:
    """Return whether it is a line of a batch, or a request with its response."""
    return _is_batch(body) or _has_both(body)


def _is_batch(body: Mapping[str, Any]) -> bool:
    """Return whether it is a line of a batch's input or output."""
    return "custom_id" in body and ("body" in body or "response" in body)


def _has_both(body: Mapping[str, Any]) -> bool:
    asked = isinstance(body.get("request"), dict) or any(key in body for key in ASKED)
    return asked and isinstance(body.get("response"), dict)


def read_openai(lines: Iterator[Line]) -> Iterator[Found]:
    """Yield each answer with its request; of a batch, answers without one last."""
    asked: dict[str, Mapping[str, Any]] = {}
    waiting: list[tuple[FilePlace, str, Mapping[str, Any]]] = []
    for where, body in lines:
        if not _is_batch(body):
            yield from _pair(where, body) if _has_both(body) else ["neither request nor response"]
            continue
        name = str(body["custom_id"])
        if "response" not in body and "error" not in body:
            request = body.get("body")
            asked[name] = request if isinstance(request, dict) else {}
            continue
        response = body.get("response")
        answer = response.get("body") if isinstance(response, dict) else None
        if not isinstance(answer, dict):
            yield "the request failed"
        elif name in asked:
            yield from _pair(where, {"id": name, "request": asked[name], "response": answer})
        else:
            waiting.append((where, name, answer))
    for where, name, answer in waiting:
        request = asked.get(name, {})
        yield from _pair(where, {"id": name, "request": request, "response": answer})


def _pair(where: FilePlace, body: Mapping[str, Any]) -> Iterator[Found]:
    """Yield a request for each choice of an answer."""
    response, request, options = (
        value if isinstance(value, dict) else other
        for value, other in (
            (body.get("raw_response"), body["response"]),
            (body.get("request"), body),
            (body.get("kwargs"), {}),
        )
    )
    response, request = (
        each["body"] if isinstance(each.get("body"), dict) else each for each in (response, request)
    )
    name = str(body.get("id", response.get("id", "")))
    key = next((key for key in ASKED if key in request), "")
    tools = request.get("tools", options.get("tools"))
    kind = body.get("category") or ("tools" if tools else KINDS.get(key, "all"))
    times = (body.get("timestamp"), body.get("startTime"), response.get("created"),
             response.get("created_at"), body.get("time"))  # fmt: skip
    time = next((t for t in map(seconds, times) if t is not None), None)
    answers = [pair for pair in _answers(where, request, response, key, tools) if pair[1]]
    for prompt, output in answers:
        yield LoggedRequest(prompt, output, name, str(kind), time=time)
    if not answers:
        yield NO_TEXT


def _answers(
    where: FilePlace, request: Mapping[str, Any], response: Mapping[str, Any], key: str, tools: Any
) -> Iterator[tuple[Prompt, str]]:
    """Yield the prompt and the text of each choice."""
    if isinstance(response.get("output"), list):
        yield _prompt(where, request, key, tools), response_text(where, response["output"])
    choices = response.get("choices")
    choices = [c for c in choices if isinstance(c, dict)] if isinstance(choices, list) else []
    several = request.get("prompt") if key == "prompt" else None
    for number, choice in enumerate(choices):
        one = request
        if isinstance(several, list) and several and not is_ids(several):
            at = choice.get("index", number)
            at = at if type(at) is int and 0 <= at < len(choices) else number
            one = {"prompt": several[min(at * len(several) // len(choices), len(several) - 1)]}
        if isinstance(choice.get("message"), dict):
            text = written_by_model(
                where, {"role": "assistant", "content": None, **choice["message"]}
            )
        else:
            text = text_of(where, choice.get("text"))
        yield _prompt(where, one, key, tools), text or ""


def _prompt(where: FilePlace, request: Mapping[str, Any], key: str, tools: Any) -> Prompt:
    asked: Any = request.get(key, "")
    if isinstance(asked, str):
        if key != "input":
            return asked
        asked = [{"role": "user", "content": asked}]
    if is_ids(asked):
        ids: list[int] = asked
        return ids
    instructions = request.get("instructions")
    before = [Message("system", instructions)] if isinstance(instructions, str) else []
    return with_tools([*before, *messages_of(where, asked)], tools)
