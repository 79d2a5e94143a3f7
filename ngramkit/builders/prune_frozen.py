"""The rows of a frozen table to keep when it is pruned: those counted most often per byte.

A follower is worth its count, and beside that how often `answers` have it after its leader, all of
them together as much as the table. A leader's best follower pays for the leader's own row too.
Without answers this is CREST's rule (arXiv:2408.04678): the most frequent n-grams stay.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ngramkit.formats.container import Array
from ngramkit.formats.frozen_table import FrozenTable
from ngramkit.kernels.worth import new_wanted, text_table, want, wanted_rows

RULE = "most frequent followers per byte, 1"  # in manifests: another number for any other choice
SCALE = 1 << 20  # worth per byte, in whole numbers


def pruned(table: FrozenTable, size: int, answers: Sequence[Array] = ()) -> dict[str, Array]:
    """The arrays of a table of at most `size` bytes; without leaders where none fits.

    Ties go to the earlier leader. Counts of leaders stay what they were in the corpus.
    """
    sizes: Array = np.diff(table.follower_offsets.astype(np.int64))
    owner = np.repeat(np.arange(len(sizes)), sizes)
    kept = _kept(table, _worth(table, owner, answers), owner, sizes, size)
    left = np.bincount(owner[kept], minlength=len(sizes))
    leaders = left > 0
    return {
        "leaders": table.leaders[leaders],
        "leader_counts": table.leader_counts[leaders],
        "follower_offsets": np.concatenate([[0], np.cumsum(left[leaders])]).astype(np.uint64),
        "followers": table.followers[kept],
        "follower_counts": table.follower_counts[kept],
    }


def _kept(table: FrozenTable, worth: Array, owner: Array, sizes: Array, size: int) -> Array:
    """bool[F]: by worth per byte, a leader's best before its others."""
    row = table.followers.itemsize * table.follower_len + table.follower_counts.itemsize
    head = table.leaders.itemsize * table.leader_len + table.leader_counts.itemsize + 8
    best_first = np.lexsort((-worth, owner))
    costs = np.full(len(worth), row, np.int64)
    first = np.cumsum(sizes) - sizes
    costs[first] += head
    rates = worth[best_first] * SCALE // costs
    rates = np.minimum(rates, np.repeat(rates[first], sizes))  # the best of a leader is none's last
    order = np.argsort(-rates, kind="stable")
    fitting = np.searchsorted(np.cumsum(costs[order]), size - 8, side="right")
    kept = np.zeros(len(worth), bool)
    kept[best_first[order[:fitting]]] = True
    return kept


def _worth(table: FrozenTable, owner: Array, answers: Sequence[Array]) -> Array:
    """int64[F]: counts, and as much again for what the answers say, if there are any."""
    counts = table.follower_counts.astype(np.int64)
    length = table.leader_len + table.follower_len
    texts = [np.asarray(answer, table.leaders.dtype) for answer in answers]
    windows = sum(max(len(text) - length + 1, 0) for text in texts)
    if not windows:
        return counts
    said = new_wanted(windows, (length,))
    rows = np.array([(i, 0, len(text)) for i, text in enumerate(texts)], np.int64)
    want(said, text_table(texts), rows, 1, True)
    grams = np.hstack([table.leaders[owner], table.followers])
    return np.asarray(counts + wanted_rows(said, grams) * max(int(counts.sum()) // windows, 1))
