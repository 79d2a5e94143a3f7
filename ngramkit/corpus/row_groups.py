"""What the footer of a parquet file tells without its rows: where to cut it, how many there are.

So several processes read one large file, each some of its row groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ngramkit.corpus.arrow_sizes import is_string
from ngramkit.corpus.columns import text_column
from ngramkit.errors import InputError

LARGE = 16 << 20  # bytes of a file, from which on it is worth a look
STRETCH = 64 << 20  # bytes of unpacked columns


def stretches(path: Path) -> list[tuple[int, int]]:
    """Row groups [begin, end) of about STRETCH bytes each; none of a small or a damaged file."""
    try:
        if path.stat().st_size < LARGE:
            return []
        found = pq.read_metadata(path)
        sizes = [found.row_group(i).total_byte_size for i in range(found.num_row_groups)]
    except (pa.ArrowException, OSError, UnicodeError):
        return []
    cuts, held = [0], 0
    for group, size in enumerate(sizes):
        if held and held + size > STRETCH:
            cuts.append(group)
            held = 0
        held += size
    return list(zip(cuts, [*cuts[1:], len(sizes)], strict=True))


def documents(path: Path, column: str | None, groups: Sequence[int] | None) -> int | None:
    """How many documents there are in these row groups, by default in all; None where only the rows
    tell: a conversation may be several."""
    try:
        with pq.ParquetFile(path) as file:
            columns = {field.name: is_string(field.type) for field in file.schema_arrow}
            if not columns[text_column(columns, column, str(path))]:
                return None
            counted = range(file.metadata.num_row_groups) if groups is None else groups
            return sum(int(file.metadata.row_group(i).num_rows) for i in counted)
    except (pa.ArrowException, OSError, UnicodeError, InputError):
        return None  # whoever reads the rows says why
