"""Files of sessions as a corpus, and how they are recognised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from ngramkit.basics.errors import InputError
from ngramkit.corpus import unpacking
from ngramkit.corpus.agent_sessions.read import SESSION_KEYS, any_session, holds_traces
from ngramkit.corpus.agent_sessions.transcript import Copies
from ngramkit.corpus.document import DocumentSource, Row
from ngramkit.corpus.files import FileSource, reader_suffix
from ngramkit.corpus.parquet_tables import parquet_schema
from ngramkit.corpus.readers import JSON_HEAD_BYTES, SESSION_RECORDS, json_records
from ngramkit.formats.build_command import SESSIONS

KINDS = (".jsonl", ".ndjson", ".json", ".parquet")


@dataclass(frozen=True)
class SessionSource(DocumentSource):
    """Files of sessions, read in order as one part, so that copies of answers are found."""

    id: str
    files: FileSource
    facts: Mapping[str, Any] = field(default_factory=dict)  # additions to the record
    parts: int = 1

    @property
    def places(self) -> Sequence[Path]:
        return self.files.places

    @property
    def progress(self) -> tuple[int, int | None]:
        return self.files.progress

    def record(self) -> dict[str, Any]:
        return {**self.facts, **self.files.record(), "format": SESSIONS}

    def rows(self, part: int) -> Iterator[Row]:
        reading = replace(self.files.reading, copies=Copies())
        files = replace(self.files, reading=reading)
        for number in range(files.parts):
            yield from files.rows(number)

    def only(self, part: int) -> SessionSource:
        return replace(self, files=self.files.anywhere())


def sessions_of(files: FileSource) -> FileSource | None:
    """Return the files that hold sessions, all files if few do; None if none does.

    At a URL the first files decide for all of their kind.
    """
    kinds = [reader_suffix(files.path(i)) for i in range(files.parts)]
    able = [i for i, kind in enumerate(kinds) if kind in KINDS]
    found = [i for i in able[: files.inspected] if _holds_session(files, i)]
    if not found:
        return None
    if files.inspected is not None:
        found = [i for i, kind in enumerate(kinds) if kind == kinds[found[0]]]
    elif 2 * len(found) < len(able):
        return files
    return files.choose(found)


def _holds_session(files: FileSource, part: int) -> bool:
    """Return whether a record near a file's beginning is an agent's."""
    path = files.path(part)
    kind = reader_suffix(path)
    try:
        with files.stream(part) as raw, unpacking.decompress(raw, path) as file:
            if kind == ".parquet":
                return holds_traces(parquet_schema(raw).names)
            head = b""
            if kind == ".json":
                head = file.read(JSON_HEAD_BYTES)
                if not SESSION_KEYS.search(head):
                    return False
            # Reading reports what exceeds the given limit.
            reading = replace(
                files.reading, max_document=max(files.reading.max_document, unpacking.MAX_DOCUMENT)
            )
            records = json_records(path, file, reading, usually_document=kind == ".json", head=head)
            return any_session(islice(records, SESSION_RECORDS))
    except InputError:
        return False  # reading reports the error
