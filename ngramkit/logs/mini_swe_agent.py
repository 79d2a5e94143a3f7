"""mini-swe-agent's trajectories: NAME.traj.json, one JSON object.

    {"info": {...}, "messages": [...], "trajectory_format": "mini-swe-agent-1.1"}

Messages are as the model's API has them, answers of the Responses API whole; the last one's role
may be `exit`, which no model reads. `extra` holds a time.

Read from: SWE-agent/mini-swe-agent src/minisweagent/agents/default.py (save, serialize) at 14e642f
(format 1), and run/utils/save.py at 02e25f7. Tried with files of 2.4.6.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ngramkit.logs.request import Found, Line, file_name, requests_of, take


def matches(body: Mapping[str, Any]) -> bool:
    return str(body.get("trajectory_format", "")).startswith("mini-swe-agent")


def read(lines: Iterator[Line]) -> Iterator[Found]:
    for where, body in lines:
        messages = take(where, body, "messages", list, "a list")
        spoken = [m for m in messages if not (isinstance(m, dict) and m.get("role") == "exit")]
        name = str(body.get("instance_id") or file_name(where).removesuffix(".traj.json"))
        yield from requests_of(where, spoken, name=name, kind="mini-swe-agent")
