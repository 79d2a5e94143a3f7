"""One reader per kind of file: open bytes in, rows out. Each says file and place in its errors.

Knows bytes and columns; not folders, compression or the Hub.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ngramkit.corpus.columns import RowMaker, text_column
from ngramkit.corpus.document import Row
from ngramkit.errors import InputError

Reader = Callable[[Path, IO[bytes], str | None, bool], Iterator[Row]]
BATCH = 1024  # rows of a parquet file decoded at a time
# PEP 263: only the first two lines may declare an encoding.
CODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")


def read_text(path: Path, file: IO[bytes], column: str | None, join_turns: bool) -> Iterator[Row]:
    """The whole file is one document, in UTF-8."""
    yield Row((_decoded(path, file.read(), "utf-8-sig"),))


def read_python(path: Path, file: IO[bytes], column: str | None, join_turns: bool) -> Iterator[Row]:
    """As read_text, in the encoding that the source declares."""
    raw = file.read()
    declared = next(filter(None, map(CODING.match, raw.splitlines()[:2])), None)
    encoding = declared.group(1).decode() if declared else "utf-8-sig"
    yield Row((_decoded(path, raw, encoding),))


def _decoded(path: Path, raw: bytes, encoding: str) -> str:
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not {error.encoding}: byte {error.start:,} cannot be decoded",
            "convert the file to UTF-8, or leave it out",
        ) from error
    except LookupError as error:
        raise InputError(f"{path} declares an encoding that nobody knows: {encoding}") from error
    return io.IncrementalNewlineDecoder(None, translate=True).decode(text, final=True)


def read_jsonl(path: Path, file: IO[bytes], column: str | None, join_turns: bool) -> Iterator[Row]:
    """One record a line; blank lines count for nothing."""
    maker: RowMaker | None = None
    for number, line in enumerate(file, 1):
        if line.isspace():
            continue
        where = f"{path}, line {number}"
        record = _parsed(where, line)
        maker = maker or _maker(str(path), record, column, join_turns)
        yield _row(where, maker, record)


def read_json(path: Path, file: IO[bytes], column: str | None, join_turns: bool) -> Iterator[Row]:
    """A list of records, or one record; the file is read whole."""
    body = _parsed(str(path), file.read())
    records = body if isinstance(body, list) else [body]
    maker: RowMaker | None = None
    for number, record in enumerate(records):
        maker = maker or _maker(str(path), record, column, join_turns)
        yield _row(f"{path}, record {number}", maker, record)


def _parsed(where: str, raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is not UTF-8: {error}", "convert it, or drop it") from error
    except ValueError as error:
        raise InputError(f"{where} is not JSON: {error}", "mend it, or drop it") from error
    except RecursionError as error:
        raise InputError(f"{where} nests too deeply to be read", "mend it, or drop it") from error


def _maker(where: str, record: Any, column: str | None, join_turns: bool) -> RowMaker:
    if isinstance(record, str):
        return RowMaker("")
    if not isinstance(record, dict):
        raise InputError(f"{where} holds no objects", "one JSON object per document")
    columns = {name: isinstance(value, str) for name, value in record.items()}
    return RowMaker.of(columns, text_column(columns, column, where), join_turns=join_turns)


def _row(where: str, maker: RowMaker, record: Any) -> Row:
    try:
        if isinstance(record, str) and not maker.column:
            return Row((record,))
        if isinstance(record, Mapping):
            return maker.row(record)
        raise TypeError(f"{type(record).__name__} where an object was expected")
    except KeyError as error:
        raise InputError(f"{where} has no {maker.column!r}", "mend it, or drop it") from error
    except TypeError as error:
        raise InputError(
            f"{where}: {error}", "choose another column, or mend it", option="column"
        ) from error


def read_parquet(
    path: Path, file: IO[bytes], column: str | None, join_turns: bool
) -> Iterator[Row]:
    """Only the needed columns are decoded."""
    try:
        parquet = pq.ParquetFile(file)
        maker = _table_maker(path, parquet.schema_arrow, column, join_turns)
        for batch in parquet.iter_batches(BATCH, columns=maker.columns):
            yield from _batch_rows(path, maker, batch)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error


def read_arrow(path: Path, file: IO[bytes], column: str | None, join_turns: bool) -> Iterator[Row]:
    """Arrow IPC, as a file or as a stream (which is what `datasets` saves)."""
    try:
        for batch in _arrow_batches(file):
            maker = _table_maker(path, batch.schema, column, join_turns)
            yield from _batch_rows(path, maker, batch)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error


def _arrow_batches(file: IO[bytes]) -> Iterator[Any]:
    magic = file.read(6)
    file.seek(0)
    if magic == b"ARROW1":
        whole = pa.ipc.open_file(file)
        yield from (whole.get_batch(i) for i in range(whole.num_record_batches))
    else:
        yield from pa.ipc.open_stream(file)


def _table_maker(path: Path, schema: Any, column: str | None, join_turns: bool) -> RowMaker:
    columns = {field.name: _is_string(field.type) for field in schema}
    return RowMaker.of(columns, text_column(columns, column, str(path)), join_turns=join_turns)


def _is_string(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _batch_rows(path: Path, maker: RowMaker, batch: Any) -> Iterator[Row]:
    for record in batch.select(maker.columns).to_pylist():
        yield _row(str(path), maker, record)


def _damaged(path: Path, error: Exception) -> InputError:
    said = str(error).splitlines()[0] if str(error) else repr(error)
    return InputError(f"{path} is damaged: {said}", "fetch the file again")


READERS: dict[str, Reader] = {
    ".txt": read_text,
    ".md": read_text,
    ".py": read_python,
    ".jsonl": read_jsonl,
    ".json": read_json,
    ".parquet": read_parquet,
    ".arrow": read_arrow,
}
