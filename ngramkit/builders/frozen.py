"""Build a frozen table: the most frequent leaders, each with its most frequent followers.

Counts are exact (Cacheback, arXiv:2511.21699, section 3). Ties go to the lower token ids. Each
group of windows (`builders.windows`) gives a piece of the table. Neighbouring pieces may share a
leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ngramkit.basics.arguments import check_types
from ngramkit.basics.errors import InputError, require_between
from ngramkit.basics.machine import free_memory
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.thread_counts import build_threads
from ngramkit.builders.tasks import (
    BASE_MEMORY,
    Executor,
    StageRunner,
    WrittenFile,
    open_executor,
    require_shared,
    write_file,
)
from ngramkit.builders.tokens import (
    PlannedStore,
    TokenSource,
    parameters_of_tokens,
    parse_memory,
    require_unreplaced,
    token_store,
)
from ngramkit.corpus.open import CorpusOptions
from ngramkit.formats.artifact import Layout, require_layout, token_dtype
from ngramkit.formats.frozen_table import TABLE, FrozenTable
from ngramkit.formats.manifest import Manifest
from ngramkit.formats.resumable_writer import ArtifactWriter, Build
from ngramkit.formats.safetensors import Array, open_arrays
from ngramkit.formats.tokens import TokenStore
from ngramkit.remote.publishing import build_at, require_out

if TYPE_CHECKING:
    from ngramkit.builders.windows import Counts, Keys, Partition, Windows

MAX_LEADER_LEN, MAX_FOLLOWER_LEN = 4, 8
MAX_ROWS = (1 << 31) - 1  # leaders, and followers of one leader
MIN_MEMORY = 32 << 20  # bytes; with less, every frequent n-gram would take a separate pass
DEFAULT_TASK_MEMORY = 1 << 30  # bytes of a task on a cluster, on top of BASE_MEMORY
PIECE: Layout = {
    "leaders": (("uint16", "uint32"), 2),
    "counts": (("int64",), 1),
    "sizes": (("int64",), 1),
    "followers": (("uint16", "uint32"), 2),
    "follower_counts": (("int64",), 1),
}


def build_frozen(
    source: TokenSource,
    out: str | Path | None = None,
    *,
    model: str | Path | None = None,
    eos: bool = True,
    leader_len: int = 1,
    leaders: int = 1 << 20,
    follower_len: int = 3,
    followers: int = 128,
    memory: int | str | None = None,
    workers: int | None = None,
    executor: str | Executor = "local",
    ray_address: str | None = None,
    reporter: Reporter = NOTEBOOK_BARS,
    force: bool = False,
    recipe: Mapping[str, Any] | None = None,
    split: str | None = None,
    column: str | None = None,
    revision: str | None = None,
    language: str | None = None,
    join_turns: bool = False,
    name: str | None = None,
    sample: float = 1.0,
    seed: int = 0,
    limit: int | None = None,
    licenses: Sequence[str] = (),
    exclude: Path | str | Sequence[Path | str] | None = None,
    dedup: str | None = None,
    max_document: int | str | None = None,
    skip_bad: bool = False,
    private: bool = False,
) -> FrozenTable:
    """Build a frozen table (Cacheback): frequent n-grams with their most frequent continuations.

    The table keeps the most frequent `leaders` of `leader_len` tokens, each with its most frequent
    `followers` of `follower_len` tokens. Other options are as in `build_datastore`.

    `memory` (bytes, or "4G"; default: half of the free memory, at least 32 MiB) bounds the windows.
    The table, twice while it is joined, and 224 MiB for Python and the kernels are added. On a
    cluster it is the memory of a task, by default 1 GiB. `workers` is the number of threads
    (default: the number of cores). Neither changes the bytes.

    Raises UsageError for lengths outside 1..4 and 1..8, counts below one, and if `out` holds
    something else; InputError if no document has leader_len + follower_len tokens.
    """
    text = CorpusOptions(
        split=split, column=column, revision=revision, language=language, join_turns=join_turns,
        name=name, sample=sample, seed=seed, limit=limit, licenses=licenses, exclude=exclude,
        dedup=dedup, max_document=max_document, skip_bad=skip_bad, private=private,
    )  # fmt: skip
    numbers = check_types(
        int, leader_len=leader_len, leaders=leaders, follower_len=follower_len, followers=followers
    )
    check_types(int, workers=workers)
    check_types(bool, eos=eos)
    check_types(Reporter, reporter=reporter)
    table = FrozenParameters(*numbers)
    memory = parse_memory(memory)
    table.validate()
    require_out(out, FrozenTable.kind, force=force)

    def is_same(planned: PlannedStore, there: Manifest) -> bool:
        same = table._asdict().items() <= there.parameters.items()
        return same and planned.is_source_of(there)

    with (
        open_executor(executor, ray_address, workers, reporter) as runner,
        token_store(
            source,
            model,
            eos,
            runner,
            reporter,
            text,
            kind=FrozenTable.kind,
            out=out,
            is_same=is_same,
            force=force,
        ) as (store, place),
    ):
        plan = {
            "kind": FrozenTable.kind,
            "parameters": table._asdict(),
            "tokenizer": store.tokenizer.fingerprint,
            "tokens": {name: record.sha256 for name, record in store.manifest.files.items()},
            **({"private": True} if store.manifest.private else {}),
        }

        def write(writer: ArtifactWriter) -> None:
            stages = StageRunner(writer, runner, reporter)
            pieces = _pieces(store, table, memory, build_threads(workers), stages)
            arrays = table_arrays(whole_table(pieces, table), store.tokenizer.vocabulary)
            writer.write(TABLE, arrays)
            sizes = {name: len(arrays[name]) for name in ("leaders", "followers")}
            writer.commit(
                store.tokenizer,
                parameters={**table._asdict(), **parameters_of_tokens(store)},
                corpus=store.manifest.corpus,
                counts={**store.manifest.counts, **sizes},
            )

        build = Build(
            kind=FrozenTable,
            plans=[plan],
            write=write,
            inputs=[store.path],
            recipe=recipe,
            private=store.manifest.private,
        )
        return build_at(build, place, reporter=reporter, force=force)


class FrozenParameters(NamedTuple):
    leader_len: int
    leaders: int
    follower_len: int
    followers: int

    @property
    def length(self) -> int:
        return self.leader_len + self.follower_len

    def validate(self) -> None:
        require_between("leader_len", self.leader_len, 1, MAX_LEADER_LEN)
        require_between("follower_len", self.follower_len, 1, MAX_FOLLOWER_LEN)
        require_between("leaders", self.leaders, 1, MAX_ROWS)
        require_between("followers", self.followers, 1, MAX_ROWS)


def count_pieces(
    windows: Windows,
    table: FrozenParameters,
    reporter: Reporter = SILENT,
    group: Sequence[Partition] = (),
) -> Iterator[LeaderPiece]:
    """Yield the pieces of all groups or of one, by leader."""
    ids = token_dtype(windows.vocabulary)

    def count(partition: Partition, keys: Keys, counts: Counts | None) -> tuple[int, LeaderPiece]:
        if counts is None:
            return partition.windows, _leaders_of_keys(windows, partition, keys, table)
        return partition.windows, _leader_of_prefix(partition, keys, counts, table, ids)

    for size, piece in windows.read(group, count) if group else windows.each(count):
        yield piece
        reporter.advance(size)


def _pieces(
    store: TokenStore,
    table: FrozenParameters,
    memory: int | None,
    workers: int,
    stages: StageRunner,
) -> Iterator[LeaderPiece]:
    """Yield the pieces of all groups, counted by threads here or by tasks elsewhere."""
    from ngramkit.builders.windows import Windows

    if stages.executor.local:
        memory = max(memory or free_memory() // 2, MIN_MEMORY)
        windows = Windows(store, table.length, memory, workers)
        stages.reporter.stage("counting n-grams", store.manifest.counts.get("tokens"))
        yield from count_pieces(windows, table, stages.reporter)
        return
    memory = max(memory or DEFAULT_TASK_MEMORY, MIN_MEMORY)
    stages.reporter.note(f"{memory >> 20:,} MiB for each task, plus Python and the kernels")
    share = memory // 4  # the rest is for the piece and its parts
    groups = list(Windows(store, table.length, share, workers, tasks=True).groups())
    path = str(store.path.absolute())
    tasks = [
        stages.task(
            f"n-grams {number + 1} of {len(groups)}",
            f"piece-{number:05d}",
            count_group,
            (path, [partition.for_one_worker() for partition in group], share, table),
            memory=BASE_MEMORY + memory,
            size=sum(partition.windows for partition in group),
        )
        for number, group in enumerate(groups)
    ]
    counted = list(stages.run("counting n-grams", tasks, scratch=True))
    require_unreplaced(store, stages.writer)
    for task in counted:
        yield read_piece(stages.writer.partial / task.file)


def count_group(
    store: str,
    group: Sequence[Partition],
    memory: int,
    table: FrozenParameters,
    folder: str,
    name: str,
) -> WrittenFile:
    from ngramkit.builders.windows import Windows

    windows = Windows(TokenStore.open(require_shared(Path(store))), table.length, memory, 1)
    piece = join_pieces(count_pieces(windows, table, group=group), table)
    assert piece is not None
    return write_piece(folder, name, piece, table.leaders)


def whole_table(pieces: Iterable[LeaderPiece], table: FrozenParameters) -> LeaderPiece:
    """Join pieces and keep the most frequent leaders, or raise InputError."""
    piece = join_pieces(pieces, table)
    if piece is None:
        raise InputError(
            f"cannot build a frozen table: no document has {table.length} tokens",
            "Use a larger corpus, or shorter leaders and followers.",
        )
    return piece.keep(mark_most_frequent_leaders(piece.counts, table.leaders))


def join_pieces(parts: Iterable[LeaderPiece], table: FrozenParameters) -> LeaderPiece | None:
    """Join pieces in order, or return None; leaders too rare to be kept may be dropped."""
    pieces: list[LeaderPiece] = []
    leaders = 0
    for piece in parts:
        if not len(piece.leaders):
            continue
        if pieces and np.array_equal(pieces[-1].leaders[-1], piece.leaders[0]):
            piece = merge_ends(pieces, piece, table.followers)
        pieces.append(piece)
        leaders += len(piece.leaders)
        if leaders > 2 * table.leaders + 1:
            pieces = [prune_leaders(concatenate(pieces), table.leaders)]
            leaders = len(pieces[0].leaders)
    return concatenate(pieces) if pieces else None


def _leaders_of_keys(
    windows: Windows, partition: Partition, keys: Keys, table: FrozenParameters
) -> LeaderPiece:
    from ngramkit.kernels.counting import most_frequent_followers_of_keys, unpack_windows

    leader_len = table.leader_len
    prefix = np.array(partition.prefix, np.int64)
    masks = windows.masks(len(prefix), leader_len)
    totals, chosen, rows, counts = most_frequent_followers_of_keys(keys, masks, table.followers)
    base = np.uint64(partition.low)
    ngrams = unpack_windows(keys, rows, windows.bits, base, prefix, windows.length)
    first = np.cumsum(chosen) - chosen
    ngrams = ngrams.astype(token_dtype(windows.vocabulary))
    leaders = ngrams[first, :leader_len]
    return LeaderPiece(leaders, totals, chosen, ngrams[:, leader_len:].copy(), counts)


def _leader_of_prefix(
    partition: Partition, last: Keys, counts: Counts, table: FrozenParameters, ids: npt.DTypeLike
) -> LeaderPiece:
    """Return the piece of a prefix that lacks only the last token."""
    best = rows_of_most_frequent_followers(last, counts, table.followers)
    ngrams = np.empty((len(best), len(partition.prefix) + 1), ids)
    ngrams[:, :-1] = partition.prefix
    ngrams[:, -1] = last[best, 0] + np.uint64(partition.low)
    total, size = np.array([counts.sum()]), np.array([len(best)])
    return LeaderPiece(
        ngrams[:1, : table.leader_len], total, size, ngrams[:, table.leader_len :], counts[best]
    )


@dataclass
class LeaderPiece:
    leaders: Array  # uint16 | uint32[l, LL]
    counts: Array  # int64[l]
    sizes: Array  # int64[l], followers of each
    followers: Array  # uint16 | uint32[f, FL]
    follower_counts: Array  # int64[f]

    def keep(self, wanted: Array) -> LeaderPiece:
        if wanted.all():
            return self
        rows = np.repeat(wanted, self.sizes)
        return LeaderPiece(
            self.leaders[wanted],
            self.counts[wanted],
            self.sizes[wanted],
            self.followers[rows],
            self.follower_counts[rows],
        )


def concatenate(pieces: list[LeaderPiece]) -> LeaderPiece:
    """Concatenate and empty pieces, to save memory."""
    columns = []
    for name in PIECE:
        columns.append(np.concatenate([getattr(piece, name) for piece in pieces]))
        for piece in pieces:
            delattr(piece, name)
    pieces.clear()
    return LeaderPiece(*columns)


def merge_ends(pieces: list[LeaderPiece], piece: LeaderPiece, followers: int) -> LeaderPiece:
    """Merge the last leader of `pieces` into the equal first one of `piece`."""
    last = pieces.pop()
    if len(last.leaders) > 1:
        pieces.append(last.keep(np.arange(len(last.leaders)) < len(last.leaders) - 1))
    own = last.keep(np.arange(len(last.leaders)) == len(last.leaders) - 1)
    both = concatenate([own, piece])
    size = int(both.sizes[0] + both.sizes[1])
    order = rows_of_most_frequent_followers(
        both.followers[:size], both.follower_counts[:size], followers
    )
    rows = np.concatenate([order, np.arange(size, len(both.followers))])
    return LeaderPiece(
        both.leaders[1:],
        np.concatenate([[both.counts[0] + both.counts[1]], both.counts[2:]]),
        np.concatenate([[len(order)], both.sizes[2:]]),
        both.followers[rows],
        both.follower_counts[rows],
    )


def rows_of_most_frequent_followers(followers: Array, counts: Array, most: int) -> Array:
    """Return the rows of the `most` frequent followers, ties to the lower ids: int64[<= most].

    `kernels.counting.most_frequent_followers_of_keys` does the same for keys.
    """
    return np.lexsort((*followers.T[::-1], -counts))[:most]


def mark_most_frequent_leaders(counts: Array, most: int) -> Array:
    """Mark the `most` highest counts, ties to the lower row: bool[l]."""
    wanted = np.zeros(len(counts), bool)
    wanted[np.argsort(-counts, kind="stable")[:most]] = True
    return wanted


def prune_leaders(piece: LeaderPiece, most: int) -> LeaderPiece:
    """Keep the `most` frequent leaders, and the ends, whose counts may grow."""
    wanted = mark_most_frequent_leaders(piece.counts, most)
    wanted[0] = wanted[-1] = True
    return piece.keep(wanted)


def write_piece(folder: str, name: str, piece: LeaderPiece, most: int) -> WrittenFile:
    if len(piece.leaders) > most:
        piece = prune_leaders(piece, most)
    return write_file(folder, name, vars(piece))


def read_piece(path: Path) -> LeaderPiece:
    arrays = open_arrays(path)
    require_layout(path, arrays, PIECE)
    return LeaderPiece(**arrays)


def table_arrays(piece: LeaderPiece, vocabulary: int) -> dict[str, Array]:
    ids = token_dtype(vocabulary)
    return {
        "leaders": piece.leaders.astype(ids, copy=False),
        "leader_counts": narrow_counts(piece.counts),
        "follower_offsets": np.concatenate([[0], np.cumsum(piece.sizes)]).astype(np.uint64),
        "followers": piece.followers.astype(ids, copy=False),
        "follower_counts": narrow_counts(piece.follower_counts),
    }


def narrow_counts(counts: Array) -> Array:
    fits = int(counts.max(initial=0)) < 1 << 32
    return counts.astype(np.uint32 if fits else np.uint64)
