"""The reader of each suffix, and those of texts and JSON; each kind of table has its own file."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

from ngramkit.basics.errors import BadRecordError
from ngramkit.corpus.agent_sessions.read import any_session
from ngramkit.corpus.agent_sessions.rows import session_rows
from ngramkit.corpus.arrow_tables import read_arrow
from ngramkit.corpus.csv_tables import read_separated
from ngramkit.corpus.document import Row
from ngramkit.corpus.json_records import is_document
from ngramkit.corpus.parquet_tables import read_parquet
from ngramkit.corpus.rows import (
    ReaderOptions,
    is_conversation,
    make_or_skip,
    parse_record,
    record_rows,
)
from ngramkit.corpus.turns import BadTurnError, role_of
from ngramkit.corpus.unpacking import WIDE, non_blank_lines, read_whole

SESSION_RECORDS = 20  # inspected to recognise a session of an agent
JSON_HEAD_BYTES = 1 << 20  # bytes inspected to distinguish JSON lines from a document
BINARY_HEAD_BYTES = 8000  # as git: a zero byte among them makes a file binary
# Codecs that Python sources never use: one always fails, the others take quadratic time.
REFUSED_CODECS = {"undefined", "idna", "punycode"}


Reader = Callable[[Path, IO[bytes], ReaderOptions], Iterator[Row]]


def read_text(path: Path, file: IO[bytes], reading: ReaderOptions) -> Iterator[Row]:
    raw = read_whole(file, reading.max_document, str(path))
    yield make_or_skip(lambda: Row((_decode_text(path, raw, "utf-8-sig"),)), reading.skip_bad)


def read_python(path: Path, file: IO[bytes], reading: ReaderOptions) -> Iterator[Row]:
    """Yield one document, decoded as Python would."""
    raw = read_whole(file, reading.max_document, str(path))

    def row() -> Row:
        try:
            encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
            if encoding.lower() in REFUSED_CODECS:
                raise SyntaxError(f"unknown encoding: {encoding}")
            return Row((_decode_text(path, raw, encoding),))
        except (SyntaxError, LookupError) as error:
            raise BadRecordError(
                f"cannot read {path}: {error}", "Correct the file, or leave it out."
            ) from error

    yield make_or_skip(row, reading.skip_bad)


def _decode_text(path: Path, raw: bytes, encoding: str) -> str:
    if b"\0" in raw[:BINARY_HEAD_BYTES]:
        raise BadRecordError(
            f"{path} must be UTF-8 text, got {WIDE.get(raw[:2], 'binary data')}",
            "Convert the file to UTF-8, or leave it out.",
        )
    try:
        text = raw.decode(encoding)
    except UnicodeError as error:
        place = f"byte {error.start:,}" if isinstance(error, UnicodeDecodeError) else "it"
        raise BadRecordError(
            f"cannot read {path} as {encoding.removesuffix('-sig')}: {place} cannot be decoded",
            "Convert the file to UTF-8, or leave it out.",
        ) from error
    return io.IncrementalNewlineDecoder(None, translate=True).decode(text, final=True)


def read_json(
    path: Path, file: IO[bytes], reading: ReaderOptions, *, usually_document: bool = False
) -> Iterator[Row]:
    """Yield the rows of records, which are a session if one of the first is an agent's."""
    records = json_records(path, file, reading, usually_document=usually_document)
    begun = list(islice(records, SESSION_RECORDS)) if reading.column is None else []
    make = session_rows if any_session(begun) else record_rows
    return make(chain(begun, records), reading)


def json_records(
    path: Path,
    file: IO[bytes],
    reading: ReaderOptions,
    *,
    usually_document: bool = False,
    head: bytes = b"",
) -> Iterator[tuple[str, Any]]:
    """Yield (place, record or its BadRecordError) of JSON lines or a JSON document.

    A document that is a list of turns, with roles of ROLES, is one conversation. `head` was read
    before.
    """
    begun, head = _first_lines(path, file, reading.max_document, head)
    if len(begun) < 2 and usually_document:
        is_whole = True
    else:
        is_whole = is_document(*begun) if begun else head.lstrip().startswith(b"[")
    if is_whole:
        raw = read_whole(file, reading.max_whole, str(path), head)
        body = parse_record(raw, str(path))
        if reading.column is None and _has_known_roles(body):
            body = [body]
        yield from _list_records(body, str(path))
        return
    for number, line in non_blank_lines(file, reading.max_document, str(path), head=head):
        where = f"{path}, line {number}"
        yield where, parse_record(line, where)


def _first_lines(path: Path, file: IO[bytes], most: int, head: bytes) -> tuple[list[bytes], bytes]:
    """Return up to two complete non-blank lines, and the bytes that were read to find them.

    Fewer than two: the file has no more, or they are longer than `most` bytes.
    """
    size = JSON_HEAD_BYTES
    while True:
        head += file.read(size - len(head))
        lines = non_blank_lines(io.BytesIO(head), len(head), str(path))
        begun = [line for _, line in islice(lines, 3)]
        if begun and len(head) == size:  # the last line may be incomplete
            begun.pop()
        if len(begun) > 1 or len(head) < size or size > most:
            return begun[:2], head
        size *= 2


def _has_known_roles(body: Any) -> bool:
    try:
        return is_conversation(body) and all(map(role_of, body))
    except BadTurnError:
        return False


def _list_records(body: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(body, BadRecordError):
        return iter([(where, body)])
    listed = enumerate(body if isinstance(body, list) else [body])
    return ((f"{where}, record {number}", record) for number, record in listed)


READER_OF_SUFFIX: dict[str, Reader] = {
    ".txt": read_text,
    ".md": read_text,
    ".py": read_python,
    ".jsonl": read_json,
    ".ndjson": read_json,
    ".json": partial(read_json, usually_document=True),
    ".csv": read_separated,
    ".tsv": partial(read_separated, separator="\t"),
    ".parquet": read_parquet,
    ".arrow": read_arrow,
}
