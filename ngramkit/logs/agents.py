"""Trajectories of agents: mini-swe-agent, SWE-agent, OpenHands, tau-bench."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from ngramkit.corpus.shapes import ASSISTANT, SYSTEM, USER, content_text, role_of, tool_result_text
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
)


@record_reader
def read_mini_swe_agent(where: FilePlace, body: Any) -> Iterator[LoggedRequest | str]:
    """Read mini-swe-agent's NAME.traj.json, one JSON object.

        {"info": {...}, "messages": [...], "trajectory_format": "mini-swe-agent-1.1"}

    Messages have the form of the model's API; answers of the Responses API are whole objects. The
    last message may have the role `exit`, which the model does not read. `extra` holds a time.

    Read from: SWE-agent/mini-swe-agent src/minisweagent/agents/default.py (save, serialize) at
    14e642f (format 1), and run/utils/save.py at 02e25f7. Tried with files of 2.4.6.
    """
    messages = require_field(where, body, "messages", list)
    messages = [m for m in messages if not (isinstance(m, dict) and m.get("role") == "exit")]
    name = str(body.get("instance_id") or where.path.name.removesuffix(".traj.json"))
    yield from conversation_requests(where, messages, name=name, kind="mini-swe-agent")


@record_reader
def read_tau_bench(where: FilePlace, body: Any) -> Iterator[LoggedRequest | str]:
    """Read tau-bench's results, one JSON list, in the order in which conversations ended.

        [{"task_id": 3, "reward": 1.0, "info": {...}, "traj": [messages], "trial": 0}, ...]

    Read from: sierra-research/tau-bench tau_bench/run.py and tau_bench/agents/
    tool_calling_agent.py at 01ed5e3.
    """
    messages = require_field(where, body, "traj", list)
    if not messages:
        yield "a conversation that failed"
        return
    name, run = str(body.get("task_id")), str(body.get("trial", ""))
    yield from conversation_requests(where, messages, name=name, kind="tau-bench", run=run)


@record_reader
def read_swe_agent(where: FilePlace, body: Any) -> Iterator[LoggedRequest | str]:
    """Read SWE-agent's NAME.traj, one JSON object.

        {"trajectory": [{"query": [messages], "response": "...", "action": ..., ...}, ...],
         "history": [{"role": "assistant", "content": "...", "tool_calls": [...], ...}, ...],
         "info": {...}, "environment": ...}

    A step's `query` is its prompt; older files lack it, and `history` is the conversation. Steps do
    not store tool calls; they come from the message of the history with the same text.

    Read from: SWE-agent/SWE-agent sweagent/agent/agents.py (add_step_to_trajectory,
    save_trajectory), sweagent/types.py at 05ff843.
    """
    name = where.path.name.removesuffix(".traj")
    steps = require_field(where, body, "trajectory", list)
    if not any(isinstance(step, dict) and step.get("query") for step in steps):
        history = require_field(where, body, "history", list)
        own = [m for m in history if not (isinstance(m, dict) and m.get("is_demo"))]
        yield from conversation_requests(where, own, name=name, kind="swe-agent")
        return
    history = body.get("history")
    written: dict[str, str] = {}  # by text: the answer with its tool calls
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
    """Return whether the object is an event or holds a list of events."""
    history = body.get("history")
    event = history[0] if isinstance(history, list) and history else body
    return (
        isinstance(event, dict)
        and "source" in event
        and ("action" in event or "observation" in event)
    )


def read_openhands(lines: Iterator[Line]) -> Iterator[Found]:
    """Read OpenHands' trajectories: a JSON list of events, or an evaluation's output.jsonl, whose
    `history` is such a list.

        {"id": 4, "timestamp": "...", "source": "agent", "action": "run", "args": {"thought": ...},
         "tool_call_metadata": {"model_response": {"id": ..., "choices": [...]}, ...}}
        {"id": 5, "source": "agent", "observation": "run", "content": "...", ...}

    The model's text is the `model_response`, which several actions may share. Models without tool
    calls lack it; there, the action's thought and command stand in, which is not verbatim. Files of
    `log_completions`, with whole calls, are read as OpenAI's.

    Read from: All-Hands-AI/OpenHands openhands/events/serialization/event.py at 04e2840.
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
    trajectory = Trajectory(str(body.get("instance_id", "")))
    for event in require_field(where, body, "history", list):
        yield from trajectory.read(where, event)


class Trajectory:
    """A reader of the events of one OpenHands trajectory, in order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._conversation: ConversationReader | None = None
        self._turn = 0
        self._last_response_id: Any = None

    def read(self, where: FilePlace, event: Any) -> Iterator[LoggedRequest | str]:
        """Yield a request if the model wrote the event; its prompt is all events before it."""
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
                return  # an earlier action shares it
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
