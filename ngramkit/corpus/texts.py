"""Texts in memory as a corpus.

They are read once into a temporary file (compressed Arrow IPC). The record's sha256 covers a line
of JSON per row: [texts, licences, repository], or null for a bad row. Containers are recognized by
their methods, without importing their packages.
"""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Iterable, Iterator, Mapping, Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from typing import IO, Any, Protocol

from ngramkit.basics.errors import InputError, UsageError, first_line
from ngramkit.corpus.arrow_tables import table_rows
from ngramkit.corpus.columns import Columns
from ngramkit.corpus.document import DocumentSource, Row
from ngramkit.corpus.hub import columns_of, dataset_errors, dataset_rows
from ngramkit.corpus.rows import ReaderOptions, RowMaker, make_or_skip, record_rows, require_text

TEXTS_NAME = "texts"  # the default name
ANY_SIZE = 1 << 62  # bytes
BATCH_CHARACTERS, BATCH_ROWS = 1 << 24, 1 << 16  # of a batch in the temporary file
OBJECT_ROWS = 1024  # rows that are Python objects at a time


def spool_schema() -> Any:
    import pyarrow as pa

    return pa.schema(
        [
            ("texts", pa.list_(pa.large_string())),
            ("licenses", pa.list_(pa.string())),
            ("repository", pa.string()),
            ("bad", pa.string()),
        ]
    )


class ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


Texts = Iterable[str] | Iterable[Mapping[str, Any]] | ArrowStream


def read_texts(texts: Any, name: str, reading: ReaderOptions) -> Iterator[Row]:
    """Yield a row per text or record. Raises UsageError without texts or a fixed order."""
    import pyarrow as pa

    if isinstance(texts, Mapping):
        keys = ", ".join(repr(key) for key in list(texts)[:10])
        hint = f"Give one of its values (keys: {keys}), or records as a list of dicts."
        raise _no_corpus(texts, hint)
    if isinstance(texts, AbstractSet):
        raise _no_corpus(texts, "Give sorted(...): a set has no order.")
    if isinstance(texts, bytes | bytearray | memoryview):
        raise _no_corpus(texts, "Decode it, and give a list of texts.")
    if hasattr(texts, "with_format") and hasattr(texts, "select_columns"):
        rows = _dataset_rows(texts, name, reading)
    elif hasattr(texts, "__arrow_c_stream__") or isinstance(texts, pa.Array):
        rows = _arrow_rows(texts, name, reading)
    elif hasattr(type(texts), "columns") or not _is_iterable(texts):
        hint = "Give a list, a generator, a column, an Arrow table, or the name of a corpus."
        raise _no_corpus(texts, "Call collect() first." if hasattr(texts, "collect") else hint)
    else:
        rows = _item_rows(texts, name, reading)
    for number, row in enumerate(rows):
        yield make_or_skip(partial(_checked_row, row, f"{name}, row {number}"), reading.skip_bad)


def _is_iterable(texts: Any) -> bool:
    """Return False for zero-dimensional arrays, too."""
    return isinstance(texts, Iterable) and getattr(texts, "ndim", 1) > 0


def _no_corpus(given: object, hint: str) -> UsageError:
    name = f"{type(given).__module__.partition('.')[0]}.{type(given).__name__}"
    return UsageError(
        f"corpus must be texts or names, got {name.removeprefix('builtins.')}",
        hint,
        option="corpus",
    )


def _checked_row(row: Row, where: str) -> Row:
    for text in row.texts:
        require_text(text, where)
    return row


def _dataset_rows(dataset: Any, name: str, reading: ReaderOptions) -> Iterator[Row]:
    with dataset_errors(name):
        if dataset.features is None:  # tables of single records would differ in types
            yield from _item_rows(dataset.with_format(None), name, reading)
            return
        maker = RowMaker.of(columns_of(dataset), name, reading)
        chosen = dataset.select_columns(maker.columns).with_format("arrow")
        yield from dataset_rows(chosen, name, maker, reading)


def _arrow_rows(texts: Any, name: str, reading: ReaderOptions) -> Iterator[Row]:
    import pyarrow as pa

    batches = None
    try:
        if not isinstance(texts, pa.Array):
            batches = pa.RecordBatchReader.from_stream(texts)
    except (pa.ArrowException, ValueError) as error:
        if "non-struct" not in str(error):  # not a single column
            items = _rows_of_columns(texts)
            if items is None:
                raise _not_arrow(name, error) from error
            yield from _item_rows(items, name, reading)
            return
    try:
        if batches is None:
            _require_no_column(reading, name)
            column = texts if isinstance(texts, pa.Array) else pa.chunked_array(texts)
            batches = pa.table({TEXTS_NAME: column}).to_reader()
            reading = replace(reading, column=TEXTS_NAME)
        maker = RowMaker.of(Columns.of_schema(batches.schema), name, reading)
        yield from table_rows(name, maker, batches, reading)
    except (pa.ArrowException, UnicodeError) as error:
        raise _not_arrow(name, error) from error


def _not_arrow(name: str, error: Exception) -> InputError:
    return InputError(
        f"cannot read {name} as Arrow: {first_line(error)}", "Give only the column of texts."
    )


def _rows_of_columns(texts: Any) -> Iterable[Any] | None:
    """Return the rows of columns that Arrow rejects, or None."""
    if not hasattr(texts, "columns"):
        return texts if isinstance(texts, Iterable) else None
    if not hasattr(texts, "itertuples") or not texts.columns.is_unique:
        return None
    rows = texts.itertuples(index=False, name=None)
    return (dict(zip(texts.columns, row, strict=True)) for row in rows)


def _item_rows(texts: Iterable[Any], name: str, reading: ReaderOptions) -> Iterator[Row]:
    items = iter(texts)
    first = list(islice(items, 1))
    if first and isinstance(first[0], str):
        _require_no_column(reading, name)
    numbered = enumerate(chain(first, items))
    return record_rows(((f"{name}, row {n}", item) for n, item in numbered), reading)


def _require_no_column(reading: ReaderOptions, name: str) -> None:
    if reading.column is not None:
        raise UsageError(
            f"cannot use column: {name} has no columns", "Leave out column.", option="column"
        )


# The temporary file.


class Spool(DocumentSource):
    """A source that copies the rows that are read from it to a temporary file; read it once."""

    parts = 1

    def __init__(self, name: str, unread: Iterator[Row], file: IO[bytes]) -> None:
        import pyarrow as pa

        self.id, self._unread, self._file = name, unread, file
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        self._writer = pa.ipc.new_file(self._file, spool_schema(), options=options)
        self._rows: list[dict[str, Any]] = []
        self._characters = self._texts = 0
        self._digest = hashlib.sha256()

    def record(self) -> dict[str, Any]:
        return {}

    def rows(self, part: int) -> Iterator[Row]:
        for row in self._unread:
            self._rows.append(row._asdict())
            pinned = None if row.bad else [row.texts, row.licenses, row.repository]
            self._digest.update(f"{json.dumps(pinned)}\n".encode())
            self._texts += len(row.texts)
            self._characters += sum(map(len, row.texts))
            if self._characters >= BATCH_CHARACTERS or len(self._rows) == BATCH_ROWS:
                self._flush()
            yield row

    def _flush(self) -> None:
        import pyarrow as pa

        self._writer.write_batch(pa.RecordBatch.from_pylist(self._rows, spool_schema()))
        self._rows, self._characters = [], 0

    def finish(self, *, skip_bad: bool) -> SpooledTexts:
        """Finish the file and open its rows; the caller may close it."""
        if self._rows:
            self._flush()
        self._writer.close()
        self._file.flush()
        mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        return SpooledTexts.of(mapped, self.id, self._texts, self._digest.hexdigest(), skip_bad)


@dataclass(frozen=True)
class SpooledTexts(DocumentSource):
    """Rows in a temporary file, each batch a part; pickles include the rows."""

    id: str
    texts: int
    sha256: str
    skip_bad: bool
    file: Any = field(compare=False, repr=False)  # a pyarrow.ipc.RecordBatchFileReader
    first: int = 0  # batch
    parts: int = 0

    @classmethod
    def of(cls, file: Any, name: str, texts: int, sha256: str, skip_bad: bool) -> SpooledTexts:
        import pyarrow as pa

        opened = pa.ipc.open_file(pa.BufferReader(file))
        return cls(name, texts, sha256, skip_bad, opened, parts=opened.num_record_batches)

    def __reduce__(self) -> Any:
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, spool_schema()) as writer:
            for part in range(self.parts):
                writer.write_batch(self.file.get_batch(self.first + part))
        file = sink.getvalue().to_pybytes()
        return self.of, (file, self.id, self.texts, self.sha256, self.skip_bad)

    def only(self, part: int) -> SpooledTexts:
        return replace(self, first=self.first + part, parts=1)

    def record(self) -> dict[str, Any]:
        record = {"texts": self.texts, "sha256": self.sha256}
        return {**record, "skip_bad": True} if self.skip_bad else record

    def rows(self, part: int) -> Iterator[Row]:
        batch = self.file.get_batch(self.first + part)
        for begin in range(0, batch.num_rows, OBJECT_ROWS):
            for row in batch.slice(begin, OBJECT_ROWS).to_pylist():
                yield Row(tuple(row.pop("texts")), tuple(row.pop("licenses")), **row)
