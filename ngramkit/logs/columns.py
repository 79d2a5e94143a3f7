"""Any objects with a prompt and an output, by the names of their columns.

Without names these, as `ngramkit replay` has always read them:

    {"prompt": "...", "output": "..."}     with id, category, run, turn, time, model, reference
    {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", ...}]}

A prompt may be messages, an output the assistant's message. Exporters write such values as JSON in
a text: that is read too, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ngramkit.basics.errors import BadRecordError, UsageError, meant
from ngramkit.corpus.shapes import ASSISTANT, ROLES, value_at
from ngramkit.logs.caches import FROM_CACHE, is_from_cache
from ngramkit.logs.json_text import unfolded
from ngramkit.logs.request import (
    FilePlace,
    LoggedRequest,
    Reader,
    by_record,
    is_cut,
    messages_of,
    number_of,
    requests_of,
    seconds,
    take,
    token_ids,
    written_by_model,
)

Get = Callable[[str], Any]  # the value of a field
FIELDS = ("prompt", "output", "name", "kind", "reference", "time", "run", "turn", "model")
TALKS = ("messages", "conversations")  # keys of a conversation
# Besides the field's own name.
NAMES = {"name": ("question_id", "task_id", "task", "id"), "kind": ("category",)}


def is_columns(body: Mapping[str, Any]) -> bool:
    """Return whether it has the usual names."""
    talks = any(isinstance(body.get(key), list | str) for key in TALKS)
    return talks or {"prompt", "output"} <= body.keys()


@by_record
def read_columns(where: FilePlace, body: Mapping[str, Any]) -> Iterator[LoggedRequest | str]:
    """Yield the requests of an object with the usual names."""
    if is_from_cache(body):
        yield FROM_CACHE
        return
    name = str(_first(body, "name", default=""))
    kind = str(_first(body, "kind", default="all"))
    talk = next((key for key in TALKS if key in body), None)
    if "prompt" in body and "output" in body:
        yield _request(where, body, body.get, name, kind)
    elif talk is not None and "output" in body:
        yield _request(where, body, {**body, "prompt": body[talk]}.get, name, kind)
    elif talk is not None:
        body = {**body, talk: unfolded(where, body[talk], _is_messages)}
        messages = take(where, body, talk, list)
        model = body.get("model")
        model = model if isinstance(model, str) else ""
        count = 0
        for found in requests_of(where, messages, tools=body.get("tools"), name=name, kind=kind):
            count += 1
            yield replace(found, model=model) if model and not isinstance(found, str) else found
        if not count:
            yield "no message of the assistant"
    else:
        raise BadRecordError("neither `messages` nor `prompt` and `output`", "Give columns.")


def reader_of(columns: Mapping[str, str]) -> Reader:
    """Return a reader of objects whose fields have these columns' names; a.b is b inside a.

    Raises UsageError for an unknown field, or without a prompt and an output.
    """
    for name in columns:
        if name not in FIELDS:
            raise UsageError(f"columns: no field {name!r}", meant(name, FIELDS), option="columns")
    missing = [name for name in FIELDS[:2] if name not in columns]
    if missing:
        raise UsageError(
            f"columns say nothing of the {' and the '.join(missing)}",
            "like prompt=question,output=answer",
            option="columns",
        )

    @by_record
    def read(where: FilePlace, body: Any) -> Iterator[LoggedRequest | str]:
        def get(field: str) -> Any:
            try:
                return value_at(body, columns[field]) if field in columns else None
            except KeyError:
                return None

        for field in FIELDS[:2]:
            if get(field) is None:
                yield f"no {columns[field]}"
                return
        if is_from_cache(body):
            yield FROM_CACHE
            return
        name, kind = get("name"), get("kind")
        name = "" if name is None else str(name)
        yield _request(where, body, get, name, "all" if kind is None else str(kind))

    return read


def _request(where: FilePlace, body: Any, get: Get, name: str, kind: str) -> LoggedRequest:
    prompt: Any = unfolded(where, get("prompt"), _asks)
    if isinstance(prompt, dict):
        prompt = prompt.get("messages")
    output: Any = unfolded(where, get("output"), _is_assistants)
    run, model = get("run"), get("model")
    ids = token_ids(prompt)
    if ids is not None and len(ids):
        prompt = ids
    elif isinstance(prompt, list):
        prompt = messages_of(where, prompt, body.get("tools"))
    if isinstance(output, dict):
        output = written_by_model(where, {"role": ASSISTANT, **output})
    elif isinstance(output, list):
        output = token_ids(output)
    if not isinstance(prompt, str | list) and ids is None:
        raise BadRecordError("`prompt` is not a text")
    if output is None or isinstance(output, bool | int | float):
        raise BadRecordError("`output` is not a text")
    reference = get("reference")
    texts = reference if isinstance(reference, list) else [] if reference is None else [reference]
    if not all(isinstance(text, str) for text in texts):
        raise BadRecordError("`reference` is neither a text nor a list of texts")
    return LoggedRequest(
        prompt, output, name, kind,
        references=tuple(filter(None, texts)),
        time=_read(where, "time", get, seconds),
        run="" if run is None else str(run),
        turn=_read(where, "turn", get, number_of) or 0,
        model=model if isinstance(model, str) else "",
        finished=not is_cut(body.get("finish_reason")),
    )  # fmt: skip


def _read(where: FilePlace, field: str, get: Get, parse: Callable[[Any], Any]) -> Any:
    value = get(field)
    parsed = parse(value)
    if parsed is None and value not in (None, ""):
        where.lose(f"a `{field}` that is not a number")
    return parsed


def _asks(value: Any) -> bool:
    """Return whether a value is messages, or an object that holds some."""
    return _is_messages(value.get("messages") if isinstance(value, dict) else value)


def _is_messages(value: Any) -> bool:
    """Return whether a value is a list of messages with roles."""
    return isinstance(value, list) and bool(value) and all(map(_has_role, value))


def _has_role(value: Any) -> bool:
    role = value.get("role", value.get("from")) if isinstance(value, dict) else None
    return isinstance(role, str) and role.lower() in ROLES


def _is_assistants(value: Any) -> bool:
    """Return whether a value is a message of the assistant."""
    if not _has_role(value):
        return False
    return ROLES[str(value.get("role", value.get("from"))).lower()] == ASSISTANT


def _first(body: Mapping[str, Any], field: str, default: str) -> Any:
    return next((body[name] for name in (*NAMES[field], field) if name in body), default)
