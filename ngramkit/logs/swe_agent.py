"""SWE-agent's trajectories: NAME.traj, one JSON object.

    {"trajectory": [{"query": [messages], "response": "...", "action": ..., ...}, ...],
     "history": [{"role": "assistant", "content": "...", "tool_calls": [...], "agent": ...}, ...],
     "info": {...}, "environment": ...}

A step's `query` is what the model read; older files have none, their `history` is the conversation.
A step keeps no tool calls: they stand in the history, at the message of the same text.

Read from: SWE-agent/SWE-agent sweagent/agent/agents.py (add_step_to_trajectory, save_trajectory),
sweagent/types.py at 05ff843.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ngramkit.logs.request import (
    Found,
    Line,
    LoggedRequest,
    file_name,
    messages_of,
    requests_of,
    role_of,
    take,
    text_of,
    written_by_model,
)


def matches(body: Mapping[str, Any]) -> bool:
    return {"trajectory", "history", "info"} <= body.keys() and isinstance(body["trajectory"], list)


def read(lines: Iterator[Line]) -> Iterator[Found]:
    for where, body in lines:
        name = file_name(where).removesuffix(".traj")
        steps = take(where, body, "trajectory", list, "a list")
        if not any(isinstance(step, dict) and step.get("query") for step in steps):
            history = take(where, body, "history", list, "a list")
            own = [m for m in history if not (isinstance(m, dict) and m.get("is_demo"))]
            yield from requests_of(where, own, name=name, kind="swe-agent")
            continue
        written = _written(where, body.get("history"))
        for turn, step in enumerate(steps):
            output = step.get("response") if isinstance(step, dict) else None
            if not isinstance(output, str) or not isinstance(step.get("query"), list):
                yield "a step without response or query"
                continue
            output = written.get(output, output)
            if output:
                prompt = messages_of(where, step["query"])
                yield LoggedRequest(prompt, output, name, "swe-agent", turn=turn)


def _written(where: str, history: Any) -> dict[str, str]:
    """Return what the model wrote, tool calls included, by its text."""
    found: dict[str, str] = {}
    for message in history if isinstance(history, list) else []:
        if not isinstance(message, dict) or "content" not in message:
            continue
        if role_of(where, message) == "assistant":
            text = text_of(where, message["content"])
            found.setdefault(text, written_by_model(where, message) or "")
    return found
