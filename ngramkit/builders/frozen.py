"""Tokens to a frozen table: the most frequent leaders, each with its most frequent followers.

Exact, not sampled (Cacheback, arXiv:2511.21699, section 3, on OpenWebText). Ties go to the lower
token ids. `formats.frozen_table` says what one occurrence is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ngramkit.builders.frozen_slices import TASK_MEMORY, Table, count_apart
from ngramkit.builders.partitions import Counts, Keys, Partition
from ngramkit.builders.pieces import Piece, join, merge_ends, most_frequent, prune
from ngramkit.builders.stages import BASE_MEMORY, Apart
from ngramkit.builders.windows import Windows
from ngramkit.errors import InputError, require_between
from ngramkit.executors.base import Executor
from ngramkit.formats.artifact import token_dtype
from ngramkit.formats.container import Array
from ngramkit.formats.frozen_table import TABLE, FrozenTable
from ngramkit.formats.tokens import TokenStore
from ngramkit.formats.writer import ArtifactWriter, already_built
from ngramkit.kernels.counting import best_runs, unpack
from ngramkit.machine import free_memory, threads
from ngramkit.progress import SILENT, Reporter

MOST = (1 << 31) - 1  # leaders, and followers of one
LEADER_LENGTHS = range(1, 5)
FOLLOWER_LENGTHS = range(1, 9)
LEAST_MEMORY = 32 << 20  # bytes; with less, every frequent n-gram would cost a pass of its own


def build_frozen(
    store: TokenStore,
    out: str | Path,
    *,
    leader_len: int = 1,
    leaders: int = 1 << 20,
    follower_len: int = 3,
    followers: int = 128,
    memory: int | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    reporter: Reporter = SILENT,
    force: bool = False,
    recipe: Mapping[str, Any] | None = None,
) -> FrozenTable:
    """The frozen table of `store` at `out`, which is opened where it is built already.

    `memory` (bytes; default half of what is free, at least 32 MiB) bounds the windows held at a
    time, however large the corpus is. The table comes on top, and so do Python and the kernels;
    `reporter` notes how much at most, where that is more than `memory`. The result depends neither
    on it nor on `workers` (threads; default all cores) nor on the `executor`: where its tasks share
    no memory, slices of the store are counted apart, and `memory` is that of a task.

    Raises UsageError for lengths outside 1..4 and 1..8 or counts below one, and where `out` holds
    something else; InputError where no document has leader_len + follower_len tokens.
    """
    validate(leader_len, leaders, follower_len, followers, memory=memory)
    wanted = Table(leader_len, leaders, follower_len, followers)
    plan = {
        "kind": FrozenTable.kind,
        "parameters": wanted._asdict(),
        "tokenizer": store.tokenizer.fingerprint,
        "tokens": {name: record.sha256 for name, record in store.manifest.files.items()},
    }
    if already_built(out, plan):
        reporter.note(f"{out} is up to date")
        return FrozenTable.open(out)
    options: dict[str, Any] = {"inputs": [store.path], "recipe": recipe, "force": force}
    with ArtifactWriter(out, FrozenTable.kind, plan, **options) as writer:
        if executor is None or executor.local:
            table = _count_here(store, wanted, memory, threads(workers), reporter)
        else:
            table = _count_apart(store, wanted, memory, Apart(writer, executor, reporter))
        arrays = table_arrays(table, store.tokenizer.vocabulary)
        writer.write(TABLE, arrays)
        counts = {
            **store.manifest.counts,
            "leaders": len(arrays["leaders"]),
            "followers": len(arrays["followers"]),
        }
        writer.commit(
            store.tokenizer,
            parameters=wanted._asdict(),
            corpus=store.manifest.corpus,
            counts=counts,
        )
    return FrozenTable.open(out)


def _count_here(
    store: TokenStore, wanted: Table, memory: int | None, workers: int, reporter: Reporter
) -> Piece:
    memory = _bounded(memory, store, wanted, reporter)
    windows = Windows.of(store, wanted.length, memory, workers)
    reporter.stage("counting n-grams", store.manifest.counts.get("tokens"))
    return count_table(windows, wanted, reporter)


def _count_apart(store: TokenStore, wanted: Table, memory: int | None, apart: Apart) -> Piece:
    memory = max(memory or TASK_MEMORY, LEAST_MEMORY)
    apart.reporter.note(f"{memory >> 20:,} MiB for each task, Python and kernels on top")
    return joined(count_apart(store, wanted, memory, apart), wanted)


def _bounded(memory: int | None, store: TokenStore, wanted: Table, reporter: Reporter) -> int:
    """What the windows may take, once it is said what comes on top."""
    if memory is None:
        return max(free_memory() // 2, LEAST_MEMORY)
    if memory < LEAST_MEMORY:
        reporter.note(f"{LEAST_MEMORY >> 20} MiB for counting, the least that works")
    rows = wanted.leaders * wanted.followers  # of the table, at most
    tokens = store.manifest.counts.get("tokens", rows)
    row = token_dtype(store.tokenizer.vocabulary).itemsize * wanted.follower_len + 8
    table = min(rows, tokens) * row * 2  # twice: its parts, and what they are joined to
    if table + BASE_MEMORY > memory:
        reporter.note(
            f"memory bounds the counting; Python and kernels take {BASE_MEMORY >> 20} MiB more, "
            f"the table at most {table >> 20} MiB of {tokens:,} tokens"
        )
    return max(memory, LEAST_MEMORY)


def validate(
    leader_len: int, leaders: int, follower_len: int, followers: int, *, memory: int | None = None
) -> None:
    """Raises UsageError for what `build_frozen` cannot build."""
    require_between("leader_len", leader_len, LEADER_LENGTHS[0], LEADER_LENGTHS[-1])
    require_between("follower_len", follower_len, FOLLOWER_LENGTHS[0], FOLLOWER_LENGTHS[-1])
    require_between("leaders", leaders, 1, MOST)
    require_between("followers", followers, 1, MOST)
    if memory is not None:
        require_between("memory", memory, 1)


def count_table(windows: Windows, wanted: Table, reporter: Reporter = SILENT) -> Piece:
    """The whole table: the `leaders` most frequent leaders in order, with their followers.

    Raises InputError where there are no windows.
    """
    return joined(counted_pieces(windows, wanted, reporter), wanted)


def counted_pieces(windows: Windows, wanted: Table, reporter: Reporter) -> Iterator[Piece]:
    """Parts of the table in the order of their leaders, counted by this process's threads."""
    leader_len, followers = wanted.leader_len, wanted.followers

    def use(partition: Partition, keys: Keys, counts: Counts | None) -> tuple[int, Piece]:
        if counts is None:
            return partition.windows, _counted(windows, partition, keys, leader_len, followers)
        ids = token_dtype(windows.vocabulary)
        return partition.windows, _one_leader(partition, keys, counts, leader_len, followers, ids)

    for size, piece in windows.each(use):
        yield piece
        reporter.advance(size)


def joined(parts: Iterable[Piece], wanted: Table) -> Piece:
    """Parts in the order of their leaders, of which neighbours may share one, as one table.

    Raises InputError where there are none.
    """
    pieces: list[Piece] = []
    held = 0
    for piece in parts:
        if not len(piece.leaders):
            continue
        if pieces and np.array_equal(pieces[-1].leaders[-1], piece.leaders[0]):
            piece = merge_ends(pieces, piece, wanted.followers)
        pieces.append(piece)
        held += len(piece.leaders)
        if held > 2 * wanted.leaders + 1:
            pieces = [prune(join(pieces), wanted.leaders)]
            held = len(pieces[0].leaders)
    if not pieces:
        raise InputError(
            f"no document has {wanted.length} tokens, so there is nothing to count",
            "use a larger corpus, or shorter leaders and followers",
        )
    table = join(pieces)
    return table.keep(most_frequent(table.counts, wanted.leaders))


def _counted(
    windows: Windows, partition: Partition, keys: Keys, leader_len: int, followers: int
) -> Piece:
    """The leaders of one partition's sorted windows."""
    prefix = np.array(partition.prefix, np.int64)
    masks = windows.masks(len(prefix), leader_len)
    totals, chosen, rows, counts = best_runs(keys, masks, followers)
    base = np.uint64(partition.low)
    ngrams = unpack(keys, rows, windows.bits, base, prefix, windows.length)
    first = np.cumsum(chosen) - chosen
    ngrams = ngrams.astype(token_dtype(windows.vocabulary))
    leaders = ngrams[first, :leader_len]
    return Piece(leaders, totals, chosen, ngrams[:, leader_len:].copy(), counts)


def _one_leader(
    partition: Partition,
    last: Keys,
    counts: Counts,
    leader_len: int,
    followers: int,
    ids: npt.DTypeLike,
) -> Piece:
    """A prefix that lacks only the last token holds a leader and most of its followers."""
    best = np.argsort(-counts, kind="stable")[:followers]
    ngrams = np.empty((len(best), len(partition.prefix) + 1), ids)
    ngrams[:, :-1] = partition.prefix
    ngrams[:, -1] = last[best, 0] + np.uint64(partition.low)
    total, size = np.array([counts.sum()]), np.array([len(best)])
    return Piece(ngrams[:1, :leader_len], total, size, ngrams[:, leader_len:], counts[best])


def table_arrays(table: Piece, vocabulary: int) -> dict[str, Array]:
    """The arrays of a frozen table's file."""
    ids = token_dtype(vocabulary)
    return {
        "leaders": table.leaders.astype(ids, copy=False),
        "leader_counts": narrow(table.counts),
        "follower_offsets": np.concatenate([[0], np.cumsum(table.sizes)]).astype(np.uint64),
        "followers": table.followers.astype(ids, copy=False),
        "follower_counts": narrow(table.follower_counts),
    }


def narrow(counts: Array) -> Array:
    fits = int(counts.max(initial=0)) < 1 << 32
    return counts.astype(np.uint32 if fits else np.uint64)
