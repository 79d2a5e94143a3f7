"""Ranges of n-grams in their order, of about as many rows each: what tasks of their own can add.

Knows rows of token ids only, sorted as frozen tables and counted slices have them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

import numpy as np

from ngramkit.formats.artifact import token_dtype
from ngramkit.formats.container import Array

SAMPLES = 64  # rows looked at for each range

Ngram = tuple[int, ...]
Range = tuple[Ngram | None, Ngram | None]  # from the first on, before the second; None is open


def row_bytes(vocabulary: int, length: int) -> int:
    """What a row of `length` ids and a count takes at most, while rows are added up."""
    return 3 * (token_dtype(vocabulary).itemsize * length + 4) + 16 * length + 48


def even_ranges(
    sizes: Sequence[int], ngrams: Callable[[int, Array], Array], most: int
) -> list[Range]:
    """Ranges with about `most` rows each over several lists, of `sizes` rows.

    By a sample of the rows, in equal steps through all lists: `ngrams(number, rows)` gives the
    n-grams [n, length] at `rows` (int64 [n]) of a list.
    """
    parts = max(-(-sum(sizes) // most), 1)
    step = max(sum(sizes) // (parts * SAMPLES), 1)
    looked_at: list[Ngram] = []
    before = 0  # rows
    for number, size in enumerate(sizes):
        rows = np.arange(-before % step, size, step)
        looked_at += map(tuple, ngrams(number, rows).tolist())
        before += size
    looked_at.sort()
    bounds = sorted({looked_at[len(looked_at) * part // parts] for part in range(1, parts)})
    return list(zip([None, *bounds], [*bounds, None], strict=True))


def rows_of(ngrams: Array, within: Range) -> slice:
    """Which rows of sorted `ngrams` [n, length] are in the range."""
    low, high = within
    first = 0 if low is None else _place(ngrams, low)
    return slice(first, len(ngrams) if high is None else _place(ngrams, high))


def _place(ngrams: Array, bound: Ngram) -> int:
    """Of the first row that is not below `bound`."""
    return bisect_left(range(len(ngrams)), bound, key=lambda row: tuple(ngrams[row].tolist()))
