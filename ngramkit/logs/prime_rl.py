"""prime-rl's rollouts: `rollouts/step_{N}/train/*/traces.jsonl`, a verifiers Trace a line.

    {"id": "...", "task": {...}, "nodes": [{"parent": null, "sampled": false, "message": {...},
     "token_ids": [...], "mask": [...]}, ...], ...}

A node adds to the ids of its parents; `sampled` says that the model wrote it, `mask` which of its
ids. A line may be an episode, {"traces": [...]}. The streams `all` and `effective` share traces:
each counts once. Before traces it wrote verifiers' RolloutOutput, a list of calls in `trajectory`:

    {"trajectory": [{"prompt": [messages], "completion": [messages], "tokens": {"prompt_ids": [...],
     "completion_ids": [...]}}, ...], "example_id": ..., ...}

Read from: PrimeIntellect-ai/prime-rl src/prime_rl/utils/trace_index.py at 0e4f7ef, pathing.py at
06c96a8, and save_rollouts of orchestrator/utils.py; PrimeIntellect-ai/verifiers verifiers/v1/
trace.py at 00eee6c and graph.py at 0184474. Tried with files of verifiers 0.4.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ngramkit.errors import InputError
from ngramkit.logs.request import (
    Found,
    Line,
    LoggedRequest,
    Prompt,
    is_ids,
    messages_of,
    requests_of,
    seconds,
    take,
    text_of,
    written_by_model,
)
from ngramkit.logs.rollouts import step_of

Node = Mapping[str, Any]


def matches(body: Mapping[str, Any]) -> bool:
    return (
        _is_trace(body)
        or (isinstance(body.get("traces"), list) and any(map(_is_trace, body["traces"])))
        or _calls(body) != []
    )


def _is_trace(body: Any) -> bool:
    return isinstance(body, dict) and isinstance(body.get("nodes"), list) and "task" in body


def _calls(body: Mapping[str, Any]) -> list[Any]:
    """Return the calls of a RolloutOutput."""
    steps = body.get("trajectory")
    calls = isinstance(steps, list) and all(
        isinstance(s, dict) and "completion" in s for s in steps
    )
    return steps if calls and isinstance(steps, list) else []


def read(lines: Iterator[Line]) -> Iterator[Found]:
    seen: set[str] = set()
    for where, body in lines:
        for number, call in enumerate(_calls(body)):
            yield from _of_call(where, body, call, number)
        traces = body["traces"] if isinstance(body.get("traces"), list) else [body]
        for trace in filter(_is_trace, traces):
            name = str(trace.get("id", ""))
            if name and name in seen:
                yield "a trace of another stream"
                continue
            seen.add(name)
            yield from _of_trace(where, trace, name)


def _of_trace(where: str, trace: Mapping[str, Any], name: str) -> Iterator[Found]:
    task = trace["task"]
    kind = str(task.get("type", "prime-rl")) if isinstance(task, dict) else "prime-rl"
    timing = trace.get("timing")
    begun = timing.get("start") if isinstance(timing, dict) else None
    turn = 0
    for number, node in enumerate(trace["nodes"]):
        if not isinstance(node, dict):
            raise InputError(f"{where}: a node is not an object")
        if not node.get("sampled"):
            continue
        path = _path(where, trace["nodes"], number)
        prompt, output = _texts(where, path, path[0].get("tools") or trace.get("tools"))
        if not output:
            yield "the answer has no text"
            continue
        message = node.get("message")
        text = text_of(where, message.get("content")) if isinstance(message, dict) else ""
        time = seconds(node.get("timestamp", begun))
        yield LoggedRequest(
            prompt, output, name, kind, time=time, run=step_of(where), turn=turn, text=text
        )
        turn += 1


def _path(where: str, nodes: list[Any], number: int) -> list[Node]:
    """Return the nodes from a root to that one. Raises InputError where a parent comes later."""
    path, at = [], number
    while True:
        path.append(nodes[at])
        parent = nodes[at].get("parent")
        if parent is None:
            return path[::-1]
        if type(parent) is not int or not 0 <= parent < at or not isinstance(nodes[parent], dict):
            raise InputError(f"{where}: a node's parent is none before it")
        at = parent


def _texts(where: str, path: list[Node], tools: Any) -> tuple[Prompt, Any]:
    ids: list[Any] = [node.get("token_ids") for node in path]
    mask = path[-1].get("mask")
    if all(is_ids(each) and each for each in ids) and isinstance(mask, list):
        own = ids[-1]
        if len(mask) != len(own):
            raise InputError(f"{where}: a node's mask is not as long as its token ids")
        begin = next((i for i, sampled in enumerate(mask) if sampled), len(own))
        before = [n for each in ids[:-1] for n in each]
        return [*before, *own[:begin]], own[begin:]
    messages = [take(where, node, "message", dict, "an object") for node in path]
    output = written_by_model(where, messages[-1])
    return messages_of(where, messages[:-1], tools), output


def _of_call(
    where: str, body: Mapping[str, Any], call: Mapping[str, Any], turn: int
) -> Iterator[Found]:
    name, run = str(body.get("example_id", "")), step_of(where)
    kind = str(body.get("task") or body.get("env_id") or "prime-rl")
    tokens = call.get("tokens")
    if isinstance(tokens, dict) and is_ids(tokens.get("completion_ids")):
        prompt: Any = tokens.get("prompt_ids")
        output = tokens["completion_ids"]
        if output and is_ids(prompt):
            yield LoggedRequest(prompt, output, name, kind, run=run, turn=turn)
            return
    before, after = call.get("prompt"), call.get("completion")
    if isinstance(before, list) and isinstance(after, list):
        yield from list(requests_of(where, [*before, *after], name=name, kind=kind, run=run))[-1:]
    else:
        yield "a call without prompt and completion"
