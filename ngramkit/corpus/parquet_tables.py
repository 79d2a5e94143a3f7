"""Parquet files: their rows, and how they are split, counted and followed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from ngramkit.basics.errors import InputError
from ngramkit.corpus.agent_sessions.read import TRACE_COLUMNS, holds_traces
from ngramkit.corpus.agent_sessions.rows import session_rows
from ngramkit.corpus.arrow_tables import CONVERTED_ROWS, damaged_table, table_rows
from ngramkit.corpus.columns import TEXT_COLUMNS, ColumnContent, Columns, choose_text_column
from ngramkit.corpus.document import Row
from ngramkit.corpus.rows import ReaderOptions, RowMaker
from ngramkit.corpus.unpacking import table_row

MIN_SPLIT_FILE_BYTES = 16 << 20  # smaller files are not split
SPLIT_BYTES = 64 << 20  # uncompressed bytes of the row groups in one piece


def _parquet_footer(file: Path | IO[bytes]) -> Any:
    """Return the pyarrow.parquet.FileMetaData; None if damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with suppress(pa.ArrowException, OSError, UnicodeError):
        return pq.read_metadata(file)
    return None


def parquet_schema(file: IO[bytes]) -> Any:
    """Return the pyarrow.Schema, without columns if it is damaged: reading reports the error."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with suppress(pa.ArrowException, OSError, UnicodeError):
        return pq.read_schema(file)
    return pa.schema([])


def split_row_groups(path: Path) -> list[tuple[int, int]]:
    """Return row groups [begin, end) of about SPLIT_BYTES; [] for a small or damaged file."""
    is_large = path.exists() and path.stat().st_size >= MIN_SPLIT_FILE_BYTES
    footer = _parquet_footer(path) if is_large else None
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
        chosen = choose_text_column(columns, column, str(path))
        if columns.top.get(chosen) is not ColumnContent.TEXT or chosen not in TEXT_COLUMNS:
            return None  # a row may be a conversation
    except (pa.ArrowException, UnicodeError, InputError):
        return None  # reading reports the error
    counted = range(footer.num_row_groups) if groups is None else groups
    return sum(int(footer.row_group(i).num_rows) for i in counted)


def row_places(file: IO[bytes]) -> Iterator[int] | None:
    """Return the bytes read up to each row, or None if they are unknown."""
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


def read_parquet(
    path: Path, file: IO[bytes], reading: ReaderOptions, groups: Sequence[int] | None = None
) -> Iterator[Row]:
    """Yield the rows of `groups` (None: all)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(file)
        if reading.column is None and holds_traces(table.schema_arrow.names):
            yield from session_rows(_session_table(path, table, groups, reading), reading)
            return
        maker = RowMaker.of(Columns.of_schema(table.schema_arrow), str(path), reading)
        # As dictionaries, so that a value that occurs a million times is in memory once.
        folded = pq.ParquetFile(file, read_dictionary=_text_paths(table.metadata))
        at_once = _rows_at_once(folded.metadata, reading.max_document)
        sizes = [folded.metadata.row_group(i).num_rows for i in range(folded.num_row_groups)]
        for group in range(len(sizes)) if groups is None else groups:
            batches = _group_batches(table, folded, group, maker.columns, at_once)
            yield from table_rows(path, maker, batches, reading, first=sum(sizes[:group]))
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise damaged_table(path, error) from error


def _session_table(
    path: Path, table: Any, groups: Sequence[int] | None, reading: ReaderOptions
) -> Iterator[tuple[str, Any]]:
    """Yield the sessions of a table, one at a time."""
    columns = [name for name in TRACE_COLUMNS if name in table.schema_arrow.names]
    chosen = None if groups is None else list(groups)
    for number, batch in enumerate(table.iter_batches(1, row_groups=chosen, columns=columns)):
        yield f"{path}, row {number}", table_row(f"{path}, row {number}", batch, reading.max_whole)


def _group_batches(
    table: Any, folded: Any, group: int, columns: list[str], many: int
) -> Iterator[Any]:
    """Yield a row group's batches; lists of dictionaries cannot span two."""
    import pyarrow as pa

    begun = False
    try:
        for batch in folded.iter_batches(many, row_groups=[group], columns=columns):
            begun = True
            yield batch
    except (pa.ArrowException, OSError) as error:
        if begun or "DictAccumulator" not in str(error):
            raise
        # Delta encoding, which cannot become a dictionary; row by row, as a value may be huge.
        yield from table.iter_batches(1, row_groups=[group], columns=columns)


def _text_paths(footer: Any) -> list[str]:
    columns = (footer.schema.column(i) for i in range(footer.num_columns))
    return [column.path for column in columns if column.logical_type.type == "STRING"]


def _rows_at_once(footer: Any, most: int) -> int:
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    size = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return max(1, min(CONVERTED_ROWS, most // max(size, 1)))
