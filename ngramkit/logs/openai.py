"""Requests and answers of OpenAI's API and of others, as batches and gateways keep them.

A batch is two files, joined by `custom_id` (vLLM's run_batch writes the same):

    {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": ...}}
    {"custom_id": "a", "response": {"status_code": 200, "body": {"choices": ...}}, "error": null}

If several files of requests use one `custom_id`, answers belong to the file of the same name but
for words such as input and output; else they are left out.

A gateway's log has both in one object: `request` and `response`, or `messages` (`prompt`, `input`)
beside `response`, which is a whole answer; either may be JSON in a text. Answers may also be
Anthropic's messages and those of llama-server's /completion, TGI's /generate, SGLang's /generate
and Ollama. OpenHands writes one file of that kind for each call (`log_completions`); where it kept
the model's own text (`raw_response`), that counts.

Read from: All-Hands-AI/OpenHands openhands/llm/llm.py; OpenHands/software-agent-sdk@1706605
openhands-sdk/openhands/sdk/llm/utils/telemetry.py; OpenAI's reference of the batch, chat,
completion and response objects; Anthropic's of messages; the servers' API pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ngramkit.corpus.shapes import ASSISTANT, SYSTEM, content_text
from ngramkit.logs.caches import FROM_CACHE, is_from_cache
from ngramkit.logs.json_text import unfolded
from ngramkit.logs.request import (
    FAILED,
    NO_PROMPT,
    NO_TEXT,
    FilePlace,
    Found,
    LeftOut,
    Line,
    LoggedRequest,
    Prompt,
    Talk,
    attempt,
    is_cut,
    number_of,
    response_text,
    seconds,
    token_ids,
    written_by_model,
)

# What a request asks with, and the kind that it is.
ASKED = {
    "messages": "chat", "prompt": "completion", "input": "response", "inputs": "completion",
    "text": "completion",
}  # fmt: skip
OUTSIDE = ("messages", "prompt", "input", "inputs")  # keys that name a request beside `response`
RAW = ("prompt", "inputs", "text")  # of texts, not of conversations
STATUS = ("status_code", "statusCode", "status")
OUTCOMES = {*STATUS, "error", "type"}
ERROR = 400  # status codes from here on are errors
# Words in which the names of a batch's two files differ.
SIDES = re.compile(r"(?:in|out)puts?|requests?|responses?|results?|answers?|completed|[\W_]+")
NO_REQUEST = "neither request nor response"
SHARED = "its custom_id is that of several requests"
ECHO = "the answer may repeat its prompt (echo)"
CHUNK = "a chunk of a streamed answer: log whole answers"
Object = Mapping[str, Any]
Requests = list[tuple[Path, Any]]  # the file that holds it, and its body


def is_openai(body: Object) -> bool:
    """Return whether it is a line of a batch, or a request with its response."""
    return _is_batch(body) or _has_both(body)


def _is_batch(body: Object) -> bool:
    """Return whether it is a line of a batch's input or output."""
    return "custom_id" in body and ("body" in body or "response" in body)


def _has_both(body: Object) -> bool:
    response = body.get("response")
    if isinstance(response, str) and response.lstrip()[:1] not in ("{", "["):
        return "request" in body or "messages" in body  # else the columns must be named
    asked = "request" in body or any(key in body for key in OUTSIDE)
    return asked and isinstance(response, dict | list | str)


def read_openai(lines: Iterator[Line]) -> Iterator[Found]:
    """Yield each answer with its request; of a batch, those that are not sure of it last."""
    asked: dict[str, Requests] = {}
    waiting: list[tuple[FilePlace, str, Object]] = []
    for where, body in lines:
        if not _is_batch(body):
            found = _pair(where, body) if _has_both(body) else iter([NO_REQUEST])
            yield from attempt(where, found)
            continue
        name = str(body["custom_id"])
        if "response" not in body and "error" not in body:
            asked.setdefault(name, []).append((where.path, body.get("body")))
            continue
        response = body.get("response")
        answer = response.get("body") if isinstance(response, dict) else None
        if not isinstance(answer, dict):
            yield LeftOut(where, FAILED)
            continue
        answer = {"id": name, "response": answer}
        near = [each for each in asked.get(name, ()) if _are_near(each[0], where.path)]
        if near:
            yield from _answered(where, answer, near)
        else:
            waiting.append((where, name, answer))
    for where, name, answer in waiting:
        requests = asked.get(name, [])
        named_alike = [each for each in requests if _batch(each[0]) == _batch(where.path)]
        yield from _answered(where, answer, named_alike or requests)


def _answered(where: FilePlace, answer: Object, requests: Requests) -> Iterator[Found]:
    """Yield an answer with its request, unless different ones may be that."""
    first = requests[0][1] if requests else {}
    if any(body != first for _, body in requests):
        yield LeftOut(where, SHARED, "Read one batch at a time.")
    else:
        yield from attempt(where, _pair(where, {**answer, "request": first}))


def _are_near(one: Path, other: Path) -> bool:
    """Return whether two files are those of one batch: in one folder, and named alike."""
    return one.parent == other.parent and _batch(one) == _batch(other)


def _batch(path: Path) -> str:
    return SIDES.sub("", path.name.lower())


class Answer(NamedTuple):
    """One of the answers to a request."""

    text: str
    number: int = 0  # of those to one call
    ended_by: Any = None  # the finish reason
    stopped_at: Any = None  # the stop string


def _pair(where: FilePlace, body: Object) -> Iterator[LoggedRequest | str]:
    """Yield a request for each answer."""
    if is_from_cache(body):
        yield FROM_CACHE
        return
    response = unfolded(where, body["response"], _is_object)
    if isinstance(response, str):
        response = {"text": response}
    elif isinstance(response, list):
        chunks = [each for each in response if isinstance(each, dict)]
        response = chunks[0] if len(chunks) == 1 else {"object": "chunk"} if chunks else {}
    response, request, options = (
        value if isinstance(value, dict) else other
        for value, other in (
            (body.get("raw_response"), response if isinstance(response, dict) else {}),
            (unfolded(where, body.get("request"), _is_object), body),
            (body.get("kwargs"), {}),
        )
    )
    failed = _has_failed(body) or _has_failed(response)
    response, request = (
        each["body"] if isinstance(each.get("body"), dict) else each for each in (response, request)
    )
    if failed or _has_failed(response):
        yield FAILED
        return
    key = next((key for key in ASKED if key in request), "")
    if key not in RAW and isinstance(request.get(key), str) and request[key].startswith("["):
        request = {**request, key: unfolded(where, request[key], lambda v: isinstance(v, list))}
    answers = list(_answers(where, response))
    if not answers:
        yield _why_none(response)
    tools = request.get("tools", options.get("tools"))
    kind = body.get("category") or ("tools" if tools else ASKED.get(key, "all"))
    times = (body.get("timestamp"), body.get("startTime"), response.get("created"),
             response.get("created_at"), body.get("time"))  # fmt: skip
    time = next((t for t in map(seconds, times) if t is not None), None)
    models = (response.get("model"), request.get("model"), body.get("model"))
    model = next((each for each in models if isinstance(each, str) and each), "")
    continued = _goes_on(request, response)
    if not key:
        where.lose(NO_PROMPT)
    one: Prompt | None = None
    for answer in answers:
        several = request.get(key) if key in RAW else None
        if isinstance(several, list) and several and not isinstance(several[0], int):
            at = answer.number * len(several) // len(answers)
            prompt = _prompt(where, {key: several[min(at, len(several) - 1)]}, key, tools)
        else:
            prompt = one = _prompt(where, request, key, tools) if one is None else one
        text = answer.text
        if text and _echoes(request):
            if not isinstance(prompt, str) or not text.startswith(prompt):
                yield ECHO
                continue
            text = text[len(prompt) :]
        yield LoggedRequest(
            prompt, text, str(body.get("id", response.get("id", ""))), str(kind),
            time=time,
            model=model,
            finished=not is_cut(answer.ended_by) and not isinstance(answer.stopped_at, str),
            continued=continued,
        )  # fmt: skip


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _has_failed(body: Object) -> bool:
    """Return whether it says that the request failed: an error, or a status."""
    if body.keys().isdisjoint(OUTCOMES):
        return False
    status = next((body[key] for key in STATUS if body.get(key) is not None), None)
    number = number_of(status)
    failed = status in ("failure", "failed", "error") if number is None else number >= ERROR
    return failed or bool(body.get("error")) or body.get("type") == "error"


def _answers(where: FilePlace, response: Object) -> Iterator[Answer]:
    """Yield the answers of a response of one of the APIs."""
    choices = response.get("choices")
    choices = [c for c in choices if isinstance(c, dict)] if isinstance(choices, list) else []
    content, texts = response.get("content"), (response.get("generated_text"), response.get("text"))
    if isinstance(response.get("output"), list):  # OpenAI's Responses
        yield Answer(response_text(where, response["output"]), 0, response.get("status"))
    elif choices:
        for number, choice in enumerate(choices):
            index = choice.get("index", number)
            index = index if type(index) is int and 0 <= index < len(choices) else number
            ended, stop = choice.get("finish_reason"), choice.get("stop_reason")
            if isinstance(choice.get("message"), dict):
                yield Answer(_written(where, choice["message"]), index, ended, stop)
            elif "delta" not in choice:
                yield Answer(content_text(choice.get("text"), where.lost), index, ended, stop)
    elif isinstance(content, list):  # Anthropic's messages
        yield Answer(_written(where, response), 0, response.get("stop_reason"))
    elif isinstance(content, str):  # llama-server's /completion
        cut = response.get("stopped_limit") is True
        ended = "length" if cut else response.get("stop_type")
        yield Answer(content, 0, ended, response.get("stopping_word") or None)
    elif isinstance(response.get("message"), dict):  # Ollama's chats
        yield Answer(_written(where, response["message"]), 0, response.get("done_reason"))
    elif isinstance(response.get("response"), str):  # Ollama's completions
        yield Answer(response["response"], 0, response.get("done_reason"))
    elif (text := next((t for t in texts if isinstance(t, str)), None)) is not None:  # TGI, SGLang
        details = response.get("details") or response.get("meta_info")
        reason = details.get("finish_reason") if isinstance(details, dict) else None
        yield Answer(text, 0, reason)


def _written(where: FilePlace, message: Object) -> str:
    return written_by_model(where, {"content": None, **message, "role": ASSISTANT}) or ""


def _why_none(response: Object) -> str:
    """Return why a response has no answer."""
    choices = response.get("choices")
    streamed = isinstance(choices, list) and "delta" in str(choices[:1])[:200]
    if streamed or "chunk" in str(response.get("object")):
        return CHUNK
    if not response or choices == []:
        return NO_TEXT
    keys = ", ".join(sorted(map(str, response))[:8])
    return f"an answer in no known format: its keys are {keys}"


def _goes_on(request: Object, response: Object) -> bool:
    """Return whether the answer goes on with the request's last message."""
    messages = request.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, dict) or last.get("role") != ASSISTANT:
        return False
    return (
        request.get("continue_final_message") is True
        or last.get("prefix") is True
        or isinstance(response.get("content"), list)  # Anthropic's always does
    )


def _echoes(request: Object) -> bool:
    """Return whether the answer begins with the prompt."""
    parameters = request.get("parameters")
    whole = isinstance(parameters, dict) and parameters.get("return_full_text") is True
    return request.get("echo") is True or whole


def _prompt(where: FilePlace, request: Object, key: str, tools: Any) -> Prompt:
    asked: Any = request.get(key, "")
    if isinstance(asked, str):
        if key != "input":
            return asked
        asked = [{"role": "user", "content": asked}]
    ids = token_ids(asked)
    if ids is not None and len(ids):
        return ids
    talk = Talk(where, tools)
    instructions = request.get("instructions", request.get("system"))
    if instructions:
        talk.say(SYSTEM, content_text(instructions, where.lost))
    talk.add_all(asked)
    return talk.so_far()
