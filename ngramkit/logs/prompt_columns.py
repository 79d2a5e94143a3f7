"""Objects with a prompt and an output, in columns of any name. The default names:

    {"prompt": "...", "output": "..."}     with id, category, run, turn, time, model, reference
    {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", ...}]}

A prompt may be messages, an output a message; either may be JSON inside a string.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ngramkit.basics.errors import BadRecordError, UsageError, hint_for_unknown
from ngramkit.corpus.json_records import value_at
from ngramkit.corpus.turns import ASSISTANT, ROLES
from ngramkit.logs.caches import FROM_CACHE, is_from_cache
from ngramkit.logs.request import (
    FilePlace,
    LoggedRequest,
    Reader,
    assistant_text,
    conversation_requests,
    is_cut_off,
    parse_embedded,
    parse_integer,
    parse_time,
    plain_text,
    read_messages,
    record_reader,
    require_field,
    text_of,
    token_ids,
)

Get = Callable[[str], Any]  # the value of a field
FIELDS = ("prompt", "output", "name", "kind", "reference", "time", "run", "turn", "model")
CONVERSATION_KEYS = ("messages", "conversations")
# Default columns of a field: the first that a record has.
NAME_COLUMNS, KIND_COLUMNS = ("question_id", "task_id", "task", "id", "name"), ("category", "kind")


def is_columns(body: Mapping[str, Any]) -> bool:
    has_conversation = any(isinstance(body.get(key), list | str) for key in CONVERSATION_KEYS)
    return has_conversation or {"prompt", "output"} <= body.keys()


@record_reader
def read_columns(where: FilePlace, body: Mapping[str, Any]) -> Iterator[LoggedRequest | str]:
    if is_from_cache(body):
        yield FROM_CACHE
        return
    name, kind = text_of(body, *NAME_COLUMNS), text_of(body, *KIND_COLUMNS) or "all"
    conversation = next((key for key in CONVERSATION_KEYS if key in body), None)
    if "prompt" in body and "output" in body:
        yield _make_request(where, body, body.get, name, kind)
    elif conversation is not None and "output" in body:
        yield _make_request(where, body, {**body, "prompt": body[conversation]}.get, name, kind)
    elif conversation is not None:
        body = {**body, conversation: parse_embedded(where, body[conversation], _is_messages)}
        messages = require_field(where, body, conversation, list)
        found = conversation_requests(
            where, messages, tools=body.get("tools"), name=name, kind=kind,
            **_facts_of_row(where, body, body.get),
        )  # fmt: skip
        yield next(found, "no message of the assistant")
        yield from found
    else:
        raise BadRecordError(
            "a record must have `messages`, or `prompt` and `output`", "Give columns."
        )


def reader_of(columns: Mapping[str, str]) -> Reader:
    """Return a reader for these columns by field; a.b is b inside a.

    Raises UsageError for an unknown field, or without prompt or output.
    """
    for name in columns:
        if name not in FIELDS:
            raise UsageError(
                f"unknown field {name!r} of columns",
                hint_for_unknown(name, FIELDS),
                option="columns",
            )
    missing = [name for name in FIELDS[:2] if name not in columns]
    if missing:
        raise UsageError(
            f"columns must name the {' and the '.join(missing)}",
            "Give them like prompt=question,output=answer.",
            option="columns",
        )

    @record_reader
    def read(where: FilePlace, body: Any) -> Iterator[LoggedRequest | str]:
        def get(field: str) -> Any:
            try:
                return value_at(body, columns[field]) if field in columns else None
            except KeyError:
                return None

        for field in FIELDS[:2]:
            if get(field) is None:
                raise BadRecordError(
                    f"{where}: the column {columns[field]!r} must have a value",
                    f"Choose the {field} among the columns {', '.join(map(str, list(body)[:10]))}.",
                )
        if is_from_cache(body):
            yield FROM_CACHE
            return
        name, kind = get("name"), get("kind")
        name = "" if name is None else plain_text(name)
        yield _make_request(where, body, get, name, "all" if kind is None else plain_text(kind))

    return read


def _make_request(where: FilePlace, body: Any, get: Get, name: str, kind: str) -> LoggedRequest:
    prompt: Any = parse_embedded(where, get("prompt"), _is_prompt)
    if isinstance(prompt, dict):
        prompt = prompt.get("messages")
    output: Any = parse_embedded(where, get("output"), _is_assistant_message)
    turn = get("turn")
    if isinstance(prompt, list):
        ids = token_ids(prompt) if prompt else None
        prompt = read_messages(where, prompt, body.get("tools")) if ids is None else ids
    if isinstance(output, dict):
        output = assistant_text(where, {"role": ASSISTANT, **output})
    elif isinstance(output, list):
        output = token_ids(output)
    if not isinstance(prompt, str | list | np.ndarray):
        raise BadRecordError("`prompt` must be a text, messages or token ids")
    if output is None or isinstance(output, bool | int | float):
        raise BadRecordError("`output` must be a text, a message or token ids")
    reference = get("reference")
    texts = reference if isinstance(reference, list) else [] if reference is None else [reference]
    if not all(isinstance(text, str) for text in texts):
        raise BadRecordError("`reference` must be a text or a list of texts")
    return LoggedRequest(
        prompt, output, name, kind,
        references=tuple(filter(None, texts)),
        turn=0 if turn is None else _parse_field(where, "turn", turn, parse_integer) or 0,
        **_facts_of_row(where, body, get),
    )  # fmt: skip


def _facts_of_row(where: FilePlace, body: Any, get: Get) -> dict[str, Any]:
    run, model, time = get("run"), get("model"), get("time")
    return {
        "time": None if time is None else _parse_field(where, "time", time, parse_time),
        "run": "" if run is None else plain_text(run),
        "model": model if isinstance(model, str) else "",
        "finished": not is_cut_off(body.get("finish_reason")),
    }


def _parse_field(where: FilePlace, field: str, value: Any, parse: Callable[[Any], Any]) -> Any:
    parsed = parse(value)
    if parsed is None and value != "":
        where.count_unread(f"a `{field}` that is not a number")
    return parsed


def _is_prompt(value: Any) -> bool:
    return _is_messages(value.get("messages") if isinstance(value, dict) else value)


def _is_messages(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_has_role, value))


def _has_role(value: Any) -> bool:
    role = value.get("role", value.get("from")) if isinstance(value, dict) else None
    return isinstance(role, str) and role.lower() in ROLES


def _is_assistant_message(value: Any) -> bool:
    if not _has_role(value):
        return False
    return ROLES[str(value.get("role", value.get("from"))).lower()] == ASSISTANT
