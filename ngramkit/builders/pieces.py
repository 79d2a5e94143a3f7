"""Parts of a frozen table while it is being built: some leaders in order, with their followers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.formats.artifact import Layout, require_layout
from ngramkit.formats.container import Array, open_arrays

PIECE: Layout = {
    "leaders": (("uint16", "uint32"), 2),
    "counts": (("uint64",), 1),
    "sizes": (("uint64",), 1),
    "followers": (("uint16", "uint32"), 2),
    "follower_counts": (("uint64",), 1),
}


class Piece:
    """Some leaders in order, each with its best followers."""

    def __init__(self, leaders: Array, counts: Array, sizes: Array, followers: Array, of: Array):
        self.leaders = leaders  # uint16 | uint32[l, LL]
        self.counts = counts  # int64[l]
        self.sizes = sizes  # int64[l], followers of each
        self.followers = followers  # uint16 | uint32[f, FL]
        self.follower_counts = of  # int64[f]

    def keep(self, wanted: Array) -> Piece:
        """Only the leaders where `wanted` (bool[l]) holds; itself where all do."""
        if wanted.all():
            return self
        rows = np.repeat(wanted, self.sizes)
        return Piece(
            self.leaders[wanted],
            self.counts[wanted],
            self.sizes[wanted],
            self.followers[rows],
            self.follower_counts[rows],
        )


def join(pieces: list[Piece]) -> Piece:
    """All of them as one; they are emptied on the way, so that memory holds little twice."""
    names = ("leaders", "counts", "sizes", "followers", "follower_counts")
    joined = []
    for name in names:
        joined.append(np.concatenate([getattr(piece, name) for piece in pieces]))
        for piece in pieces:
            delattr(piece, name)
    pieces.clear()
    return Piece(*joined)


def merge_ends(pieces: list[Piece], piece: Piece, followers: int) -> Piece:
    """A leader too frequent for one partition: its parts become one, taken out of `pieces`."""
    last = pieces.pop()
    if len(last.leaders) > 1:
        pieces.append(last.keep(np.arange(len(last.leaders)) < len(last.leaders) - 1))
    own = last.keep(np.arange(len(last.leaders)) == len(last.leaders) - 1)
    both = join([own, piece])
    size = int(both.sizes[0] + both.sizes[1])
    order = np.lexsort((*both.followers[:size].T[::-1], -both.follower_counts[:size]))[:followers]
    rows = np.concatenate([order, np.arange(size, len(both.followers))])
    return Piece(
        both.leaders[1:],
        np.concatenate([[both.counts[0] + both.counts[1]], both.counts[2:]]),
        np.concatenate([[len(order)], both.sizes[2:]]),
        both.followers[rows],
        both.follower_counts[rows],
    )


def most_frequent(counts: Array, most: int) -> Array:
    """bool[l]: the `most` highest counts, ties to the lower row."""
    wanted = np.zeros(len(counts), bool)
    wanted[np.argsort(-counts, kind="stable")[:most]] = True
    return wanted


def prune(piece: Piece, most: int) -> Piece:
    """Leaders that can still be among the `most`; the first and the last one may yet grow."""
    wanted = most_frequent(piece.counts, most)
    wanted[0] = wanted[-1] = True
    return piece.keep(wanted)


def summed(rows: Array, counts: Array) -> tuple[Array, Array]:
    """Rows of ids (unsigned or not below 0 [n, columns]) in order, equal ones as one, with the sums
    of their counts (int64 [n])."""
    order = np.lexsort(_words(rows)[::-1])
    rows, counts = rows[order], counts[order]
    starts = np.flatnonzero(_changes(rows))
    return rows[starts], np.add.reduceat(counts, starts) if len(starts) else counts


def _words(rows: Array) -> list[Array]:
    """uint64 [n] each: as many columns in one as fit, so that there is less to sort by."""
    bits = max(int(rows.max(initial=0)).bit_length(), 1)
    words = []
    for begin in range(0, rows.shape[1], 64 // bits):
        word = np.zeros(len(rows), np.uint64)
        for column in rows[:, begin : begin + 64 // bits].T:
            word <<= np.uint64(bits)
            word |= column.astype(np.uint64)
        words.append(word)
    return words


def _changes(rows: Array) -> Array:
    """bool [n]: whether a row is another than the one before; the first always."""
    changes = np.ones(len(rows), bool)
    changes[1:] = np.any(rows[1:] != rows[:-1], axis=1)
    return changes


def best_followers(rows: Array, counts: Array, leader_len: int, followers: int) -> Piece:
    """Distinct rows of leader and follower, in order, as a Piece with at most `followers` each."""
    begins = _changes(rows[:, :leader_len])
    starts, owner = np.flatnonzero(begins), np.cumsum(begins) - 1
    totals = np.add.reduceat(counts, starts) if len(starts) else counts
    order = np.lexsort((-counts, owner))
    place = np.arange(len(rows)) - starts[owner]
    chosen = order[place < followers]
    sizes = np.minimum(np.bincount(owner, minlength=len(starts)), followers)
    return Piece(
        rows[starts, :leader_len], totals, sizes, rows[chosen, leader_len:], counts[chosen]
    )


def piece_arrays(piece: Piece) -> dict[str, Array]:
    """What the file of a piece holds, which `read_piece` reads."""
    held: dict[str, Any] = vars(piece)
    return {name: held[name].astype(np.uint64, copy=False) if "uint64" in dtypes else held[name]
            for name, (dtypes, _) in PIECE.items()}  # fmt: skip


def read_piece(path: Path) -> Piece:
    """Raises ArtifactError where the file is damaged."""
    arrays = open_arrays(path)
    require_layout(path, arrays, PIECE)
    signed = {name: arrays[name].astype(np.int64) if "uint64" in dtypes else np.array(arrays[name])
              for name, (dtypes, _) in PIECE.items()}  # fmt: skip
    return Piece(*(signed[name] for name in PIECE))
