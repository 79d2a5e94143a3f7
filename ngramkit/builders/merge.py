"""Several artifacts of one kind and tokenizer to one.

Datastores: their shards side by side, as if the corpora had been built together. Frozen tables:
counts added, then the most frequent leaders and followers again. A table has dropped what was rare
in its own corpus, so a merged count is exact only where every part kept the n-gram; elsewhere it is
a lower bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ngramkit.builders import frozen
from ngramkit.builders.executors import Executor, Local, Task
from ngramkit.builders.frozen import (
    TASK_MEMORY,
    Piece,
    Range,
    Table,
    best_followers,
    even_ranges,
    read_piece,
    row_bytes,
    rows_of,
    summed,
    table_arrays,
    write_piece,
)
from ngramkit.builders.stages import (
    BASE_MEMORY,
    Apart,
    Stage,
    Written,
    require_shared,
    write_file,
)
from ngramkit.errors import InputError, UsageError, require_between
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.container import Array, WrongFileError, open_arrays, sha256_of
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.frozen_table import TABLE, FrozenTable
from ngramkit.formats.manifest import read_manifest
from ngramkit.formats.writer import ArtifactWriter, already_built
from ngramkit.progress import SILENT, Reporter


def merge(
    parts: Sequence[Artifact],
    out: str | Path,
    *,
    memory: int | None = None,
    executor: Executor | None = None,
    reporter: Reporter = SILENT,
    force: bool = False,
) -> Artifact:
    """Two or more datastores or frozen tables as one artifact at `out`.

    `executor` copies the shards of datastores, and adds frozen tables by ranges of their leaders;
    by default one after the other. `memory` (bytes; default 1 GiB, at least 32 MiB) is what adding
    a range may take; the merged table comes on top, and so do Python and the kernels. The bytes
    depend on neither.
    Raises UsageError where the parts cannot be merged, ArtifactError where their tokenizers differ.
    """
    _validate(parts, memory)
    plan = {"kind": parts[0].kind, "merged": [part.manifest.build for part in parts]}
    kind = type(parts[0])
    if already_built(out, plan):
        reporter.note(f"{out} is up to date")
        return kind.open(out)
    read = [part.path for part in parts]
    with ArtifactWriter(out, kind.kind, plan, inputs=read, force=force) as writer:
        if isinstance(parts[0], Datastore):
            parameters, counts = _datastores(parts, Apart(writer, executor or Local(1), reporter))
        else:
            one_by_one = Local(1) if executor is None or executor.local else executor
            parameters, counts = _frozen_tables(parts, memory, Apart(writer, one_by_one, reporter))
        writer.commit(
            parts[0].tokenizer,
            parameters={**parameters, "merged": len(parts)},
            corpus=_corpus(parts),
            counts={**_sums(parts, "documents", "tokens"), **counts},
        )
    return kind.open(out)


def _validate(parts: Sequence[Artifact], memory: int | None) -> None:
    if len(parts) < 2:
        raise UsageError("there is only one artifact to merge", "name at least two")
    for left, right in pairwise(parts):
        if left.kind != right.kind:
            raise UsageError(
                f"{left.path} is a {left.kind} and {right.path} a {right.kind}",
                "merge artifacts of one kind",
            )
        left.tokenizer.require(right.tokenizer, str(left.path))
    if parts[0].kind not in (Datastore.kind, FrozenTable.kind):
        raise UsageError(f"a {parts[0].kind} cannot be merged", "merge datastores or frozen tables")
    if len({part.manifest.build for part in parts}) < len(parts):
        raise UsageError("one artifact is named twice", "its counts would be added to themselves")
    if memory is not None:
        require_between("memory", memory, 1)
        if parts[0].kind == Datastore.kind:
            raise UsageError(
                "memory means nothing to datastores, whose shards are copied",
                "leave it out",
                option="memory",
            )


def _corpus(parts: Sequence[Artifact]) -> dict[str, Any]:
    corpora = [part.manifest.corpus for part in parts]
    ids = [str(corpus.get("id", "unknown")) for corpus in corpora]
    licenses: dict[str, int] = {}
    for corpus in corpora:
        for licence, documents in corpus.get("licenses", {}).items():
            licenses[licence] = licenses.get(licence, 0) + documents
    found = {"licenses": dict(sorted(licenses.items()))} if licenses else {}
    return {"id": " + ".join(ids), "merged": corpora, **found}


def _sums(parts: Sequence[Artifact], *names: str) -> dict[str, int]:
    return {name: sum(part.manifest.counts.get(name, 0) for part in parts) for name in names}


def _datastores(parts: Sequence[Artifact], apart: Apart) -> tuple[dict[str, Any], dict[str, int]]:
    stores = [part for part in parts if isinstance(part, Datastore)]
    files = [
        (str(store.path.absolute() / name), record.sha256)
        for store in stores
        for name, record in sorted(store.manifest.files.items())
    ]
    tasks = []
    for number, file in enumerate(files):
        name = f"shard-{number:05d}.safetensors"
        title = f"copy {number + 1} of {len(files)}, {apart.writer.path.name}"
        given = (*file, apart.folder, name)
        tasks.append(Task(title, name, copy_shard, given, BASE_MEMORY))
    apart.run(Stage("copying shards", tasks, "shards"))
    shards = [shard for store in stores for shard in store.shards]
    return {"shard_tokens": max(len(shard.tokens) for shard in shards)}, {}


def copy_shard(source: str, sha256: str, folder: str, name: str) -> Written:
    """A task: the shard `source` of a datastore as `name`; it is the one with that checksum."""
    path = require_shared(Path(source))
    written = write_file(folder, name, open_arrays(path))
    # Of the same bytes as a rule: whatever wrote it, the arrays are laid out as ours are.
    if written.record.sha256 != sha256 and sha256_of(path) != sha256:
        raise WrongFileError(path, "its checksum is not the one that was listed")
    return written


def _frozen_tables(
    parts: Sequence[Artifact],
    memory: int | None,
    apart: Apart,
) -> tuple[dict[str, Any], dict[str, int]]:
    tables = [part for part in parts if isinstance(part, FrozenTable)]
    if len({(table.leader_len, table.follower_len) for table in tables}) > 1:
        raise UsageError(
            "the frozen tables have leaders or followers of different lengths",
            "build them with the same leader_len and follower_len",
            option=("leader_len", "follower_len"),
        )
    parameters = dict(tables[0].manifest.parameters)
    for name in ("leaders", "followers"):
        parameters[name] = max(table.parameter(name) for table in tables)
    first = tables[0]
    lengths = {"leader_len": first.leader_len, "follower_len": first.follower_len}
    wanted = Table(leaders=parameters["leaders"], followers=parameters["followers"], **lengths)
    added = add_tables(tables, wanted, memory, apart)
    arrays = table_arrays(added, first.tokenizer.vocabulary)
    apart.writer.write(TABLE, arrays)
    return parameters, {
        "leaders": len(arrays["leaders"]),
        "followers": len(arrays["followers"]),
    }


# Frozen tables added up: by ranges of leaders, each by a task, so that memory is bounded.
#
# A range is the same stretch of leaders in every table. Their counts are added, and the leaders and
# followers are kept that can still be among the most frequent. The ranges in order are then joined,
# as parts of a table are in `builders.frozen`; where they were cut does not show.


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
