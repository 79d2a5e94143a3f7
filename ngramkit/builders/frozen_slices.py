"""A frozen table counted apart: slices of the token store by themselves, then added by range.

Three steps, for tasks that share no memory. Each slice's distinct windows with their counts, in
order, go to a file. Ranges of windows, chosen so that each fits into a task's memory, are added up
over all slices, and each keeps the leaders and followers that can still be among the most frequent.
The ranges in order are then joined, as parts of a table are on one machine. Sums of whole numbers
depend on no order, so neither slices nor ranges show in the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ngramkit.builders.pieces import (
    Piece,
    best_followers,
    piece_arrays,
    prune,
    read_piece,
    summed,
)
from ngramkit.builders.ranges import Range, even_ranges, row_bytes, rows_of
from ngramkit.builders.stages import (
    BASE_MEMORY,
    Apart,
    Stage,
    Written,
    require_shared,
    write_file,
)
from ngramkit.builders.windows import Windows
from ngramkit.executors.base import Task
from ngramkit.formats.artifact import Layout, require_layout, token_dtype
from ngramkit.formats.container import Array, open_arrays
from ngramkit.formats.tokens import TokenStore, open_shard
from ngramkit.kernels.counting import unpack

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
