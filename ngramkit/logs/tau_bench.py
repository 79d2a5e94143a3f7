"""tau-bench's results: one JSON list of

    {"task_id": 3, "reward": 1.0, "info": {...}, "traj": [messages], "trial": 0}

in the order in which conversations ended. The assistant's tool calls are in its messages.

Read from: sierra-research/tau-bench tau_bench/run.py and tau_bench/agents/tool_calling_agent.py at
01ed5e3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ngramkit.logs.request import Found, Line, requests_of, take


def matches(body: Mapping[str, Any]) -> bool:
    return {"task_id", "traj"} <= body.keys()


def read(lines: Iterator[Line]) -> Iterator[Found]:
    for where, body in lines:
        messages = take(where, body, "traj", list, "a list")
        if not messages:
            yield "a conversation that failed"
            continue
        name, run = str(body.get("task_id")), str(body.get("trial", ""))
        yield from requests_of(where, messages, name=name, kind="tau-bench", run=run)
