"""Rows of Parquet files, as the Hub converts datasets of logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ngramkit.basics.errors import InputError, first_line
from ngramkit.basics.untrusted import open_stream
from ngramkit.corpus.sessions.read import TRACE_COLUMNS
from ngramkit.corpus.unpacking import row_sizes, too_large
from ngramkit.logs.request import FilePlace, Line

MAGIC = b"PAR1"
HINT = "Write the requests as JSON lines."


def parquet_rows(path: Path, unread: Counter[str] | None, most: int) -> Iterator[Line]:
    """Yield each row as an object, one at a time. Raises InputError beyond `most` bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_stream(path) as raw:
            table = pq.ParquetFile(raw)
            names = table.schema_arrow.names
            traces = [name for name in TRACE_COLUMNS if name in names]
            columns = traces if "harness" in traces else names
            for number, batch in enumerate(table.iter_batches(1, columns=columns), 1):
                where = FilePlace(path, "row", number, unread)
                batch.validate(full=True)  # pyarrow otherwise trusts offsets
                row = {
                    name: _value(where, column, most)
                    for name, column in zip(batch.schema.names, batch.columns, strict=True)
                }
                yield where, row
    except (pa.ArrowException, OSError, UnicodeError, TypeError) as error:
        raise InputError(f"cannot read {path} as Parquet: {first_line(error)}", HINT) from error


def _value(where: FilePlace, column: Any, most: int) -> Any:
    storage = getattr(column, "storage", column)  # JSON is a text
    if row_sizes(storage).bytes.sum() > most:
        raise too_large(str(where), most, HINT)
    return storage.to_pylist()[0]
