"""Tokens to a frozen table: the most frequent leaders, each with its most frequent followers.

Exact, not sampled (Cacheback, arXiv:2511.21699, section 3, on OpenWebText). Ties go to the lower
token ids. `formats.frozen_table` says what one occurrence is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.builders.windows import Runs, Windows
from ngramkit.errors import InputError, UsageError
from ngramkit.formats.artifact import token_dtype
from ngramkit.formats.container import Array
from ngramkit.formats.frozen_table import TABLE, FrozenTable
from ngramkit.formats.tokens import TokenStore
from ngramkit.formats.writer import ArtifactWriter, already_built
from ngramkit.kernels.counting import best_followers, leader_starts, unpack
from ngramkit.machine import cores, free_memory
from ngramkit.progress import SILENT, Reporter

LEADER_LENGTHS = range(1, 5)
FOLLOWER_LENGTHS = range(1, 9)


def build_frozen(
    store: TokenStore,
    out: Path,
    *,
    leader_len: int = 1,
    leaders: int = 1 << 20,
    follower_len: int = 3,
    followers: int = 128,
    memory: int | None = None,
    workers: int | None = None,
    reporter: Reporter = SILENT,
    force: bool = False,
) -> FrozenTable:
    """The frozen table of `store` at `out`, which is opened where it is built already.

    `memory` (bytes; default half of what is free) bounds the windows held at a time, however large
    the corpus is; the finished table, at most leaders * followers entries, comes on top. The
    result does not depend on it, nor on `workers` (threads; default all cores).

    Raises UsageError for lengths outside 1..4 and 1..8 or counts below one, and where `out` holds
    something else; InputError where no document has leader_len + follower_len tokens.
    """
    parameters = {
        "leader_len": leader_len,
        "leaders": leaders,
        "follower_len": follower_len,
        "followers": followers,
    }
    validate(leader_len, leaders, follower_len, followers, memory=memory)
    plan = {
        "kind": FrozenTable.kind,
        "parameters": parameters,
        "tokenizer": store.tokenizer.fingerprint,
        "tokens": {name: record.sha256 for name, record in store.manifest.files.items()},
    }
    if already_built(Path(out), plan):
        reporter.note(f"{out} is up to date")
        return FrozenTable.open(out)
    memory = memory or free_memory() // 2
    with ArtifactWriter(out, FrozenTable.kind, plan, force=force) as writer:
        windows = Windows(store, leader_len + follower_len, memory, workers or cores())
        reporter.stage("counting n-grams", store.manifest.counts.get("tokens"))
        table = _count(windows, leader_len, leaders, followers, reporter)
        arrays = _arrays(table, store.tokenizer.vocabulary)
        writer.write(TABLE, arrays)
        counts = {
            **store.manifest.counts,
            "leaders": len(arrays["leaders"]),
            "followers": len(arrays["followers"]),
        }
        writer.commit(
            store.tokenizer, parameters=parameters, corpus=store.manifest.corpus, counts=counts
        )
    return FrozenTable.open(out)


def validate(
    leader_len: int, leaders: int, follower_len: int, followers: int, *, memory: int | None = None
) -> None:
    """Raises UsageError for what `build_frozen` cannot build."""
    _between("leader-len", leader_len, LEADER_LENGTHS)
    _between("follower-len", follower_len, FOLLOWER_LENGTHS)
    for name, value in (("leaders", leaders), ("followers", followers)):
        if value < 1:
            raise UsageError(f"--{name} is {value}", "choose at least 1")
    if memory is not None and memory < 1:
        raise UsageError(f"--memory is {memory} bytes", "write it like 4G or 512M")


def _between(option: str, value: int, allowed: range) -> None:
    if value not in allowed:
        raise UsageError(
            f"--{option} is {value}", f"choose a length from {allowed[0]} to {allowed[-1]}"
        )


class Piece:
    """Some leaders in order, each with its best followers."""

    def __init__(self, leaders: Array, counts: Array, sizes: Array, followers: Array, of: Array):
        self.leaders = leaders  # uint32[l, LL]
        self.counts = counts  # int64[l]
        self.sizes = sizes  # int64[l], followers of each
        self.followers = followers  # uint32[f, FL]
        self.follower_counts = of  # int64[f]

    def keep(self, wanted: Array) -> Piece:
        """Only the leaders where `wanted` (bool[l]) holds."""
        rows = np.repeat(wanted, self.sizes)
        return Piece(
            self.leaders[wanted],
            self.counts[wanted],
            self.sizes[wanted],
            self.followers[rows],
            self.follower_counts[rows],
        )


def _join(pieces: list[Piece]) -> Piece:
    names = ("leaders", "counts", "sizes", "followers", "follower_counts")
    return Piece(*(np.concatenate([getattr(piece, name) for piece in pieces]) for name in names))


def _count(
    windows: Windows, leader_len: int, leaders: int, followers: int, reporter: Reporter
) -> Piece:
    pieces: list[Piece] = []
    held = 0
    for runs in windows.runs():
        piece = _piece(runs, windows, leader_len, followers)
        if pieces and np.array_equal(pieces[-1].leaders[-1], piece.leaders[0]):
            piece = _merge_ends(pieces, piece, followers)
        pieces.append(piece)
        held += len(piece.leaders)
        if held > 2 * leaders + 1:
            pieces = list(_prune(_join(pieces), leaders))
            held = sum(len(piece.leaders) for piece in pieces)
        reporter.advance(runs.partition.windows)
    if not pieces:
        raise InputError(
            f"no document has {windows.length} tokens, so there is nothing to count",
            "use a larger corpus, or shorter leaders and followers",
        )
    table = _join(pieces)
    return table.keep(_most_frequent(table.counts, leaders))


def _piece(runs: Runs, windows: Windows, leader_len: int, followers: int) -> Piece:
    prefix = np.array(runs.partition.prefix, np.uint32)
    words = runs.keys.shape[1]
    masks = windows.masks(len(prefix), leader_len - len(prefix), words)
    starts = leader_starts(runs.keys, len(runs.keys), masks)
    rows, offsets = best_followers(runs.counts, starts, followers)
    base = np.uint64(runs.partition.low)
    ngrams = unpack(runs.keys, rows, windows.bits, base, prefix, windows.length)
    return Piece(
        ngrams[offsets[:-1], :leader_len],
        np.add.reduceat(runs.counts, starts[:-1]),
        np.diff(offsets),
        ngrams[:, leader_len:],
        runs.counts[rows],
    )


def _merge_ends(pieces: list[Piece], piece: Piece, followers: int) -> Piece:
    """A leader too frequent for one partition: its parts become one, taken out of `pieces`."""
    last = pieces.pop()
    if len(last.leaders) > 1:
        pieces.append(last.keep(np.arange(len(last.leaders)) < len(last.leaders) - 1))
    both = _join([last.keep(np.arange(len(last.leaders)) == len(last.leaders) - 1), piece])
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


def _most_frequent(counts: Array, most: int) -> Array:
    """bool[l]: the `most` highest counts, ties to the lower row."""
    wanted = np.zeros(len(counts), bool)
    wanted[np.argsort(-counts, kind="stable")[:most]] = True
    return wanted


def _prune(piece: Piece, most: int) -> Iterator[Piece]:
    """Leaders that can still be among the `most`; the last one may yet grow."""
    wanted = _most_frequent(piece.counts, most)
    wanted[-1] = True
    yield piece.keep(wanted)


def _arrays(table: Piece, vocabulary: int) -> dict[str, Any]:
    ids = token_dtype(vocabulary)
    return {
        "leaders": table.leaders.astype(ids),
        "leader_counts": narrow(table.counts),
        "follower_offsets": np.concatenate([[0], np.cumsum(table.sizes)]).astype(np.uint64),
        "followers": table.followers.astype(ids),
        "follower_counts": narrow(table.follower_counts),
    }


def narrow(counts: Array) -> Array:
    fits = int(counts.max(initial=0)) < 1 << 32
    return counts.astype(np.uint32 if fits else np.uint64)
