"""Tokens to a frozen table: the most frequent leaders, each with its most frequent followers.

Exact, not sampled (Cacheback, arXiv:2511.21699, section 3, on OpenWebText). Ties go to the lower
token ids. `formats.frozen_table` says what one occurrence is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ngramkit.builders.executors import Executor, Task
from ngramkit.builders.stages import (
    BASE_MEMORY,
    Apart,
    Stage,
    Written,
    require_shared,
    write_file,
)
from ngramkit.builders.windows import Counts, Keys, Partition, Windows
from ngramkit.errors import InputError, require_between
from ngramkit.formats.artifact import Layout, require_layout, token_dtype
from ngramkit.formats.container import Array, open_arrays
from ngramkit.formats.frozen_table import TABLE, FrozenTable
from ngramkit.formats.tokens import TokenStore, open_shard
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


# A frozen table counted apart: slices of the token store by themselves, then added by range.
#
# Three steps, for tasks that share no memory. Each slice's distinct windows with their counts, in
# order, go to a file. Ranges of windows, chosen so that each fits into a task's memory, are added
# up over all slices, and each keeps the leaders and followers that can still be among the most
# frequent. The ranges in order are then joined, as parts of a table are on one machine. Sums of
# whole numbers depend on no order, so neither slices nor ranges show in the table.

TASK_MEMORY = 1 << 30  # bytes of a task, where nobody says
MOST_TOKENS = 1 << 24  # of a slice
COUNTS: Layout = {"windows": (("uint16", "uint32"), 2), "counts": (("uint32",), 1)}


class Table(NamedTuple):
    """Which table is counted; as `build_frozen`'s parameters."""

    leader_len: int
    leaders: int
    follower_len: int
    followers: int

    @property
    def length(self) -> int:
        return self.leader_len + self.follower_len


class Slice(NamedTuple):
    """Positions [begin, end) of a file of a token store."""

    file: str
    begin: int
    end: int


def count_apart(
    store: TokenStore,
    table: Table,
    memory: int,
    apart: Apart,
) -> Iterator[Piece]:
    """Parts of the table in the order of their leaders. `memory`, in bytes, is that of a task,
    beside Python and the kernels."""
    vocabulary, folder, build = store.tokenizer.vocabulary, apart.folder, apart.writer.path.name
    width = token_dtype(vocabulary).itemsize * table.length + 4  # bytes of a window in a file
    cuts = slices(store, min(max(memory // (4 * width), 1), MOST_TOKENS))
    source, need = str(store.path.absolute()), BASE_MEMORY + memory
    counting, names = [], []
    for number, cut in enumerate(cuts):
        names.append(f"counts-{number:05d}.safetensors")
        given = (source, cut, vocabulary, table.length, memory // 2, folder, names[-1])
        title = f"n-grams of slice {number + 1} of {len(cuts)}, {build}"
        counting.append(Task(title, names[-1], count_slice, given, need, cut.end - cut.begin))
    apart.run(Stage("counting n-grams", counting, scratch=True))

    if not cuts:
        return
    counted = [_opened(apart.writer.partial / name) for name in names]
    windows = [each for each, _ in counted]
    most = max(memory // row_bytes(vocabulary, table.length), 1)
    ranges = even_ranges(list(map(len, windows)), lambda number, rows: windows[number][rows], most)
    adding = []
    for number, within in enumerate(ranges):
        name = f"piece-{number:05d}.safetensors"
        title = f"sums {number + 1} of {len(ranges)}, {build}"
        adding.append(Task(title, name, add_range, (folder, names, within, table, name), need))
    apart.run(Stage("adding counts", adding, "ranges", True))
    for task in adding:
        yield read_piece(apart.writer.partial / task.file)


def slices(store: TokenStore, most: int) -> list[Slice]:
    """The store's files in stretches of at most `most` positions."""
    names = sorted(store.manifest.files)
    return [
        Slice(name, begin, min(begin + most, len(shard.tokens)))
        for name, shard in zip(names, store.shards, strict=True)
        for begin in range(0, len(shard.tokens), most)
    ]


def count_slice(
    store: str, cut: Slice, vocabulary: int, length: int, memory: int, folder: str, name: str
) -> Written:
    """A task: the distinct windows that begin in `cut`, in order, each with its count."""
    shard = open_shard(require_shared(Path(store) / cut.file), vocabulary)
    stretch = (shard.tokens, shard.documents, cut.begin, cut.end)
    counting = Windows([stretch], vocabulary, length, memory, 1)
    ids = token_dtype(vocabulary)
    windows, counts = [np.empty((0, length), ids)], [np.empty(0, np.uint32)]
    for runs in counting.runs():
        prefix, base = np.array(runs.partition.prefix, np.int64), np.uint64(runs.partition.low)
        rows = np.arange(len(runs.keys))
        windows.append(unpack(runs.keys, rows, counting.bits, base, prefix, length).astype(ids))
        counts.append(runs.counts.astype(np.uint32))
    arrays = {"windows": np.concatenate(windows), "counts": np.concatenate(counts)}
    return write_file(folder, name, arrays)


def _opened(path: Path) -> tuple[Array, Array]:
    arrays = open_arrays(require_shared(path))
    require_layout(path, arrays, COUNTS)
    return arrays["windows"], arrays["counts"]


def add_range(folder: str, names: Sequence[str], within: Range, table: Table, name: str) -> Written:
    """A task: the part of the table that windows of a range give."""
    windows, counts = [], []
    for each in names:
        found, times = _opened(Path(folder) / each)
        inside = rows_of(found, within)
        windows.append(found[inside])
        counts.append(times[inside])
    rows, sums = summed(np.concatenate(windows), np.concatenate(counts).astype(np.int64))
    piece = best_followers(rows, sums, table.leader_len, table.followers)
    return write_piece(folder, name, piece, table.leaders)


def write_piece(folder: str, name: str, piece: Piece, most: int) -> Written:
    """Without the leaders that cannot be among the `most` any more."""
    if len(piece.leaders) > most:
        piece = prune(piece, most)
    return write_file(folder, name, piece_arrays(piece))


# Parts of a frozen table while it is being built: some leaders in order, with their followers.

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


# Ranges of n-grams in their order, of about as many rows each: what tasks of their own can add.
#
# Knows rows of token ids only, sorted as frozen tables and counted slices have them.

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
