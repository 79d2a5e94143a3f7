"""Tables in Arrow's memory format, and Arrow files."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from ngramkit.basics.errors import InputError, first_line
from ngramkit.corpus.columns import Columns
from ngramkit.corpus.document import Row
from ngramkit.corpus.rows import (
    MAX_ROW_VALUES,
    ReaderOptions,
    RowMaker,
    make_or_skip,
    read_row,
    require_unique,
    too_many_values,
)
from ngramkit.corpus.unpacking import (
    MAGIC,
    MAX_RATIO,
    MessageError,
    require_bounded,
    row_sizes,
    too_large,
    without_dictionaries,
)

VALUE_OVERHEAD_BYTES = 64
CONVERTED_ROWS = 1024  # most rows as Python objects at a time


def read_arrow(path: Path, file: IO[bytes], reading: ReaderOptions) -> Iterator[Row]:
    import pyarrow as pa

    try:
        batches = _arrow_batches(file, reading.max_document)
        for first in islice(batches, 1):
            maker = RowMaker.of(Columns.of_schema(first.schema), str(path), reading)
            yield from table_rows(path, maker, chain([first], batches), reading)
    except (pa.ArrowException, OSError, UnicodeError, MessageError) as error:
        raise damaged_table(path, error) from error


def _arrow_batches(file: IO[bytes], most: int) -> Iterator[Any]:
    """Yield batches without trusting a file's footer."""
    import pyarrow as pa

    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    if file.read(len(MAGIC)) != MAGIC:
        file.seek(0)
    require_bounded(file, size, MAX_RATIO * max(size, most))
    yield from pa.ipc.open_stream(file)


def table_rows(
    where: Path | str,
    maker: RowMaker,
    batches: Iterable[Any],
    reading: ReaderOptions,
    *,
    first: int = 0,
) -> Iterator[Row]:
    """Yield rows, numbered from `first` in errors."""
    for batch in batches:
        for number, record in enumerate(_convert_records(where, maker, batch, reading), first):
            make = partial(read_row, f"{where}, row {number}", maker, record)
            yield make_or_skip(make, reading.skip_bad)
        first += batch.num_rows


def _convert_records(
    where: Path | str, maker: RowMaker, batch: Any, reading: ReaderOptions
) -> Iterator[dict[str, Any]]:
    """Convert about `max_document` bytes at a time."""
    import pyarrow as pa

    require_unique(maker.columns, batch.schema.names, where)
    chosen, most = batch.select(maker.columns), reading.max_document
    chosen.validate(full=True)  # pyarrow otherwise trusts offsets and indices
    try:
        all_sizes = [row_sizes(column) for column in chosen.columns]
    except TypeError as error:
        raise InputError(
            f"cannot read {where}: {error}", "Choose another column.", option="column"
        ) from error
    bytes_ = np.sum([sizes.bytes for sizes in all_sizes], axis=0)
    values = np.sum([sizes.values for sizes in all_sizes], axis=0)
    if bytes_.max(initial=0) > most:
        raise too_large(str(where), most)
    if values.max(initial=0) > MAX_ROW_VALUES:
        raise too_many_values(where)
    longest = int((bytes_ + VALUE_OVERHEAD_BYTES * values).max(initial=0))
    step = max(1, min(CONVERTED_ROWS, most // max(longest, 1)))
    plain = pa.schema([(field.name, without_dictionaries(field.type)) for field in chosen.schema])
    for begin in range(0, chosen.num_rows, step):
        rows = chosen.slice(begin, step)
        with suppress(pa.ArrowNotImplementedError):  # of a dictionary of views
            rows = rows.cast(plain)  # which takes half the time
        yield from rows.to_pylist()


def damaged_table(path: Path, error: Exception) -> InputError:
    return InputError(f"{path} is damaged: {first_line(error)}", "Fetch the file again.")
