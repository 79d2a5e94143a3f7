"""Sessions as rows of a corpus: what was said before an answer, then the answer.

Copies of answers in resumed sessions are left out. Records that are not part of a conversation, and
a cut last line, are skipped and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ngramkit.basics.errors import BadRecordError
from ngramkit.corpus.agent_sessions.read import Reading, trace_lines
from ngramkit.corpus.agent_sessions.transcript import Answer, Copies
from ngramkit.corpus.document import Row
from ngramkit.corpus.rows import ReaderOptions, parse_record
from ngramkit.corpus.turns import BadTurnError
from ngramkit.corpus.unpacking import too_large


def session_rows(records: Iterable[tuple[str, Any]], reading: ReaderOptions) -> Iterator[Row]:
    """Yield the rows of (place, record or its BadRecordError) of a file."""
    session = _SessionRows(reading)
    for where, record in records:
        rows = trace_lines(record) if isinstance(record, Mapping) else None
        if rows is None:
            yield from session.read(where, record)
        else:
            inner = _SessionRows(reading)
            for line in rows:
                parsed = parse_record(line, where) if isinstance(line, str) else line
                yield from inner.read(where, parsed)
            yield from inner.end(where)
    yield from session.end("")


class _SessionRows:
    def __init__(self, reading: ReaderOptions) -> None:
        self._options = reading
        self._reading = Reading(Counter())
        self._copies = reading.copies or Copies()
        self._copies.begin()
        self._said = ""  # before the last answer
        self._joined: list[str] = []
        self._size = 0

    def read(self, where: str, record: Any) -> Iterator[Row]:
        try:
            if isinstance(record, BadRecordError):
                yield Row((), bad=str(record))
            elif isinstance(record, Mapping):
                yield from self._rows_of_answers(where, self._reading.read(record))
        except (BadTurnError, RecursionError) as error:
            yield Row((), bad=f"cannot read {where}: {error or 'it nests too deeply'}")

    def end(self, where: str) -> Iterator[Row]:
        yield from self._rows_of_answers(where, self._reading.end())
        if self._joined:
            yield Row(("\n\n".join(self._joined),))

    def _rows_of_answers(self, where: str, answers: Iterable[Answer]) -> Iterator[Row]:
        for answer in answers:
            said = answer.before[-1].content if len(answer.before) else ""
            texts = [said, answer.text] if said and said != self._said else [answer.text]
            copied, self._said = self._copies.holds_or_adds(answer), said
            if copied:
                continue
            if not self._options.join_turns:
                yield Row(tuple(texts))
                continue
            self._joined += texts
            self._size += sum(map(len, texts))
            if self._size > self._options.max_document:
                raise too_large(where, self._options.max_document)
