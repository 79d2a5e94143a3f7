"""Rows of Parquet files, as the Hub converts datasets of logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ngramkit.basics.errors import InputError, first_line
from ngramkit.basics.untrusted import open_stream
from ngramkit.corpus.agent_sessions.read import TRACE_COLUMNS, holds_traces
from ngramkit.corpus.unpacking import table_row
from ngramkit.logs.request import FilePlace, Line

MAGIC = b"PAR1"
HOW_TO_CONVERT = "Write the requests as JSON lines."


def parquet_rows(path: Path, unread: Counter[str] | None, most: int) -> Iterator[Line]:
    """Yield each row as an object, one at a time. Raises InputError beyond `most` bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_stream(path) as raw:
            table = pq.ParquetFile(raw)
            names = table.schema_arrow.names
            columns = TRACE_COLUMNS if holds_traces(names) else names
            chosen = [name for name in columns if name in names]
            for number, batch in enumerate(table.iter_batches(1, columns=chosen), 1):
                where = FilePlace(path, "row", number, unread)
                yield where, table_row(str(where), batch, most)
    except (pa.ArrowException, OSError, UnicodeError, TypeError) as error:
        raise InputError(
            f"cannot read {path} as Parquet: {first_line(error)}", HOW_TO_CONVERT
        ) from error
