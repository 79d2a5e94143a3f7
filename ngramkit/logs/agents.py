"""Readers of agents' trajectories."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from ngramkit.corpus.turns import ASSISTANT, SYSTEM, USER, content_text, role_of, tool_result_text
from ngramkit.logs.request import (
    ConversationReader,
    FilePlace,
    Found,
    Line,
    LoggedRequest,
    assistant_text,
    conversation_requests,
    is_cut_off,
    message_text,
    parse_time,
    read_messages,
    record_reader,
    require_field,
    skip_bad,
    text_of,
)


@record_reader
def read_mini_swe_agent(where: FilePlace, body: Any) -> Iterator[LoggedRequest | str]:
    """Read mini-swe-agent's NAME.traj.json, one JSON object.

        {"info": {...}, "messages": [...], "trajectory_format": "mini-swe-agent-1.1"}

    The model does not read messages of the role `exit`.

    Source: SWE-agent/mini-swe-agent@14e642f src/minisweagent/agents/default.py (format 1).
    """
    messages = require_field(where, body, "messages", list)
    messages = [m for m in messages if not (isinstance(m, dict) and m.get("role") == "exit")]
    name = text_of(body, "instance_id") or where.path.name.removesuffix(".traj.json")
    yield from conversation_requests(where, messages, name=name, kind="mini-swe-agent")


@record_reader
def read_tau_bench(where: FilePlace, body: Any) -> Iterator[LoggedRequest | str]:
    """Read tau-bench's results, one JSON list.

        [{"task_id": 3, "traj": [messages], "trial": 0, ...}, ...]

    Source: sierra-research/tau-bench@01ed5e3 tau_bench/run.py.
    """
    messages = require_field(where, body, "traj", list)
    if not messages:
        yield "a conversation that failed"
        return
    name, run = text_of(body, "task_id"), text_of(body, "trial")
    yield from conversation_requests(where, messages, name=name, kind="tau-bench", run=run)


@record_reader
def read_swe_agent(where: FilePlace, body: Any) -> Iterator[LoggedRequest | str]:
    """Read SWE-agent's NAME.traj, one JSON object.

        {"trajectory": [{"query": [messages], "response": "...", ...}, ...],
         "history": [messages], ...}

    Older files have no `query`. Only `history` has tool calls; steps are matched to it by text.

    Source: SWE-agent/SWE-agent@05ff843 sweagent/agent/agents.py, sweagent/types.py.
    """
    name = where.path.name.removesuffix(".traj")
    steps = require_field(where, body, "trajectory", list)
    if not any(isinstance(step, dict) and step.get("query") for step in steps):
        history = require_field(where, body, "history", list)
        own = [m for m in history if not (isinstance(m, dict) and m.get("is_demo"))]
        yield from conversation_requests(where, own, name=name, kind="swe-agent")
        return
    history = body.get("history")
    written: dict[str, str] = {}  # text -> answer with its tool calls
    for message in history if isinstance(history, list) else []:
        if isinstance(message, dict) and "content" in message and role_of(message) == ASSISTANT:
            text = content_text(message["content"])
            written.setdefault(text, assistant_text(where, message) or "")
    for turn, step in enumerate(steps):
        output = step.get("response") if isinstance(step, dict) else None
        if not isinstance(output, str) or not isinstance(step.get("query"), list):
            yield "a step without response or query"
            return
        output = written.get(output, output)
        if output:
            prompt = read_messages(where, step["query"])
            yield LoggedRequest(prompt, output, name, "swe-agent", turn=turn)


def is_openhands(body: Mapping[str, Any]) -> bool:
    history = body.get("history")
    event = history[0] if isinstance(history, list) and history else body
    return (
        isinstance(event, dict)
        and "source" in event
        and ("action" in event or "observation" in event)
    )


def read_openhands(lines: Iterator[Line]) -> Iterator[Found]:
    """Read OpenHands' lists of events, or an output.jsonl with such lists in `history`.

        {"timestamp": "...", "source": "agent", "action": "run", "args": {"thought": ...},
         "tool_call_metadata": {"model_response": {"id": ..., "choices": [...]}, ...}, ...}
        {"source": "agent", "observation": "run", "content": "...", ...}

    Several actions may share a `model_response`. Without one, the output is the action's thought
    and command, which is not verbatim.

    Source: All-Hands-AI/OpenHands@04e2840 openhands/events/serialization/event.py.
    """
    for (path, has_history), group in groupby(
        lines, lambda line: (line[0].path, "history" in line[1])
    ):
        if not has_history:
            trajectory = Trajectory(path.name)
            for where, event in group:
                yield from skip_bad(where, trajectory.read(where, event))
            continue
        for where, body in group:
            yield from skip_bad(where, _openhands_history(where, body))


def _openhands_history(where: FilePlace, body: Any) -> Iterator[LoggedRequest | str]:
    trajectory = Trajectory(text_of(body, "instance_id"))
    for event in require_field(where, body, "history", list):
        yield from trajectory.read(where, event)


class Trajectory:
    """The events of one trajectory, in order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._conversation: ConversationReader | None = None
        self._turn = 0
        self._last_response_id: Any = None

    def read(self, where: FilePlace, event: Any) -> Iterator[LoggedRequest | str]:
        """Yield a request if the model wrote the event."""
        if not isinstance(event, dict):
            yield "an event that is not an object"
            return
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        if self._conversation is None:
            self._conversation = ConversationReader(
                where, args.get("tools") if event.get("action") == SYSTEM else None
            )
        if "observation" in event:
            text = content_text(event.get("content"), where.unread)
            self._conversation.append(USER, tool_result_text(text))
        elif event.get("action") == SYSTEM:
            self._conversation.append(SYSTEM, content_text(args.get("content"), where.unread))
        elif event.get("source") == USER:
            self._conversation.append(USER, content_text(args.get("content"), where.unread))
        elif event.get("source") == "agent":
            yield from self._written(where, event, args, self._conversation)

    def _written(
        self, where: FilePlace, event: Any, args: Any, conversation: ConversationReader
    ) -> Iterator[LoggedRequest]:
        metadata = event.get("tool_call_metadata")
        response = metadata.get("model_response") if isinstance(metadata, dict) else None
        choice: Any = {}
        if isinstance(response, dict) and response.get("choices"):
            if response.get("id") is not None and response["id"] == self._last_response_id:
                return  # already read with an earlier action
            self._last_response_id = response.get("id")
            choice = response["choices"][0] if isinstance(response["choices"], list) else {}
        choice = choice if isinstance(choice, dict) else {}
        message = choice.get("message")
        if isinstance(message, dict):
            written = message_text(where, message)
        else:
            commands = ("command", "code", "path", "url", "content")
            parts = [args.get("thought"), *(args.get(key) for key in commands)]
            written = "\n".join(part for part in parts if isinstance(part, str) and part)
        if written:
            model = response.get("model") if isinstance(response, dict) else None
            yield LoggedRequest(
                conversation.messages(), written, self._name, "openhands",
                time=parse_time(event.get("timestamp")),
                turn=self._turn,
                model=model if isinstance(model, str) else "",
                finished=not is_cut_off(choice.get("finish_reason")),
            )  # fmt: skip
            conversation.append(ASSISTANT, written)
            self._turn += 1
