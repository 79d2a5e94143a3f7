"""The table that the Hub's viewer shows of an artifact: frequent phrases and what follows them.

    phrase       string    count        int64    the phrase's occurrences
    next         string    next_count   int64    how many of these it follows

Phrases are of a few tokens and occur several times, so no document can be read from it. Artifacts
of private text have none.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from itertools import islice

from ngramkit.formats.artifact import Artifact
from ngramkit.formats.query import frequent_phrases

PREVIEW_PHRASES = 100
FOLLOWERS_PER_PHRASE = 5  # of a phrase
MIN_OCCURRENCES = 3  # occurrences


def preview_of(artifact: Artifact, decode: Callable[[list[int]], str]) -> bytes | None:
    """Return the table as a Parquet file, or None for kinds without n-grams."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = frequent_phrases(
        artifact, 2 * PREVIEW_PHRASES, FOLLOWERS_PER_PHRASE, least=MIN_OCCURRENCES
    )
    named = ((decode(each.phrase), each) for each in found)
    words = (pair for pair in named if any(map(str.isalnum, pair[0])))  # not only punctuation
    rows = [
        (phrase, each.matches, decode(ids), count)
        for phrase, each in islice(words, PREVIEW_PHRASES)
        for ids, count in each.continuations
    ]
    if not rows:
        return None
    types = {"phrase": pa.string(), "count": pa.int64(), "next": pa.string()}
    schema = pa.schema({**types, "next_count": pa.int64()})
    table = pa.Table.from_pylist(
        [dict(zip(schema.names, row, strict=True)) for row in rows], schema
    )
    file = io.BytesIO()
    pq.write_table(table, file, compression="zstd")
    return file.getvalue()
