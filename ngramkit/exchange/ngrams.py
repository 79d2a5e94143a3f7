"""N-grams and their counts from artifacts, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ngramkit.basics.errors import UsageError
from ngramkit.basics.machine import cores, free_memory
from ngramkit.builders.merge import mark_changes, sum_rows
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.datastore import Datastore, DatastoreShard
from ngramkit.formats.frozen_table import FrozenTable
from ngramkit.formats.model_bigram import ModelBigram
from ngramkit.formats.tokens import TokenShard, TokenStore

if TYPE_CHECKING:
    from ngramkit.builders.windows import Windows

ROWS_PER_PIECE = 1 << 20  # rows of a frozen table per piece
COUNT_OF_PROBABILITY_ONE = 1000
MIN_PROBABILITY_BY_ORDER = {1: 0.75, 2: 0.66}  # as llama.cpp's dynamic cache


@dataclass(frozen=True)
class Ngrams:
    """Rows of an n-gram and its next token, sorted by n-gram, with counts."""

    rows: npt.NDArray[np.int32]  # int32[n, order + 1]
    counts: npt.NDArray[np.int64]  # int64[n]

    def groups(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return each ngram's first row, int64[groups], and each row's group, int64[n]."""
        begins = mark_changes(self.rows[:, :-1])
        return np.flatnonzero(begins), np.cumsum(begins) - 1


def ngrams_of(
    artifact: Datastore | FrozenTable | ModelBigram, order: int, memory: int | None = None
) -> Iterator[Ngrams]:
    """Count n-grams of `order` tokens."""
    if isinstance(artifact, FrozenTable):
        return frozen_ngrams(artifact, order)
    if isinstance(artifact, ModelBigram):
        return bigram_ngrams(artifact, order)
    return datastore_ngrams(artifact, order, memory)


def longest_order(artifact: Artifact) -> int:
    if isinstance(artifact, FrozenTable):
        return artifact.leader_len + artifact.follower_len - 1
    return 2 if isinstance(artifact, ModelBigram) else 4


def datastore_ngrams(store: Datastore, order: int, memory: int | None = None) -> Iterator[Ngrams]:
    """Count every n-gram of `order` tokens and its next tokens, within documents.

    `memory`: bytes (default: half of the free memory).
    """
    from ngramkit.builders.windows import Windows

    windows = Windows(_Documents(store), order + 1, memory or free_memory() // 2, cores())
    yield from _whole_groups(_window_rows(windows))


def _window_rows(windows: Windows) -> Iterator[Ngrams]:
    from ngramkit.kernels.counting import unpack_windows

    for runs in windows.runs():
        prefix = np.array(runs.partition.prefix, np.int64)
        base = np.uint64(runs.partition.low)
        every = np.arange(len(runs.keys))
        rows = unpack_windows(runs.keys, every, windows.bits, base, prefix, windows.length)
        yield Ngrams(rows.astype(np.int32), runs.counts)


class _Documents(TokenStore):
    def __init__(self, store: Datastore) -> None:
        super().__init__(store.path, store.manifest)
        self._store = store

    @cached_property
    def shards(self) -> list[TokenShard]:
        return [_as_documents(shard, self._store.separator) for shard in self._store.shards]


def _as_documents(shard: DatastoreShard, separator: int) -> TokenShard:
    """Split a shard into documents; a separator is a one-token document."""
    ends = np.flatnonzero(shard.tokens == separator)
    offsets = np.empty(2 * len(ends) + 1, np.uint64)
    offsets[0], offsets[1::2], offsets[2::2] = 0, ends, ends + 1
    return TokenShard(shard.tokens, offsets)


def frozen_ngrams(table: FrozenTable, order: int) -> Iterator[Ngrams]:
    """Count n-grams of the table's windows. Raises UsageError if these are too short."""
    length = table.leader_len + table.follower_len
    if order >= length:
        raise UsageError(
            f"cannot export n-grams of {order} tokens and the token after them: {table.where} has "
            f"windows of {length} tokens",
            f"Build it with leader_len and follower_len of {order + 1} together.",
            option=("leader_len", "follower_len"),
        )
    yield from _whole_groups(_frozen_pieces(table, order + 1))


def _frozen_pieces(table: FrozenTable, length: int) -> Iterator[Ngrams]:
    offsets = table.follower_offsets.astype(np.int64)
    begin = 0
    while begin < len(table.leaders):
        end = max(
            int(np.searchsorted(offsets, offsets[begin] + ROWS_PER_PIECE, side="right")) - 1,
            begin + 1,
        )
        sizes = np.diff(offsets[begin : end + 1])
        leaders = np.repeat(table.leaders[begin:end], sizes, axis=0)
        part = slice(offsets[begin], offsets[end])
        rows = np.hstack([leaders, table.followers[part]])[:, :length].astype(np.int32)
        yield Ngrams(*sum_rows(rows, table.follower_counts[part].astype(np.int64)))
        begin = end


def _whole_groups(pieces: Iterator[Ngrams]) -> Iterator[Ngrams]:
    """Cut the rows so that one piece has all continuations of an n-gram."""
    rest: Ngrams | None = None
    for piece in pieces:
        if rest is not None:
            rows = np.concatenate([rest.rows, piece.rows])
            piece = Ngrams(*sum_rows(rows, np.concatenate([rest.counts, piece.counts])))
        last = int(piece.groups()[0][-1]) if len(piece.rows) else 0
        if last:
            yield Ngrams(piece.rows[:last], piece.counts[:last])
        rest = Ngrams(piece.rows[last:], piece.counts[last:])
    if rest is not None and len(rest.rows):
        yield rest


def bigram_ngrams(bigram: ModelBigram, order: int) -> Iterator[Ngrams]:
    """Turn a model's probabilities into rounded counts of COUNT_OF_PROBABILITY_ONE observations.

    Only best continuations of at least MIN_PROBABILITY_BY_ORDER: counts omit the mass outside the
    table, so others would look too sure. Order 1: what follows x. Order 2: what follows y, for each
    x and each y that may follow it.
    """
    if order not in MIN_PROBABILITY_BY_ORDER:
        raise UsageError(
            f"cannot export n-grams of {order} tokens: {bigram.path} has one token of context",
            "Export a datastore.",
        )
    best = np.exp(bigram.log_probs[:, 0].astype(np.float32))
    sure = best >= MIN_PROBABILITY_BY_ORDER[order]
    counts = np.rint(best * COUNT_OF_PROBABILITY_ONE).astype(np.int64)
    vocabulary, k = bigram.next_tokens.shape
    y = np.arange(vocabulary)
    if order == 2:
        x, y = np.repeat(y, k), bigram.next_tokens.reshape(-1).astype(np.int64)
        x, y = x[sure[y]], y[sure[y]]
        rows = np.column_stack([x, y, bigram.next_tokens[y, 0]])
    else:
        y = y[sure]
        rows = np.column_stack([y, bigram.next_tokens[y, 0]])
    yield Ngrams(*sum_rows(rows.astype(np.int32), counts[y]))
