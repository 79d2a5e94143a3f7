"""Merge artifacts of one kind and tokenizer.

A merged frozen table adds counts and selects the most frequent rows again. A count is exact if
every part kept the n-gram, otherwise a lower bound. Each task adds a range of leaders, to bound
memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ngramkit.basics.arguments import check_types
from ngramkit.basics.errors import InputError, UsageError, require_list
from ngramkit.basics.kinds import a_kind
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import Reporter
from ngramkit.builders import frozen
from ngramkit.builders.frozen import (
    DEFAULT_TASK_MEMORY,
    FrozenParameters,
    LeaderPiece,
    read_piece,
    table_arrays,
    whole_table,
    write_piece,
)
from ngramkit.builders.tasks import (
    BASE_MEMORY,
    Executor,
    Local,
    StageRunner,
    WrittenFile,
    open_executor,
    require_shared,
    write_file,
)
from ngramkit.builders.tokens import parameters_of_tokens, parse_memory
from ngramkit.corpus.naming import whole_corpus
from ngramkit.formats.artifact import Artifact, token_dtype
from ngramkit.formats.build_command import corpora_of, is_imported
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.frozen_table import TABLE, FrozenTable
from ngramkit.formats.manifest import build_id, read_manifest
from ngramkit.formats.resumable_writer import ArtifactWriter, Build
from ngramkit.formats.safetensors import Array, WrongFileError, open_arrays, sha256_of
from ngramkit.remote.fetch import fetch_artifact
from ngramkit.remote.publishing import build_at, require_out

SAMPLED_ROWS = 64  # rows per range

Ngram = tuple[int, ...]
Range = tuple[Ngram | None, Ngram | None]  # [first, second); None is unbounded


def merge(
    sources: Sequence[str | Path | Artifact],
    out: str | Path,
    *,
    memory: int | str | None = None,
    executor: str | Executor = "local",
    ray_address: str | None = None,
    reporter: Reporter = NOTEBOOK_BARS,
    force: bool = False,
) -> Artifact:
    """Merge two or more datastores, or frozen tables, into one artifact at `out`.

    `sources` are artifacts, their folders or URLs; `out` is a folder or a URL. `executor` and
    `ray_address` are as in `tokenize`. `memory` (bytes, or "4G"; default 1 GiB, at least 32 MiB)
    bounds the adding of frozen tables, without the merged table, Python and the kernels. Neither
    changes the bytes.

    Raises UsageError if the artifacts cannot be merged, ArtifactError if their tokenizers differ.
    """
    require_list("sources", sources)
    check_types(Reporter, reporter=reporter)
    parts = [fetch_artifact(source, reporter=reporter) for source in sources]
    memory = parse_memory(memory)
    _require_mergeable(parts, memory)
    require_out(out, force=force)
    for corpus in _corpora_in_several(parts):
        reporter.note(f"{corpus} is in several of the artifacts, so its text counts repeatedly")
    plan: dict[str, Any] = {"kind": parts[0].kind}
    plan["merged"] = [part.manifest.build for part in parts]
    if plan["kind"] == FrozenTable.kind and any(
        is_imported(each.manifest.corpus) for each in parts
    ):
        plan["imported"] = "unlimited"  # 0.2.0 limited them to the largest
    with open_executor(executor, ray_address, reporter=reporter) as runner:

        def write(writer: ArtifactWriter) -> None:
            if parts[0].kind == Datastore.kind:
                stages = StageRunner(writer, runner, reporter)
                parameters, counts = _merge_datastores(parts, stages)
            else:
                one_by_one = Local(1) if runner.local else runner
                stages = StageRunner(writer, one_by_one, reporter)
                parameters, counts = _merge_frozen_tables(parts, memory, stages)
            sums = {
                name: sum(part.manifest.counts[name] for part in parts)
                for name in ("documents", "tokens")
                if all(name in part.manifest.counts for part in parts)  # not in imported tables
            }
            writer.commit(
                parts[0].tokenizer,
                parameters={**parameters, **parameters_of_tokens(*parts), "merged": len(parts)},
                corpus=_merged_corpus(parts),
                counts={**sums, **counts},
            )

        build = Build(
            kind=type(parts[0]),
            plans=[plan],
            write=write,
            inputs=[part.path for part in parts],
            private=any(part.manifest.private for part in parts),
        )
        return build_at(build, out, reporter=reporter, force=force)


def _require_mergeable(parts: Sequence[Artifact], memory: int | None) -> None:
    if len(parts) < 2:
        count = "no artifact" if not parts else "only one artifact"
        raise UsageError(f"cannot merge {count}", "Name at least two.")
    for left, right in pairwise(parts):
        if left.kind != right.kind:
            kinds = f"{a_kind(left.kind)} ({left.where}) with {a_kind(right.kind)} ({right.where})"
            raise UsageError(f"cannot merge {kinds}", "Merge artifacts of one kind.")
        left.tokenizer.require(right.tokenizer, left.where)
    if parts[0].kind not in (Datastore.kind, FrozenTable.kind):
        raise UsageError(
            f"cannot merge {a_kind(parts[0].kind)}", "Merge datastores or frozen tables."
        )
    if len({part.manifest.build for part in parts}) < len(parts):
        raise UsageError("cannot merge an artifact with itself", "Name each artifact once.")
    if memory is not None and parts[0].kind == Datastore.kind:
        raise UsageError(
            "cannot use memory: datastores are merged by copying their shards",
            "Leave it out.",
            option="memory",
        )


def _corpora_in_several(parts: Sequence[Artifact]) -> list[str]:
    """Return the ids of corpora, known by their content, that several parts were built from."""
    held = Counter[str]()
    ids: dict[str, str] = {}
    for part in parts:
        found = {
            build_id({**whole_corpus(corpus), "pruned": None}): str(corpus.get("id"))
            for corpus in corpora_of(part.manifest.corpus)
            if not corpus.keys().isdisjoint(("sha256", "listing", "revision"))
        }
        held.update(found.keys())
        ids |= found
    return [ids[key] for key, count in held.items() if count > 1]


def _merged_corpus(parts: Sequence[Artifact]) -> dict[str, Any]:
    corpora = [part.manifest.corpus for part in parts]
    ids = [str(corpus.get("id", "unknown")) for corpus in corpora]
    licenses = Counter[str]()
    for corpus in corpora:
        licenses.update(corpus.get("licenses", {}))
    facts = {"licenses": dict(sorted(licenses.items()))} if licenses else {}
    return {"id": " + ".join(ids), "merged": corpora, **facts}


def _merge_datastores(
    parts: Sequence[Artifact], stages: StageRunner
) -> tuple[dict[str, Any], dict[str, int]]:
    stores = [part for part in parts if isinstance(part, Datastore)]
    files = [
        (str(store.path.absolute() / name), record.sha256)
        for store in stores
        for name, record in sorted(store.manifest.files.items())
    ]
    tasks = [
        stages.task(f"copy {number + 1} of {len(files)}", f"shard-{number:05d}", copy_shard, file)
        for number, file in enumerate(files)
    ]
    list(stages.run("copying shards", tasks, "shards"))
    shards = [shard for store in stores for shard in store.shards]
    return {"shard_tokens": max(len(shard.tokens) for shard in shards)}, {}


def copy_shard(source: str, sha256: str, folder: str, name: str) -> WrittenFile:
    """Copy a shard and verify its checksum."""
    path = require_shared(Path(source))
    written = write_file(folder, name, open_arrays(path))
    # The bytes are usually equal, since the order of arrays is fixed.
    if written.record.sha256 != sha256 and sha256_of(path) != sha256:
        raise WrongFileError(path, "its checksum is not the listed one")
    return written


class TableFile(NamedTuple):
    folder: str
    sha256: str

    def open(self) -> FrozenTable:
        """Open without checking values, or raise ArtifactError for another table."""
        manifest = read_manifest(Path(self.folder))
        table = FrozenTable(Path(self.folder), manifest)
        if TABLE not in manifest.files or manifest.files[TABLE].sha256 != self.sha256:
            raise WrongFileError(table.path / TABLE, "it is not the table that was opened before")
        table.identities()
        return table


def _merge_frozen_tables(
    parts: Sequence[Artifact], memory: int | None, stages: StageRunner
) -> tuple[dict[str, Any], dict[str, int]]:
    tables = [part for part in parts if isinstance(part, FrozenTable)]
    if len({(table.leader_len, table.follower_len) for table in tables}) > 1:
        raise UsageError(
            "cannot merge frozen tables with leaders or followers of different lengths",
            "Build them with the same leader_len and follower_len.",
            option=("leader_len", "follower_len"),
        )
    if not any(len(table.leaders) for table in tables):
        raise InputError("cannot merge frozen tables without leaders", "Name other ones.")
    first = tables[0]
    wanted = FrozenParameters(
        first.leader_len,
        max(_limit(table, "leaders") for table in tables),
        first.follower_len,
        max(_limit(table, "followers") for table in tables),
    )
    memory = max(memory or DEFAULT_TASK_MEMORY, frozen.MIN_MEMORY)
    most = max(memory // row_bytes(first.tokenizer.vocabulary, wanted.length), 1)
    sizes = [len(table.followers) for table in tables]

    def leaders_of_rows(number: int, rows: Array) -> Array:
        table = tables[number]
        return table.leaders[np.searchsorted(table.follower_offsets[1:], rows, side="right")]

    ranges = even_ranges(sizes, leaders_of_rows, most)
    files = [
        TableFile(str(table.path.absolute()), table.manifest.files[TABLE].sha256)
        for table in tables
    ]
    tasks = [
        stages.task(
            f"leaders {number + 1} of {len(ranges)}",
            f"piece-{number:05d}",
            add_leaders,
            (files, within, wanted),
            memory=BASE_MEMORY + memory,
        )
        for number, within in enumerate(ranges)
    ]
    if len(tasks) > 1:
        stages.reporter.note(f"added in {len(tasks)} ranges of leaders, {memory >> 20:,} MiB each")
    added = list(stages.run("adding tables", tasks, "ranges", scratch=True))
    pieces = (read_piece(stages.writer.partial / task.file) for task in added)
    arrays = table_arrays(whole_table(pieces, wanted), first.tokenizer.vocabulary)
    stages.writer.write(TABLE, arrays)
    counts = {name: len(arrays[name]) for name in ("leaders", "followers")}
    return wanted._asdict(), counts


def _limit(table: FrozenTable, name: str) -> int:
    """Return how many rows a table was allowed; an imported one was not limited."""
    return frozen.MAX_ROWS if is_imported(table.manifest.corpus) else table.parameter(name)


def add_leaders(
    parts: Sequence[TableFile], within: Range, wanted: FrozenParameters, folder: str, name: str
) -> WrittenFile:
    leaders, counts, rows, row_counts = [], [], [], []
    for part in parts:
        table = part.open()
        inside = rows_of(table.leaders, within)
        leaders.append(table.leaders[inside])
        counts.append(table.leader_counts[inside].astype(np.int64))
        offsets = table.follower_offsets[inside.start : inside.stop + 1].astype(np.int64)
        span = slice(int(offsets[0]), int(offsets[-1]))
        owners = np.repeat(leaders[-1], np.diff(offsets), axis=0)
        rows.append(np.hstack([owners, table.followers[span]]))
        row_counts.append(table.follower_counts[span].astype(np.int64))
    distinct = sum_rows(np.concatenate(rows), np.concatenate(row_counts))
    piece = most_frequent_followers_of_rows(*distinct, wanted.leader_len, wanted.followers)
    # A leader's count includes followers that were dropped.
    _, piece.counts = sum_rows(np.concatenate(leaders), np.concatenate(counts))
    return write_piece(folder, name, piece, wanted.leaders)


def row_bytes(vocabulary: int, length: int) -> int:
    """Return the most bytes of a row of `length` ids and a count."""
    return 3 * (token_dtype(vocabulary).itemsize * length + 4) + 16 * length + 48


def even_ranges(
    sizes: Sequence[int], ngrams: Callable[[int, Array], Array], most: int
) -> list[Range]:
    """Return ranges of about `most` rows each over lists of `sizes` rows, by a sample.

    `ngrams(number, rows)` returns the n-grams [n, length] at `rows` (int64[n]) of a list.
    """
    parts = max(-(-sum(sizes) // most), 1)
    step = max(sum(sizes) // (parts * SAMPLED_ROWS), 1)
    sample: list[Ngram] = []
    before = 0  # rows
    for number, size in enumerate(sizes):
        rows = np.arange(-before % step, size, step)
        sample += map(tuple, ngrams(number, rows).tolist())
        before += size
    sample.sort()
    bounds = sorted({sample[len(sample) * part // parts] for part in range(1, parts)})
    return list(zip([None, *bounds], [*bounds, None], strict=True))


def rows_of(ngrams: Array, within: Range) -> slice:
    low, high = within
    first = 0 if low is None else _first_row_from(ngrams, low)
    return slice(first, len(ngrams) if high is None else _first_row_from(ngrams, high))


def _first_row_from(ngrams: Array, bound: Ngram) -> int:
    return bisect_left(range(len(ngrams)), bound, key=lambda row: tuple(ngrams[row].tolist()))


def sum_rows(rows: Array, counts: Array) -> tuple[Array, Array]:
    """Return sorted distinct rows [n, columns] and the sums of their counts."""
    order = np.lexsort(_pack_columns(rows)[::-1])
    rows, counts = rows[order], counts[order]
    starts = np.flatnonzero(mark_changes(rows))
    return rows[starts], np.add.reduceat(counts, starts) if len(starts) else counts


def _pack_columns(rows: Array) -> list[Array]:
    """Pack columns into as few uint64[n] as possible."""
    bits = max(int(rows.max(initial=0)).bit_length(), 1)
    words = []
    for begin in range(0, rows.shape[1], 64 // bits):
        word = np.zeros(len(rows), np.uint64)
        for column in rows[:, begin : begin + 64 // bits].T:
            word <<= np.uint64(bits)
            word |= column.astype(np.uint64)
        words.append(word)
    return words


def mark_changes(rows: Array) -> Array:
    """Mark the first row and those unlike the previous one: bool[n]."""
    marks = np.ones(len(rows), bool)
    marks[1:] = np.any(rows[1:] != rows[:-1], axis=1)
    return marks


def most_frequent_followers_of_rows(
    rows: Array, counts: Array, leader_len: int, followers: int
) -> LeaderPiece:
    begins = mark_changes(rows[:, :leader_len])
    starts, owner = np.flatnonzero(begins), np.cumsum(begins) - 1
    totals = np.add.reduceat(counts, starts) if len(starts) else counts
    order = np.lexsort((-counts, owner))
    place = np.arange(len(rows)) - starts[owner]
    chosen = order[place < followers]
    sizes = np.minimum(np.bincount(owner, minlength=len(starts)), followers)
    return LeaderPiece(
        rows[starts, :leader_len], totals, sizes, rows[chosen, leader_len:], counts[chosen]
    )
