"""Trajectories of agents: mini-swe-agent, SWE-agent, OpenHands, tau-bench."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from ngramkit.corpus.shapes import ASSISTANT, SYSTEM, USER, content_text, result_text, role_of
from ngramkit.logs.request import (
    FilePlace,
    Found,
    Line,
    LoggedRequest,
    Talk,
    attempt,
    by_record,
    is_cut,
    messages_of,
    requests_of,
    seconds,
    take,
    written_by_model,
)

COMMANDS = ("command", "code", "path", "url", "content")  # of an OpenHands action, in `args`


@by_record
def read_mini_swe_agent(where: FilePlace, body: Any) -> Iterator[LoggedRequest | str]:
    """Read mini-swe-agent's NAME.traj.json, one JSON object.

        {"info": {...}, "messages": [...], "trajectory_format": "mini-swe-agent-1.1"}

    Messages are as the model's API has them, answers of the Responses API whole; the last one's
    role may be `exit`, which no model reads. `extra` holds a time.

    Read from: SWE-agent/mini-swe-agent src/minisweagent/agents/default.py (save, serialize) at
    14e642f (format 1), and run/utils/save.py at 02e25f7. Tried with files of 2.4.6.
    """
    messages = take(where, body, "messages", list)
    spoken = [m for m in messages if not (isinstance(m, dict) and m.get("role") == "exit")]
    name = str(body.get("instance_id") or where.path.name.removesuffix(".traj.json"))
    yield from requests_of(where, spoken, name=name, kind="mini-swe-agent")


@by_record
def read_tau_bench(where: FilePlace, body: Any) -> Iterator[LoggedRequest | str]:
    """Read tau-bench's results, one JSON list in the order in which conversations ended.

        [{"task_id": 3, "reward": 1.0, "info": {...}, "traj": [messages], "trial": 0}, ...]

    The assistant's tool calls are in its messages.

    Read from: sierra-research/tau-bench tau_bench/run.py and tau_bench/agents/
    tool_calling_agent.py at 01ed5e3.
    """
    messages = take(where, body, "traj", list)
    if not messages:
        yield "a conversation that failed"
        return
    name, run = str(body.get("task_id")), str(body.get("trial", ""))
    yield from requests_of(where, messages, name=name, kind="tau-bench", run=run)


@by_record
def read_swe_agent(where: FilePlace, body: Any) -> Iterator[LoggedRequest | str]:
    """Read SWE-agent's NAME.traj, one JSON object.

        {"trajectory": [{"query": [messages], "response": "...", "action": ..., ...}, ...],
         "history": [{"role": "assistant", "content": "...", "tool_calls": [...], ...}, ...],
         "info": {...}, "environment": ...}

    A step's `query` is what the model read; in older files, which have none, `history` is the
    conversation. A step keeps no tool calls: they stand in the history, at the message of the same
    text.

    Read from: SWE-agent/SWE-agent sweagent/agent/agents.py (add_step_to_trajectory,
    save_trajectory), sweagent/types.py at 05ff843.
    """
    name = where.path.name.removesuffix(".traj")
    steps = take(where, body, "trajectory", list)
    if not any(isinstance(step, dict) and step.get("query") for step in steps):
        history = take(where, body, "history", list)
        own = [m for m in history if not (isinstance(m, dict) and m.get("is_demo"))]
        yield from requests_of(where, own, name=name, kind="swe-agent")
        return
    history = body.get("history")
    written: dict[str, str] = {}  # what the model wrote, tool calls included, by its text
    for message in history if isinstance(history, list) else []:
        if not isinstance(message, dict) or "content" not in message:
            return
        if role_of(message) == ASSISTANT:
            text = content_text(message["content"])
            written.setdefault(text, written_by_model(where, message) or "")
    for turn, step in enumerate(steps):
        output = step.get("response") if isinstance(step, dict) else None
        if not isinstance(output, str) or not isinstance(step.get("query"), list):
            yield "a step without response or query"
            return
        output = written.get(output, output)
        if output:
            prompt = messages_of(where, step["query"])
            yield LoggedRequest(prompt, output, name, "swe-agent", turn=turn)


def is_openhands(body: Mapping[str, Any]) -> bool:
    """Return whether it is an event, or holds a list of them."""
    history = body.get("history")
    event = history[0] if isinstance(history, list) and history else body
    return (
        isinstance(event, dict)
        and "source" in event
        and ("action" in event or "observation" in event)
    )


def read_openhands(lines: Iterator[Line]) -> Iterator[Found]:
    """Read OpenHands' trajectories: a JSON list of events, or an evaluation's output.jsonl, which
    has such a list as `history`.

        {"id": 4, "timestamp": "...", "source": "agent", "action": "run", "args": {"thought": ...},
         "tool_call_metadata": {"model_response": {"id": ..., "choices": [...]}, ...}}
        {"id": 5, "source": "agent", "observation": "run", "content": "...", ...}

    What the model wrote is its `model_response`; several actions may share one. Where there is none
    (models without tool calls) it is the action's message or thought and command, so not to the
    letter. `log_completions` keeps calls whole: those files are read as OpenAI's.

    Read from: All-Hands-AI/OpenHands openhands/events/serialization/event.py at 04e2840.
    """
    for (path, has_history), group in groupby(
        lines, lambda line: (line[0].path, "history" in line[1])
    ):
        if not has_history:
            trajectory = Trajectory(path.name)
            for where, event in group:
                yield from attempt(where, trajectory.read(where, event))
            continue
        for where, body in group:
            yield from attempt(where, _openhands_history(where, body))


def _openhands_history(where: FilePlace, body: Any) -> Iterator[LoggedRequest | str]:
    trajectory = Trajectory(str(body.get("instance_id", "")))
    for event in take(where, body, "history", list):
        yield from trajectory.read(where, event)


class Trajectory:
    """OpenHands' events, read one after another."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._talk: Talk | None = None
        self._turn, self._last = 0, None  # the id of the response that was read last

    def read(self, where: FilePlace, event: Any) -> Iterator[LoggedRequest | str]:
        """Yield a request if the model wrote the event, after all events before it."""
        if not isinstance(event, dict):
            yield "an event that is not an object"
            return
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        if self._talk is None:
            self._talk = Talk(where, args.get("tools") if event.get("action") == SYSTEM else None)
        if "observation" in event:
            text = content_text(event.get("content"), where.lost)
            self._talk.say(USER, result_text(text))
        elif event.get("action") == SYSTEM:
            self._talk.say(SYSTEM, content_text(args.get("content"), where.lost))
        elif event.get("source") == USER:
            self._talk.say(USER, content_text(args.get("content"), where.lost))
        elif event.get("source") == "agent":
            yield from self._written(where, event, args, self._talk)

    def _written(
        self, where: FilePlace, event: Any, args: Any, talk: Talk
    ) -> Iterator[LoggedRequest]:
        metadata = event.get("tool_call_metadata")
        response = metadata.get("model_response") if isinstance(metadata, dict) else None
        choice: Any = {}
        if isinstance(response, dict) and response.get("choices"):
            if response.get("id") is not None and response["id"] == self._last:
                return  # an earlier action had it
            self._last = response.get("id")
            choice = response["choices"][0] if isinstance(response["choices"], list) else {}
        choice = choice if isinstance(choice, dict) else {}
        message = choice.get("message")
        if isinstance(message, dict):
            whole = {"content": None, **message, "role": ASSISTANT}
            written = written_by_model(where, whole) or ""
        else:
            parts = [args.get("thought"), *(args.get(key) for key in COMMANDS)]
            written = "\n".join(part for part in parts if isinstance(part, str) and part)
        if written:
            model = response.get("model") if isinstance(response, dict) else None
            yield LoggedRequest(
                talk.so_far(), written, self._name, "openhands",
                time=seconds(event.get("timestamp")),
                turn=self._turn,
                model=model if isinstance(model, str) else "",
                finished=not is_cut(choice.get("finish_reason")),
            )  # fmt: skip
            talk.say(ASSISTANT, written)
            self._turn += 1
