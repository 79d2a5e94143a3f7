"""Frozen tables added up: by ranges of leaders, each by a task, so that memory is bounded.

A range is the same stretch of leaders in every table. Their counts are added, and the leaders and
followers are kept that can still be among the most frequent. The ranges in order are then joined,
as parts of a table are in `builders.frozen`; where they were cut does not show.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ngramkit.builders import frozen
from ngramkit.builders.frozen_slices import TASK_MEMORY, Table, write_piece
from ngramkit.builders.pieces import Piece, best_followers, read_piece, summed
from ngramkit.builders.ranges import Range, even_ranges, row_bytes, rows_of
from ngramkit.builders.stages import BASE_MEMORY, Apart, Stage, Written
from ngramkit.errors import InputError
from ngramkit.executors.base import Task
from ngramkit.formats.container import Array, WrongFileError
from ngramkit.formats.frozen_table import TABLE, FrozenTable
from ngramkit.formats.manifest import read_manifest


class Part(NamedTuple):
    """A table to be added: its folder, and the checksum of its file."""

    folder: str
    sha256: str

    def open(self) -> FrozenTable:
        """Its values were checked when the merge began. Raises ArtifactError where it is another
        one by now, or here."""
        manifest = read_manifest(Path(self.folder))
        table = FrozenTable.unchecked(Path(self.folder), manifest)
        if manifest.files[TABLE].sha256 != self.sha256:
            raise WrongFileError(table.path / TABLE, "it is not the table that was opened before")
        table.identities()
        return table


def add_tables(
    tables: Sequence[FrozenTable],
    wanted: Table,
    memory: int | None,
    apart: Apart,
) -> Piece:
    """The whole table. `memory` (bytes) is what a task takes beside Python and the kernels.

    Raises InputError where no table has a leader.
    """
    if not any(len(table.leaders) for table in tables):
        raise InputError("none of the frozen tables has a leader", "name others")
    memory = max(memory or TASK_MEMORY, frozen.LEAST_MEMORY)
    most = max(memory // row_bytes(tables[0].tokenizer.vocabulary, wanted.length), 1)
    sizes = [len(table.followers) for table in tables]
    ranges = even_ranges(sizes, lambda number, rows: _leaders(tables[number], rows), most)
    parts = [Part(str(each.path.absolute()), each.manifest.files[TABLE].sha256) for each in tables]
    tasks = []
    for number, within in enumerate(ranges):
        name = f"piece-{number:05d}.safetensors"
        title = f"leaders {number + 1} of {len(ranges)}, {apart.writer.path.name}"
        given = (parts, within, wanted, apart.folder, name)
        tasks.append(Task(title, name, add_leaders, given, BASE_MEMORY + memory))
    if len(tasks) > 1:
        apart.reporter.note(f"added in {len(tasks)} ranges of leaders, {memory >> 20:,} MiB each")
    apart.run(Stage("adding tables", tasks, "ranges", True))
    written = (apart.writer.partial / task.file for task in tasks)
    return frozen.joined(map(read_piece, written), wanted)


def _leaders(table: FrozenTable, rows: Array) -> Array:
    """[n, LL]: whose followers those at `rows` are."""
    return table.leaders[np.searchsorted(table.follower_offsets[1:], rows, side="right")]


def add_leaders(
    parts: Sequence[Part], within: Range, wanted: Table, folder: str, name: str
) -> Written:
    """A task: the merged table's part whose leaders are in a range."""
    leaders, counts, rows, seen = [], [], [], []
    for part in parts:
        table = part.open()
        inside = rows_of(table.leaders, within)
        leaders.append(table.leaders[inside])
        counts.append(table.leader_counts[inside].astype(np.int64))
        offsets = table.follower_offsets[inside.start : inside.stop + 1].astype(np.int64)
        held = slice(int(offsets[0]), int(offsets[-1]))
        owners = np.repeat(leaders[-1], np.diff(offsets), axis=0)
        rows.append(np.hstack([owners, table.followers[held]]))
        seen.append(table.follower_counts[held].astype(np.int64))
    joined = summed(np.concatenate(rows), np.concatenate(seen))
    piece = best_followers(*joined, wanted.leader_len, wanted.followers)
    # A leader was seen more often than the followers that were kept of it.
    _, piece.counts = summed(np.concatenate(leaders), np.concatenate(counts))
    return write_piece(folder, name, piece, wanted.leaders)
