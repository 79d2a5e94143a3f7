"""Any objects with a prompt and an output, by the names of their columns.

Without names these, as `ngramkit replay` has always read them:

    {"prompt": "...", "output": "..."}     with id, category, run, turn, time, reference
    {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", ...}]}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ngramkit.basics.errors import InputError, UsageError, meant
from ngramkit.corpus.shapes import value_at
from ngramkit.logs.request import (
    ASSISTANT,
    FilePlace,
    Found,
    Line,
    LoggedRequest,
    is_ids,
    messages_of,
    requests_of,
    seconds,
    take,
    written_by_model,
)

FIELDS = ("prompt", "output", "name", "kind", "reference", "time", "run", "turn")
NAMES = {"name": ("question_id", "id"), "kind": ("category",)}  # besides the field's own name


def is_columns(body: Mapping[str, Any]) -> bool:
    """Return whether it has the usual names."""
    return "messages" in body or {"prompt", "output"} <= body.keys()


def read_columns(lines: Iterator[Line]) -> Iterator[Found]:
    """Yield the requests of objects with the usual names."""
    for where, body in lines:
        name = str(_first(body, "name", default=where.label))
        kind = str(_first(body, "kind", default="all"))
        if "messages" in body:
            messages = take(where, body, "messages", list)
            tools = body.get("tools")
            conversation = list(requests_of(where, messages, tools=tools, name=name, kind=kind))
            if not conversation:
                raise InputError(f"{where}: no message of the assistant", "nothing can be replayed")
            yield from conversation
        elif "prompt" in body and "output" in body:
            yield _request(where, body, body.get, name, kind)
        else:
            raise InputError(
                f"{where}: neither `messages` nor `prompt` and `output`", "see columns"
            )


def reader_of(columns: Mapping[str, str]) -> Callable[[Iterator[Line]], Iterator[Found]]:
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

    def read(lines: Iterator[Line]) -> Iterator[Found]:
        for where, body in lines:

            def get(field: str, body: Any = body) -> Any:
                return _inside(body, columns[field]) if field in columns else None

            if get("prompt") is None or get("output") is None:
                lacking = "output" if get("prompt") is not None else "prompt"
                yield f"no {columns[lacking]}"
                continue
            name, kind = get("name"), get("kind")
            name = where.label if name is None else str(name)
            yield _request(where, body, get, name, "all" if kind is None else str(kind))

    return read


def _request(
    where: FilePlace, body: Any, get: Callable[[str], Any], name: str, kind: str
) -> LoggedRequest:
    prompt, output, run, turn = get("prompt"), get("output"), get("run"), get("turn")
    if isinstance(prompt, list) and not is_ids(prompt):
        prompt = messages_of(where, prompt, body.get("tools"))
    if isinstance(output, dict):
        output = written_by_model(where, {"role": ASSISTANT, **output})
    if not isinstance(prompt, str | list):
        raise InputError(f"{where}: `prompt` is not a text")
    if not isinstance(output, str) and not is_ids(output):
        raise InputError(f"{where}: `output` is not a text")
    reference = get("reference")
    texts = reference if isinstance(reference, list) else [] if reference is None else [reference]
    if not all(isinstance(text, str) for text in texts):
        raise InputError(f"{where}: `reference` is neither a text nor a list of texts")
    return LoggedRequest(
        prompt, output, name, kind,
        references=tuple(filter(None, texts)),
        time=seconds(get("time")),
        run="" if run is None else str(run),
        turn=turn if type(turn) is int else 0,
    )  # fmt: skip


def _first(body: Mapping[str, Any], field: str, default: str) -> Any:
    return next((body[name] for name in (*NAMES[field], field) if name in body), default)


def _inside(body: Any, path: str) -> Any:
    try:
        return value_at(body, path)
    except KeyError:
        return None
