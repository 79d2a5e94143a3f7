"""One reader per kind of file: open bytes in, rows out. Each says file and place in its errors.

Knows bytes and columns; not folders, compression or the Hub.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ngramkit.corpus.arrow_messages import MAGIC, MessageError, require_bounded
from ngramkit.corpus.arrow_sizes import is_string, row_sizes, without_dictionaries
from ngramkit.corpus.bounded import lines, too_large, whole
from ngramkit.corpus.columns import RowMaker, text_column
from ngramkit.corpus.document import Row
from ngramkit.errors import InputError
from ngramkit.formats.json_text import count_values

# path, open bytes, text column, one document a conversation?, most bytes of a document; of a .json
# file, which is read whole, of the file
Reader = Callable[[Path, IO[bytes], str | None, bool, int], Iterator[Row]]
MOST_VALUES = 1 << 22  # of a record, or of a .json file: Python takes some 100 bytes for each
BYTES_OF_VALUE = 64  # that Python takes beside a text
BATCH = 1024  # rows of a parquet file decoded at a time, at most
UNFOLDED = 16  # times a file's size, or a document's: what is unpacked as a whole may have
# Text codecs that no source is written in: one is no code, the others take quadratic time.
NOT_FOR_SOURCES = {"undefined", "idna", "punycode"}
# PEP 263: only the first two lines may declare an encoding.
CODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")


def read_text(
    path: Path, file: IO[bytes], column: str | None, join_turns: bool, most: int
) -> Iterator[Row]:
    """The whole file is one document, in UTF-8."""
    yield Row((_decoded(path, whole(file, most, str(path)), "utf-8-sig"),))


def read_python(
    path: Path, file: IO[bytes], column: str | None, join_turns: bool, most: int
) -> Iterator[Row]:
    """As read_text, in the encoding that the source declares."""
    raw = whole(file, most, str(path))
    declared = next(filter(None, map(CODING.match, raw.splitlines()[:2])), None)
    encoding = declared.group(1).decode() if declared else "utf-8-sig"
    yield Row((_decoded(path, raw, encoding),))


def _decoded(path: Path, raw: bytes, encoding: str) -> str:
    try:
        if encoding.lower() in NOT_FOR_SOURCES:
            raise LookupError(encoding)
        text = raw.decode(encoding)
    except LookupError as error:
        raise InputError(
            f"{path} declares an encoding that nobody knows: {encoding}",
            "correct it, or leave the file out",
        ) from error
    except UnicodeError as error:
        place = f"byte {error.start:,}" if isinstance(error, UnicodeDecodeError) else "it"
        raise InputError(
            f"{path} is not {encoding.removesuffix('-sig')}: {place} cannot be decoded",
            "convert the file to UTF-8, or leave it out",
        ) from error
    return io.IncrementalNewlineDecoder(None, translate=True).decode(text, final=True)


def read_jsonl(
    path: Path, file: IO[bytes], column: str | None, join_turns: bool, most: int
) -> Iterator[Row]:
    """One record a line; blank lines count for nothing."""
    maker: RowMaker | None = None
    for number, line in lines(file, most, str(path)):
        where = f"{path}, line {number}"
        record = _parsed(where, line)
        maker = maker or _maker(str(path), record, column, join_turns)
        yield _row(where, maker, record)


def read_json(
    path: Path, file: IO[bytes], column: str | None, join_turns: bool, most: int
) -> Iterator[Row]:
    """A list of records, or one record; the file is read whole."""
    body = _parsed(str(path), whole(file, most, str(path)))
    records = body if isinstance(body, list) else [body]
    maker: RowMaker | None = None
    for number, record in enumerate(records):
        maker = maker or _maker(str(path), record, column, join_turns)
        yield _row(f"{path}, record {number}", maker, record)


def _parsed(where: str, raw: bytes) -> Any:
    if count_values(raw) > MOST_VALUES:
        raise _too_many(where, MOST_VALUES)
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
    path: Path,
    file: IO[bytes],
    column: str | None,
    join_turns: bool,
    most: int,
    groups: Sequence[int] | None = None,
) -> Iterator[Row]:
    """Only the needed columns are decoded; of the row groups `groups`, by default of all."""
    try:
        schema = pq.read_schema(file)
        maker = _table_maker(path, schema, column, join_turns)
        # As dictionaries: a value that is there a million times is held once.
        folded = pq.ParquetFile(file, read_dictionary=_texts(pq.read_metadata(file)))
        many = _rows_at_once(folded.metadata, most)
        for group in range(folded.num_row_groups) if groups is None else groups:
            for batch in _group_batches(file, folded, group, maker.columns, many):
                yield from _batch_rows(path, maker, batch, most)
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise _damaged(path, error) from error


def _group_batches(
    file: IO[bytes], folded: Any, group: int, columns: list[str], many: int
) -> Iterator[Any]:
    """One row group's: no batch of lists of dictionaries may reach over two of them."""
    begun = False
    try:
        for batch in folded.iter_batches(many, row_groups=[group], columns=columns):
            begun = True
            yield batch
    except (pa.ArrowException, OSError) as error:
        if begun or "DictAccumulator" not in str(error):
            raise
        # Written as differences, which make no dictionary: each value may say again what the one
        # before it says.
        yield from pq.ParquetFile(file).iter_batches(1, row_groups=[group], columns=columns)


def read_arrow(
    path: Path, file: IO[bytes], column: str | None, join_turns: bool, most: int
) -> Iterator[Row]:
    """Arrow IPC, as a file or as a stream (which is what `datasets` saves)."""
    try:
        for batch in _arrow_batches(file, most):
            maker = _table_maker(path, batch.schema, column, join_turns)
            yield from _batch_rows(path, maker, batch, most)
    except (pa.ArrowException, OSError, UnicodeError, MessageError) as error:
        raise _damaged(path, error) from error


def _arrow_batches(file: IO[bytes], most: int) -> Iterator[Any]:
    """Of a file, too, those of the stream in it: what its footer says may be another thing."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    if file.read(len(MAGIC)) != MAGIC:
        file.seek(0)
    require_bounded(file, size, UNFOLDED * max(size, most))
    yield from pa.ipc.open_stream(file)


def _table_maker(path: Path, schema: Any, column: str | None, join_turns: bool) -> RowMaker:
    columns = {field.name: is_string(field.type) for field in schema}
    return RowMaker.of(columns, text_column(columns, column, str(path)), join_turns=join_turns)


def _texts(found: Any) -> list[str]:
    """The paths of columns of texts, below lists and objects too."""
    columns = (found.schema.column(i) for i in range(found.num_columns))
    return [column.path for column in columns if column.logical_type.type == "STRING"]


def _rows_at_once(found: Any, most: int) -> int:
    """So that they hold about as much as one document may."""
    groups = [found.row_group(i) for i in range(found.num_row_groups)]
    size = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return max(1, min(BATCH, most // max(size, 1)))


def _batch_rows(path: Path, maker: RowMaker, batch: Any, most: int) -> Iterator[Row]:
    """The rows, unfolded only as many at a time as hold as much as one document may."""
    chosen = batch.select(maker.columns)
    chosen.validate(full=True)  # offsets and indices are taken as they stand by everything else
    try:
        found = [row_sizes(column) for column in chosen.columns]
    except TypeError as error:
        raise InputError(f"{path}: {error}", "choose another column", option="column") from error
    held = np.sum([sizes.bytes for sizes in found], axis=0)
    values = np.sum([sizes.values for sizes in found], axis=0)
    if held.max(initial=0) > most:
        raise too_large(str(path), most)
    if values.max(initial=0) > MOST_VALUES:
        raise _too_many(path, MOST_VALUES)
    longest = int((held + BYTES_OF_VALUE * values).max(initial=0))
    step = max(1, min(BATCH, most // max(longest, 1)))
    plain = pa.schema([(field.name, without_dictionaries(field.type)) for field in chosen.schema])
    for begin in range(0, chosen.num_rows, step):
        for record in chosen.slice(begin, step).cast(plain).to_pylist():  # in half the time
            yield _row(str(path), maker, record)


def _too_many(where: str | Path, most: int) -> InputError:
    return InputError(f"{where} holds more than {most:,} values", "cut it into several")


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
