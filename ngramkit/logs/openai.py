"""Requests and answers of OpenAI's API and of other APIs, as batches and gateways store them.

A batch is two files, joined by `custom_id`:

    {"custom_id": "a", "url": "/v1/chat/completions", "body": {"messages": ...}, ...}
    {"custom_id": "a", "response": {"status_code": 200, "body": {"choices": ...}}, "error": null}

If request files share a `custom_id`, an answer belongs to the file whose name differs from its
own only by words such as input and output.

A gateway writes `response` next to `request` or the request's own fields. Either may be JSON
inside a string. OpenHands' `raw_response`, the model's own text, takes precedence.

Source: All-Hands-AI/OpenHands openhands/llm/llm.py; OpenHands/software-agent-sdk@1706605
openhands-sdk/openhands/sdk/llm/utils/telemetry.py; the servers' API references.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ngramkit.corpus.turns import ASSISTANT, SYSTEM, content_text
from ngramkit.drafters.references import REFERENCE_KEY
from ngramkit.logs.caches import FROM_CACHE, is_from_cache
from ngramkit.logs.request import (
    FAILED,
    NO_PROMPT,
    NO_TEXT,
    ConversationReader,
    FilePlace,
    Found,
    Line,
    LoggedRequest,
    Prompt,
    SkippedRecord,
    is_cut_off,
    message_text,
    parse_embedded,
    parse_integer,
    parse_time,
    response_text,
    skip_bad,
    text_of,
    token_ids,
)

# Prompt field of a request -> kind of the request.
PROMPT_KINDS = {
    "messages": "chat", "prompt": "completion", "input": "response", "inputs": "completion",
    "text": "completion",
}  # fmt: skip
REQUEST_KEYS = {"request", "messages", "prompt", "input", "inputs"}  # any next to `response`
TEXT_PROMPTS = ("prompt", "inputs", "text")
STATUS = ("status_code", "statusCode", "status")
OUTCOME = {*STATUS, "error", "type"}
Object = Mapping[str, Any]
BatchRequest = tuple[Path, Any]  # file, body


def is_openai(body: Object) -> bool:
    return _is_batch(body) or _has_request_and_response(body)


def _is_batch(body: Object) -> bool:
    return "custom_id" in body and ("body" in body or "response" in body)


def _has_request_and_response(body: Object) -> bool:
    response = body.get("response")
    if isinstance(response, str) and response.lstrip()[:1] not in ("{", "["):
        # Plain text: `prompt` and `response` may be any columns, so users must name them.
        return "request" in body or "messages" in body
    return isinstance(response, dict | list | str) and not REQUEST_KEYS.isdisjoint(body)


def read_openai(lines: Iterator[Line]) -> Iterator[Found]:
    """Yield each answer with its request; batch answers without an earlier match come last."""
    asked: dict[str, list[BatchRequest]] = {}
    waiting: list[tuple[FilePlace, str, Object]] = []
    for where, body in lines:
        if not _is_batch(body):
            if _has_request_and_response(body):
                yield from skip_bad(where, _read_exchange(where, body))
            else:
                yield SkippedRecord(where, "neither request nor response")
            continue
        name = str(body["custom_id"])
        if "response" not in body and "error" not in body:
            asked.setdefault(name, []).append((where.path, body.get("body")))
            continue
        response = body.get("response")
        answer = response.get("body") if isinstance(response, dict) else None
        if not isinstance(answer, dict):
            yield SkippedRecord(where, FAILED)
            continue
        answer = {"id": name, "response": answer}
        near = [each for each in asked.get(name, ()) if _same_batch(each[0], where.path)]
        if near:
            yield from _join_pieces(where, answer, near)
        else:
            waiting.append((where, name, answer))
    for where, name, answer in waiting:
        requests = asked.get(name, [])
        named_alike = [each for each in requests if _batch_name(each[0]) == _batch_name(where.path)]
        yield from _join_pieces(where, answer, named_alike or requests)


def _join_pieces(where: FilePlace, answer: Object, requests: list[BatchRequest]) -> Iterator[Found]:
    first = requests[0][1] if requests else {}
    if any(body != first for _, body in requests):
        reason = "its custom_id is that of several requests"
        yield SkippedRecord(where, reason, "Read one batch at a time.")
    else:
        yield from skip_bad(where, _read_exchange(where, {**answer, "request": first}))


def _same_batch(one: Path, other: Path) -> bool:
    return one.parent == other.parent and _batch_name(one) == _batch_name(other)


# Words that differ between the names of a batch's two files.
REQUEST_OR_RESPONSE = re.compile(
    r"(?:in|out)puts?|requests?|responses?|results?|answers?|completed|[\W_]+"
)


def _batch_name(path: Path) -> str:
    return REQUEST_OR_RESPONSE.sub("", path.name.lower())


class Answer(NamedTuple):
    text: str
    number: int = 0  # among the answers
    finish_reason: Any = None
    stop_string: Any = None


def _read_exchange(where: FilePlace, body: Object) -> Iterator[LoggedRequest | str]:
    """Yield a request per answer, or the reason for none."""
    if is_from_cache(body):
        yield FROM_CACHE
        return
    response = _parse_response(where, body)
    request = parse_embedded(where, body.get("request"), _is_object)
    if not isinstance(request, dict):
        request = body
    if _has_failed(body) or _has_failed(response):
        yield FAILED
        return
    if isinstance(request.get("body"), dict):
        request = request["body"]
    if isinstance(response.get("body"), dict):
        response = response["body"]
        if _has_failed(response):
            yield FAILED
            return
    answers = list(_answers_of(where, response))
    if not answers:
        yield _reason_without_answer(response)
        return
    key = next((key for key in PROMPT_KINDS if key in request), "")
    if not key:
        where.count_unread(NO_PROMPT)
    elif key not in TEXT_PROMPTS and isinstance(request[key], str) and request[key][:1] == "[":
        request = {**request, key: parse_embedded(where, request[key], _is_list)}
    tools = request.get("tools")
    if tools is None and isinstance(body.get("kwargs"), dict):
        tools = body["kwargs"].get("tools")
    name = text_of(body, "id") or text_of(response, "id")
    kind = str(body.get("category") or ("tools" if tools else PROMPT_KINDS.get(key, "all")))
    time, model = _time_of(body, response), _model_of(body, request, response)
    continued = _continues_last_message(request, response)
    several = request[key] if key in TEXT_PROMPTS and _has_many_prompts(request[key]) else None
    prompt: Prompt = "" if several else _prompt_of(where, request, key, tools)
    references = _references_of(where, request)
    for text, number, finish_reason, stop_string in answers:
        if several:
            nth = min(number * len(several) // len(answers), len(several) - 1)
            prompt = _prompt_of(where, {key: several[nth]}, key, tools)
        if text and _includes_prompt(request):
            if not isinstance(prompt, str) or not text.startswith(prompt):
                yield "the answer may repeat its prompt (echo)"
                continue
            text = text.removeprefix(prompt)
        finished = not is_cut_off(finish_reason) and not isinstance(stop_string, str)
        yield LoggedRequest(
            prompt, text, name, kind,
            references=references, time=time, model=model, finished=finished, continued=continued,
        )  # fmt: skip


def _references_of(where: FilePlace, request: Object) -> tuple[str, ...]:
    """Return the text of `prediction`, and those of REFERENCE_KEY in vLLM's and SGLang's fields."""
    prediction, given = request.get("prediction"), list[Any]()
    if isinstance(prediction, dict):
        given.append(content_text(prediction.get("content"), where.unread))
    for parameters in (request.get("vllm_xargs"), request.get("custom_params")):
        texts = parameters.get(REFERENCE_KEY, []) if isinstance(parameters, dict) else []
        given += texts if isinstance(texts, list) else [texts]
    references = tuple(text for text in given if isinstance(text, str))
    if len(references) < len(given):
        where.count_unread("references that are not texts")
    return references


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _parse_response(where: FilePlace, body: Object) -> Object:
    raw = body.get("raw_response")
    if isinstance(raw, dict):
        return raw
    response = parse_embedded(where, body["response"], _is_object)
    if isinstance(response, dict):
        return response
    if isinstance(response, str):
        return {"text": response}
    chunks = [each for each in response if isinstance(each, dict)]
    if len(chunks) == 1:
        return chunks[0]
    return {"object": "chunk"} if chunks else {}


def _has_failed(body: Object) -> bool:
    if OUTCOME.isdisjoint(body):
        return False
    status = next((body[key] for key in STATUS if body.get(key) is not None), None)
    number = parse_integer(status)
    failed = status in ("failure", "failed", "error") if number is None else number >= 400
    return failed or bool(body.get("error")) or body.get("type") == "error"


def _time_of(body: Object, response: Object) -> float | None:
    for holder, key in (
        (body, "timestamp"), (body, "startTime"), (response, "created"),
        (response, "created_at"), (body, "time"),
    ):  # fmt: skip
        if key in holder and (time := parse_time(holder[key])) is not None:
            return time
    return None


def _model_of(body: Object, request: Object, response: Object) -> str:
    for holder in (response, request, body):
        model = holder.get("model")
        if model and isinstance(model, str):
            return model
    return ""


def _answers_of(where: FilePlace, response: Object) -> Iterator[Answer]:
    choices = response.get("choices")
    choices = [c for c in choices if isinstance(c, dict)] if isinstance(choices, list) else []
    content = response.get("content")
    texts = [t for t in map(response.get, ("generated_text", "text")) if isinstance(t, str)]
    if isinstance(response.get("output"), list):  # OpenAI's Responses
        yield Answer(response_text(where, response["output"]), 0, response.get("status"))
    elif choices:
        for at, choice in enumerate(choices):
            number = choice.get("index")
            if type(number) is not int or not 0 <= number < len(choices):
                number = at
            reason = choice.get("finish_reason")
            stop = choice.get("stop_reason") or choice.get("matched_stop")  # vLLM, SGLang
            if isinstance(choice.get("message"), dict):
                yield Answer(message_text(where, choice["message"]), number, reason, stop)
            elif "delta" not in choice:
                text = content_text(choice.get("text"), where.unread)
                yield Answer(text, number, reason, stop)
    elif isinstance(content, list):  # Anthropic's messages
        yield Answer(message_text(where, response), 0, response.get("stop_reason"))
    elif isinstance(content, str):  # llama-server's /completion
        cut = response.get("stopped_limit") is True
        reason = "length" if cut else response.get("stop_type")
        yield Answer(content, 0, reason, response.get("stopping_word") or None)
    elif isinstance(response.get("message"), dict):  # Ollama's chats
        yield Answer(message_text(where, response["message"]), 0, response.get("done_reason"))
    elif isinstance(response.get("response"), str):  # Ollama's completions
        yield Answer(response["response"], 0, response.get("done_reason"))
    elif texts:  # TGI, SGLang
        details = response.get("details") or response.get("meta_info")
        reason = details.get("finish_reason") if isinstance(details, dict) else None
        yield Answer(texts[0], 0, reason)


def _reason_without_answer(response: Object) -> str:
    choices = response.get("choices")
    streamed = isinstance(choices, list) and "delta" in str(choices[:1])[:200]
    if streamed or "chunk" in str(response.get("object")):
        return "a chunk of a streamed answer: log whole answers"
    if not response or choices == []:
        return NO_TEXT
    keys = ", ".join(sorted(map(str, response))[:8])
    return f"an answer in no known format: its keys are {keys}"


def _continues_last_message(request: Object, response: Object) -> bool:
    messages = request.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, dict) or last.get("role") != ASSISTANT:
        return False
    return (
        request.get("continue_final_message") is True
        or last.get("prefix") is True
        or isinstance(response.get("content"), list)  # Anthropic's API always does
    )


def _includes_prompt(request: Object) -> bool:
    """Return whether answers begin with the prompt (`echo`, TGI's `return_full_text`)."""
    parameters = request.get("parameters")
    whole = isinstance(parameters, dict) and parameters.get("return_full_text") is True
    return request.get("echo") is True or whole


def _has_many_prompts(prompt: Any) -> bool:
    """Return whether `prompt` is a list of texts or of lists of token ids."""
    return isinstance(prompt, list) and bool(prompt) and not isinstance(prompt[0], int)


def _prompt_of(where: FilePlace, request: Object, key: str, tools: Any) -> Prompt:
    asked: Any = request.get(key, "")
    if isinstance(asked, str):
        if key != "input":
            return asked
        asked = [{"role": "user", "content": asked}]
    ids = token_ids(asked)
    if ids is not None and len(ids):
        return ids
    conversation = ConversationReader(where, tools)
    instructions = request.get("instructions", request.get("system"))
    if instructions:
        conversation.append(SYSTEM, content_text(instructions, where.unread))
    conversation.add_all(asked)
    return conversation.messages()
