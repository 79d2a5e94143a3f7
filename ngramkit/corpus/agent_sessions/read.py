"""Recognise the agent of a session, and read its answers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from ngramkit.corpus.agent_sessions.claude_code import ClaudeCode, is_claude_code
from ngramkit.corpus.agent_sessions.codex import Codex, is_codex
from ngramkit.corpus.agent_sessions.pi import Pi, is_pi
from ngramkit.corpus.agent_sessions.transcript import Answer
from ngramkit.corpus.turns import BadTurnError, Unread

# Columns of the Hub's conversion, see `trace_lines`.
TRACE_COLUMNS = ("harness", "session_id", "sent_at", "trace", "traces")
# Keys of which a session's first record has one.
SESSION_KEYS = re.compile(
    rb'"(session|sessionId|session_id|uuid|parentUuid|leafUuid|messageId|payload|instructions'
    rb'|record_type|message|harness)"'
)
PRIVACY_WARNING = "sessions of agents hold code, paths and keys"


class SessionReader(Protocol):
    ended: list[Answer]

    def read(self, record: Mapping[str, Any]) -> None: ...

    def end(self) -> None: ...


class Agent(NamedTuple):
    name: str
    matches: Callable[[Mapping[str, Any]], bool]
    open: Callable[[Unread], SessionReader]


AGENTS = (
    Agent("Claude Code", is_claude_code, ClaudeCode),
    Agent("Codex", is_codex, Codex),
    Agent("Pi", is_pi, Pi),
)


def agent_of(record: Any) -> Agent | None:
    """Return the agent that wrote a record; None for anything else."""
    if not isinstance(record, dict):
        return None
    return next((agent for agent in AGENTS if agent.matches(record)), None)


def is_session(record: Mapping[str, Any]) -> bool:
    return agent_of(record) is not None or trace_lines(record) is not None


def any_session(records: Iterable[tuple[str, Any]]) -> bool:
    """Return whether one of (place, record) is an agent's."""
    return any(isinstance(record, dict) and is_session(record) for _, record in records)


def time_of(record: Mapping[str, Any]) -> Any:
    """Return the time of a record, or of the session that it begins, as recorded; else None."""
    for key in ("session", "message", "payload", "snapshot"):
        inside = record.get(key)
        if "timestamp" not in record and isinstance(inside, dict) and "timestamp" in inside:
            return inside["timestamp"]
    return record.get("timestamp", record.get("sent_at"))


def holds_traces(columns: Iterable[str]) -> bool:
    """Return whether a table of these columns has a session in each row."""
    names = set(columns)
    return "harness" in names and bool(names & {"trace", "traces"})


def trace_lines(record: Mapping[str, Any]) -> Iterable[str | Mapping[str, Any]] | None:
    """Return the records of a session that is a row of a table; None for another row.

    The Hub's conversion has the text of a file in `trace`, as JSON, or a list in `traces`, next to
    `harness`.

    Source: huggingface/datasets src/datasets/packaged_modules/json/json.py (5.2.0).
    """
    if "harness" not in record:
        return None
    trace = record.get("trace", record.get("traces"))
    if isinstance(trace, str):
        try:
            parsed = json.loads(trace)
        except (ValueError, RecursionError):
            parsed = trace
        trace = parsed
    if isinstance(trace, str):
        return (line for line in trace.split("\n") if line.strip())
    if isinstance(trace, dict):
        return [trace]
    return trace if isinstance(trace, list) else None


class Reading:
    """One session, record by record."""

    def __init__(self, unread: Unread) -> None:
        self.agent = ""  # its name, once a record is recognised
        self._unread = unread
        self._session: SessionReader | None = None

    def read(self, record: Mapping[str, Any]) -> Iterator[Answer]:
        """Yield the answers that a record ends. Raises BadTurnError for a record without use."""
        if self._session is None:
            agent = agent_of(record)
            if agent is None:
                return
            self.agent, self._session = agent.name, agent.open(self._unread)
        failure: BadTurnError | None = None
        try:
            self._session.read(record)
        except BadTurnError as error:
            failure = error
        yield from self._ended(self._session)
        if failure is not None:
            raise failure

    def end(self) -> Iterator[Answer]:
        if self._session is not None:
            self._session.end()
            yield from self._ended(self._session)

    def _ended(self, session: SessionReader) -> Iterator[Answer]:
        ended, session.ended[:] = session.ended[:], []
        yield from ended
