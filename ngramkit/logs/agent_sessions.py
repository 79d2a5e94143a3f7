"""Sessions of coding agents as requests; see ngramkit.corpus.agent_sessions for their formats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import groupby, islice
from typing import Any

from ngramkit.basics.errors import BadRecordError, InputError
from ngramkit.basics.untrusted import parse_json
from ngramkit.corpus.agent_sessions.read import Reading, is_session, time_of, trace_lines
from ngramkit.corpus.agent_sessions.transcript import Answer, Copies
from ngramkit.corpus.message_prefix import MessagePrefix
from ngramkit.corpus.turns import ASSISTANT
from ngramkit.logs.files import FORMAT_OBJECTS, MAX_RECORD_VALUES, LogFile
from ngramkit.logs.request import (
    NO_PROMPT,
    FilePlace,
    Found,
    Line,
    LoggedRequest,
    parse_time,
    skip_bad,
    text_of,
)

LAST_BYTES = 1 << 16  # of a session, searched for its last time
COPIED_ANSWER = "an answer that an earlier session holds"
__all__ = ["is_session", "last_time", "read_sessions", "start_time", "without_earlier_answers"]


def read_sessions(lines: Iterator[Line]) -> Iterator[Found]:
    """Read sessions of Claude Code, Codex and Pi: each answer is a request.

    An answer that a resumed or forked session repeats is read once.
    """
    copies = Copies()
    for path, records in groupby(lines, lambda line: line[0].path):
        reader, where = _Reader(path.stem, copies), FilePlace(path)
        for where, record in records:
            rows = trace_lines(record)
            if rows is None:
                yield from skip_bad(where, reader.read(where, record))
            else:
                yield from _read_row(where, record, rows, copies)
        yield from skip_bad(where, reader.end(where))


def _read_row(
    where: FilePlace, row: Mapping[str, Any], rows: Iterable[Any], copies: Copies
) -> Iterator[Found]:
    """Read a session that is a row of a table."""
    reader = _Reader(text_of(row, "session_id"), copies)
    for record in rows:
        yield from skip_bad(where, _parse_line(where, record, reader))
    yield from skip_bad(where, reader.end(where))


def _parse_line(where: FilePlace, record: Any, reader: _Reader) -> Iterator[LoggedRequest | str]:
    if isinstance(record, str):
        record = parse_json(record, str(where), most_values=MAX_RECORD_VALUES, error=BadRecordError)
    if isinstance(record, dict):
        yield from reader.read(where, record)
    else:
        yield "a record must be a JSON object"


class _Reader:
    """A reader of one session."""

    def __init__(self, name: str, copies: Copies) -> None:
        self._name, self._copies = name, copies
        self._unread: Counter[str] = Counter()
        self._reading = Reading(self._unread)
        self._turn = 0
        copies.begin()

    def read(self, where: FilePlace, record: Mapping[str, Any]) -> Iterator[LoggedRequest | str]:
        yield from self._requests(where, self._reading.read(record))

    def end(self, where: FilePlace) -> Iterator[LoggedRequest | str]:
        yield from self._requests(where, self._reading.end())

    def _requests(
        self, where: FilePlace, answers: Iterator[Answer]
    ) -> Iterator[LoggedRequest | str]:
        try:
            for answer in answers:
                if self._copies.holds_or_adds(answer):
                    yield COPIED_ANSWER
                    continue
                if not len(answer.before):
                    where.count_unread(NO_PROMPT)
                yield LoggedRequest(
                    answer.before or "", answer.text, self._name, answer.kind,
                    time=parse_time(answer.time),
                    turn=self._turn,
                    model=answer.model,
                    finished=answer.finished,
                    agent=self._reading.agent,
                )  # fmt: skip
                self._turn += 1
        finally:
            if where.unread is not None:
                where.unread.update(self._unread)
            self._unread.clear()


def without_earlier_answers(request: LoggedRequest) -> LoggedRequest:
    """Return a session's request with what was said since the model's last answer."""
    prompt: Any = request.prompt
    if not request.agent or not isinstance(prompt, MessagePrefix):
        return request
    begin = len(prompt)
    while begin and prompt[begin - 1].role != ASSISTANT:
        begin -= 1
    return replace(request, prompt=prompt[begin:])


def last_time(file: LogFile) -> float:
    """Return the time of the last record near a session's end, else when the file changed last."""
    for line in reversed(file.last_lines(LAST_BYTES)):
        with suppress(InputError):  # a cut line
            record = parse_json(line, str(file.path), most_values=MAX_RECORD_VALUES)
            time = parse_time(time_of(record)) if isinstance(record, dict) else None
            if time is not None:
                return time
    return file.path.stat().st_mtime


def start_time(file: LogFile) -> float:
    """Return the time of a session's first record that has one, else infinity."""
    with suppress(InputError):  # reading reports it
        for record in islice(file.samples, FORMAT_OBJECTS):
            time = parse_time(time_of(record))
            if time is not None:
                return time
    return float("inf")
