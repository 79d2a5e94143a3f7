"""Readers of a corpus's files, one per kind."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

from ngramkit.basics.errors import BadRecordError, InputError, first_line
from ngramkit.basics.untrusted import parse_json
from ngramkit.corpus.agent_sessions.read import TRACE_COLUMNS, holds_traces, is_session
from ngramkit.corpus.agent_sessions.rows import session_rows
from ngramkit.corpus.columns import ColumnContent, Columns, choose_text_column
from ngramkit.corpus.document import Row
from ngramkit.corpus.json_records import is_document
from ngramkit.corpus.rows import (
    CONVERTED_ROWS,
    MAX_ROW_VALUES,
    ReaderOptions,
    RowMaker,
    make_or_skip,
    record_rows,
    table_rows,
)
from ngramkit.corpus.separated import read_separated
from ngramkit.corpus.unpacking import (
    MAGIC,
    MAX_RATIO,
    WIDE,
    MessageError,
    non_blank_lines,
    read_whole,
    require_bounded,
    table_row,
)

MIN_SPLIT_FILE_BYTES = 16 << 20  # smaller parquet files are not split
SESSION_RECORDS = 20  # inspected to recognise a session of an agent
SPLIT_BYTES = 64 << 20  # uncompressed bytes of the row groups in one piece
JSON_HEAD_BYTES = 1 << 20  # bytes inspected to distinguish JSON lines from a document
BINARY_HEAD_BYTES = 8000  # as git: a zero byte among them makes a file binary
# Codecs that Python sources never use: one always fails, the others take quadratic time.
REFUSED_CODECS = {"undefined", "idna", "punycode"}


Reader = Callable[[Path, IO[bytes], ReaderOptions], Iterator[Row]]


# Parquet files: splitting, counting, progress.


def _parquet_footer(file: Path | IO[bytes]) -> Any:
    """Return the pyarrow.parquet.FileMetaData; None if damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with suppress(pa.ArrowException, OSError, UnicodeError):
        return pq.read_metadata(file)
    return None


def split_row_groups(path: Path) -> list[tuple[int, int]]:
    """Return row groups [begin, end) of about SPLIT_BYTES; [] for a small or damaged file."""
    footer = (
        _parquet_footer(path)
        if path.exists() and path.stat().st_size >= MIN_SPLIT_FILE_BYTES
        else None
    )
    if footer is None:
        return []
    cuts, total = [0], 0
    for group in range(footer.num_row_groups):
        size = footer.row_group(group).total_byte_size
        if total and total + size > SPLIT_BYTES:
            cuts.append(group)
            total = 0
        total += size
    return list(zip(cuts, [*cuts[1:], footer.num_row_groups], strict=True))


def count_documents(path: Path, column: str | None, groups: Sequence[int] | None) -> int | None:
    """Count the documents in `groups` (None: all); None if that requires reading."""
    import pyarrow as pa

    footer = _parquet_footer(path)
    if footer is None:
        return None
    try:
        columns = Columns.of_schema(footer.schema.to_arrow_schema())
        if (
            columns.top.get(choose_text_column(columns, column, str(path)))
            is not ColumnContent.TEXT
        ):
            return None
    except (pa.ArrowException, UnicodeError, InputError):
        return None  # reading reports the error
    counted = range(footer.num_row_groups) if groups is None else groups
    return sum(int(footer.row_group(i).num_rows) for i in counted)


def row_places(path: Path, file: IO[bytes]) -> Iterator[int] | None:
    """Return the bytes read up to each parquet row, else None."""
    if path.suffix.lower() != ".parquet" or not file.seekable():
        return None
    footer = _parquet_footer(file)
    file.seek(0)

    def places() -> Iterator[int]:
        before = 0
        for group in map(footer.row_group, range(footer.num_row_groups)):
            columns = map(group.column, range(group.num_columns))
            size = sum(column.total_compressed_size for column in columns)
            for row in range(group.num_rows):
                yield before + size * (row + 1) // group.num_rows
            before += size

    return None if footer is None else places()


# The readers.


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
                f"cannot read {path}: {error}", "correct the file, or leave it out"
            ) from error

    yield make_or_skip(row, reading.skip_bad)


def _decode_text(path: Path, raw: bytes, encoding: str) -> str:
    if b"\0" in raw[:BINARY_HEAD_BYTES]:
        raise BadRecordError(
            f"{path} must be UTF-8 text, got {WIDE.get(raw[:2], 'binary data')}",
            "convert the file to UTF-8, or leave it out",
        )
    try:
        text = raw.decode(encoding)
    except UnicodeError as error:
        place = f"byte {error.start:,}" if isinstance(error, UnicodeDecodeError) else "it"
        raise BadRecordError(
            f"cannot read {path} as {encoding.removesuffix('-sig')}: {place} cannot be decoded",
            "convert the file to UTF-8, or leave it out",
        ) from error
    return io.IncrementalNewlineDecoder(None, translate=True).decode(text, final=True)


def read_json_records(
    path: Path, file: IO[bytes], reading: ReaderOptions, *, usually_document: bool = False
) -> Iterator[Row]:
    """Yield a row per line of JSON lines or record of a JSON document."""
    head = file.read(JSON_HEAD_BYTES)
    if _is_document(path, head, usually_document):
        raw = read_whole(file, reading.max_whole, str(path), head)
        return _json_rows(_list_records(_parse_record(raw, str(path)), str(path)), reading)

    def records() -> Iterator[tuple[str, Any]]:
        for number, line in non_blank_lines(file, reading.max_document, str(path), head=head):
            where = f"{path}, line {number}"
            yield where, _parse_record(line, where)

    return _json_rows(records(), reading)


def _json_rows(records: Iterator[tuple[str, Any]], reading: ReaderOptions) -> Iterator[Row]:
    """Yield the rows of records, which are a session if one of the first is an agent's."""
    begun = list(islice(records, SESSION_RECORDS)) if reading.column is None else []
    is_of_agent = any(isinstance(each, dict) and is_session(each) for _, each in begun)
    make = session_rows if is_of_agent else record_rows
    return make(chain(begun, records), reading)


def _is_document(path: Path, head: bytes, usually: bool) -> bool:
    begun = [
        line for _, line in islice(non_blank_lines(io.BytesIO(head), JSON_HEAD_BYTES, str(path)), 3)
    ]
    if begun and len(head) == JSON_HEAD_BYTES:  # the last line may be incomplete
        begun.pop()
    if len(begun) < 2 and usually:
        return True
    return is_document(*begun[:2]) if begun else head.lstrip().startswith(b"[")


def _list_records(body: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(body, BadRecordError):
        return iter([(where, body)])
    listed = enumerate(body if isinstance(body, list) else [body])
    return ((f"{where}, record {number}", record) for number, record in listed)


def _parse_record(raw: bytes, where: str) -> Any:
    """Return the parsed record, or the BadRecordError."""
    hint = "mend it, or drop it"
    try:
        return parse_json(raw, where, most_values=MAX_ROW_VALUES, error=BadRecordError, hint=hint)
    except BadRecordError as error:
        return error


def read_parquet(
    path: Path, file: IO[bytes], reading: ReaderOptions, groups: Sequence[int] | None = None
) -> Iterator[Row]:
    """Yield the rows of `groups` (None: all)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(file)
        if reading.column is None and holds_traces(schema.names):
            yield from session_rows(_session_table(path, file, groups, reading), reading)
            return
        maker = RowMaker.of(Columns.of_schema(schema), str(path), reading)
        # As dictionaries, so that a value that occurs a million times is in memory once.
        folded = pq.ParquetFile(file, read_dictionary=_text_paths(pq.read_metadata(file)))
        at_once = _rows_at_once(folded.metadata, reading.max_document)
        sizes = [folded.metadata.row_group(i).num_rows for i in range(folded.num_row_groups)]
        for group in range(len(sizes)) if groups is None else groups:
            batches = _group_batches(file, folded, group, maker.columns, at_once)
            yield from table_rows(path, maker, batches, reading, first=sum(sizes[:group]))
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise _damaged_file(path, error) from error


def _session_table(
    path: Path, file: IO[bytes], groups: Sequence[int] | None, reading: ReaderOptions
) -> Iterator[tuple[str, Any]]:
    """Yield the sessions of a table, one at a time."""
    import pyarrow.parquet as pq

    table = pq.ParquetFile(file)
    columns = [name for name in TRACE_COLUMNS if name in table.schema_arrow.names]
    chosen = None if groups is None else list(groups)
    for number, batch in enumerate(table.iter_batches(1, row_groups=chosen, columns=columns)):
        yield f"{path}, row {number}", table_row(f"{path}, row {number}", batch, reading.max_whole)


def _group_batches(
    file: IO[bytes], folded: Any, group: int, columns: list[str], many: int
) -> Iterator[Any]:
    """Yield a row group's batches; lists of dictionaries cannot span two."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    begun = False
    try:
        for batch in folded.iter_batches(many, row_groups=[group], columns=columns):
            begun = True
            yield batch
    except (pa.ArrowException, OSError) as error:
        if begun or "DictAccumulator" not in str(error):
            raise
        # Delta encoding, which cannot become a dictionary; row by row, as a value may be huge.
        yield from pq.ParquetFile(file).iter_batches(1, row_groups=[group], columns=columns)


def read_arrow(path: Path, file: IO[bytes], reading: ReaderOptions) -> Iterator[Row]:
    import pyarrow as pa

    try:
        batches = _arrow_batches(file, reading.max_document)
        for first in islice(batches, 1):
            maker = RowMaker.of(Columns.of_schema(first.schema), str(path), reading)
            yield from table_rows(path, maker, chain([first], batches), reading)
    except (pa.ArrowException, OSError, UnicodeError, MessageError) as error:
        raise _damaged_file(path, error) from error


def _arrow_batches(file: IO[bytes], most: int) -> Iterator[Any]:
    """Yield batches without trusting a file's footer."""
    import pyarrow as pa

    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    if file.read(len(MAGIC)) != MAGIC:
        file.seek(0)
    require_bounded(file, size, MAX_RATIO * max(size, most))
    yield from pa.ipc.open_stream(file)


def _text_paths(footer: Any) -> list[str]:
    columns = (footer.schema.column(i) for i in range(footer.num_columns))
    return [column.path for column in columns if column.logical_type.type == "STRING"]


def _rows_at_once(footer: Any, most: int) -> int:
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    size = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return max(1, min(CONVERTED_ROWS, most // max(size, 1)))


def _damaged_file(path: Path, error: Exception) -> InputError:
    return InputError(f"{path} is damaged: {first_line(error)}", "fetch the file again")


READERS: dict[str, Reader] = {
    ".txt": read_text,
    ".md": read_text,
    ".py": read_python,
    ".jsonl": read_json_records,
    ".ndjson": read_json_records,
    ".json": partial(read_json_records, usually_document=True),
    ".csv": read_separated,
    ".tsv": partial(read_separated, separator="\t"),
    ".parquet": read_parquet,
    ".arrow": read_arrow,
}
