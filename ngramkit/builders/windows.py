"""All n-grams of a token store, sorted, in bounded memory.

Windows (`length` consecutive tokens of a document) are split into partitions: ranges of the first
token or, after a prefix that is too frequent, of the next token. One pass over the store fills a
group of partitions (`kernels.counting`); each is then sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ngramkit.formats.safetensors import Array
from ngramkit.formats.tokens import TokenShard, TokenStore
from ngramkit.kernels.arrays import read_only
from ngramkit.kernels.counting import (
    NONE,
    SECOND,
    count_next,
    count_seconds,
    runs_of,
    scatter_wide,
    scatter_windows,
)

CACHED_ROWS = 1 << 19  # rows of a partition that is sorted in the processor's cache
MAX_ROWS = 1 << 31  # rows of a partition; kernels count them in 32 bits

Result = TypeVar("Result")


Keys = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]
Stretch = tuple[Array, Array, int, int]  # tokens, documents, begin and end positions


@dataclass(frozen=True)
class Partition:
    """The windows that begin with `prefix` and a token in [low, high)."""

    prefix: tuple[int, ...]
    low: int
    high: int
    shares: tuple[int, ...]  # windows by worker

    @property
    def windows(self) -> int:
        return sum(self.shares)

    def for_one_worker(self) -> Partition:
        return Partition(self.prefix, self.low, self.high, (self.windows,))


@dataclass(frozen=True)
class SortedWindows:
    """A partition's distinct windows in order, packed as in `kernels.counting.scatter_windows`."""

    partition: Partition
    keys: Keys  # uint64[distinct, words]
    counts: Counts  # int64[distinct]


class Windows:
    """All windows of `length` tokens of a store.

    `memory` (bytes) bounds one group and its partitions. With `tasks`, each group is read later by
    one worker.
    """

    def __init__(
        self, store: TokenStore, length: int, memory: int, workers: int, *, tasks: bool = False
    ) -> None:
        self.length = length
        self.vocabulary = store.tokenizer.vocabulary
        self.bits = max(1, (self.vocabulary - 1).bit_length())
        self._pool = ThreadPoolExecutor(workers)
        self._work = _split_shards(store.shards, workers)
        self._histograms = lru_cache(maxsize=2)(self._count)
        self._seconds: dict[int, Counts] = {}  # histograms after frequent first tokens
        key = 8 * self.words(length)  # bytes
        in_use = 3 * key + 8 * length + 40  # bytes per row while a partition is being counted
        half, at_a_time = memory // 2, 1 if tasks else workers
        # Rows in one partition, and in one pass over the store.
        self._most = min(max(half // in_use // at_a_time, 1), MAX_ROWS)
        self._together = max(half // key, self._most)

    def each(self, use: Callable[[Partition, Keys, Counts | None], Result]) -> Iterator[Result]:
        """Yield `use(...)` for all partitions in order; see `read`."""
        for group in self.groups():
            yield from self.read(group, use)

    def groups(self) -> Iterator[list[Partition]]:
        """Yield lists of adjacent partitions that one pass can fill."""
        group: list[Partition] = []
        rows = 0
        for partition in self._partitions():
            apart = bool(group) and not self._at_once(group[0].prefix, partition.prefix)
            if group and (apart or rows + partition.windows > self._together):
                yield group
                group, rows = [], 0
            group.append(partition)
            rows += partition.windows
        if group:
            yield group

    def read(
        self, group: Sequence[Partition], use: Callable[[Partition, Keys, Counts | None], Result]
    ) -> Iterator[Result]:
        """Yield `use(partition, keys, counts)` for a group's partitions in order, run on threads.

        `keys` are sorted windows: distinct if `counts` is not None, otherwise one per occurrence.
        """
        if len(group[0].prefix) == self.length - 1:
            for partition in group:  # only the last token is free: its histogram
                counts = self._after(partition.prefix).sum(axis=0)[partition.low : partition.high]
                last = np.flatnonzero(counts)
                yield use(partition, last.astype(np.uint64)[:, None], counts[last])
            return
        keys, ends = self._fill(group)
        parts = np.split(keys, ends[:-1])
        yield from self._pool.map(
            lambda partition, part: use(partition, _sort_keys(part), None), group, parts
        )

    def runs(self) -> Iterator[SortedWindows]:
        yield from self.each(_as_runs)

    def words(self, rest: int) -> int:
        """Return the u64 words of `rest` tokens, the first relative to a partition's `low`."""
        per_word = 64 // self.bits
        return max(1, -(-(rest - 1) // per_word))

    def masks(self, depth: int, leader_len: int) -> Keys:
        """Return the bits of a leader's tokens in keys after a prefix of `depth`, uint64[words]."""
        per_word = 64 // self.bits
        stop = self.length - depth
        masks = np.zeros(self.words(stop), np.uint64)
        for word in range(len(masks) - 1, -1, -1):
            start = max(0, stop - per_word) if word else 0
            others = min(max(stop - max(leader_len - depth, start), 0), stop - start)
            if others < stop - start:
                masks[word] = (1 << 64) - (1 << self.bits * others)
            stop = start
        return masks

    def _count(self, prefix: tuple[int, ...]) -> Counts:
        """Count windows by their token after `prefix`: int64[workers, vocabulary]."""
        counts = np.zeros((len(self._work), self.vocabulary), np.int64)
        wanted = np.array(prefix, np.int64)

        def count(stretches: list[Stretch], row: Counts) -> None:
            for tokens, documents, begin, end in stretches:
                count_next(tokens, documents, begin, end, self.length, wanted, row)

        list(self._pool.map(count, self._work, counts))
        return counts

    def _after(self, prefix: tuple[int, ...]) -> Counts:
        """Count as `_count`, but after many single tokens in one pass."""
        if len(prefix) != 1:
            return self._histograms(prefix)
        if prefix[0] not in self._seconds:
            self._seconds = {}  # earlier ones are not needed again
            first = self._histograms(()).sum(axis=0)
            wanted = np.flatnonzero(first > self._most)
            at_a_time = max(self._most // (self.vocabulary * len(self._work)), 1)
            wanted = wanted[np.searchsorted(wanted, prefix[0]) :][:at_a_time]
            self._seconds = self._count_seconds(wanted)
        return self._seconds[prefix[0]]

    def _count_seconds(self, wanted: Counts) -> dict[int, Counts]:
        rows = np.full(self.vocabulary, -1, np.int32)
        rows[wanted] = np.arange(len(wanted))
        counts = np.zeros((len(self._work), len(wanted), self.vocabulary), np.int64)

        def count(stretches: list[Stretch], share: Counts) -> None:
            for tokens, documents, begin, end in stretches:
                count_seconds(tokens, documents, begin, end, self.length, rows, share)

        list(self._pool.map(count, self._work, counts))
        return {token: counts[:, row] for row, token in enumerate(wanted.tolist())}

    def _partitions(self, prefix: tuple[int, ...] = ()) -> Iterator[Partition]:
        """Yield partitions in order, each small enough or of the last token."""
        shares = self._after(prefix)
        counts = shares.sum(axis=0)
        rest, enough = self.length - len(prefix), min(CACHED_ROWS, self._most)
        packed = rest - (self.words(rest) - 1) * (64 // self.bits)  # tokens in the first word
        # First tokens that one partition can distinguish.
        span = 1 << min(self.bits, 64 - self.bits * (packed - 1))
        low = windows = 0
        for token in np.flatnonzero(counts).tolist():
            count = int(counts[token])
            if windows and (windows + count > enough or token - low >= span):
                yield _partition(prefix, low, token, shares)
                windows = 0
            if count > self._most and rest > 1:
                yield from self._partitions((*prefix, token))
                continue
            low = token if not windows else low
            windows += count
        if windows:
            yield _partition(prefix, low, min(low + span, self.vocabulary), shares)

    def _at_once(self, first: tuple[int, ...], second: tuple[int, ...]) -> bool:
        """Return whether one pass can fill partitions after both prefixes."""
        short = max(len(first), len(second)) <= 1
        return first == second or (short and self.length > 2 and self.words(self.length) == 1)

    def _fill(self, group: Sequence[Partition]) -> tuple[Keys, Counts]:
        """Fill a group in one pass: (keys uint64[n, words], each partition's end)."""
        prefix = () if self._at_once((), group[0].prefix) else group[0].prefix
        owner, second = self._owners(group, len(prefix))
        sizes = np.array([part.shares for part in group])
        ends = np.cumsum(sizes.ravel()).reshape(sizes.shape)
        bases = np.array([part.low for part in group], np.uint64)
        keys = np.empty((int(ends[-1, -1]), self.words(self.length - len(prefix))), np.uint64)
        begins = np.array(prefix, np.int64)

        def fill(stretches: list[Stretch], cursors: Counts) -> None:
            for tokens, documents, begin, end in stretches:
                where = (tokens, documents, begin, end, self.length, begins, owner)
                if keys.shape[1] == 1:
                    scatter_windows(*where, second, self.bits, bases, cursors, keys)
                else:
                    scatter_wide(*where, self.bits, bases, cursors, keys)

        list(self._pool.map(fill, self._work, np.ascontiguousarray((ends - sizes).T)))
        return keys, ends[:, -1]

    def _owners(self, group: Sequence[Partition], depth: int) -> tuple[Array, Array]:
        """Return each token's partition, int32[V], and for longer prefixes, int32[prefixes, V]."""
        owner = np.full(self.vocabulary, NONE, np.int32)
        longer = sorted({part.prefix[depth] for part in group if len(part.prefix) > depth})
        second = np.full((max(len(longer), 1), self.vocabulary), NONE, np.int32)
        owner[longer] = SECOND - np.arange(len(longer))
        for i, part in enumerate(group):
            if len(part.prefix) > depth:
                second[longer.index(part.prefix[depth]), part.low : part.high] = i
            else:
                inside = owner[part.low : part.high]
                inside[inside == NONE] = i  # a frequent token in it has its own partitions
        return owner, second


def _partition(prefix: tuple[int, ...], low: int, high: int, counts: Counts) -> Partition:
    return Partition(prefix, low, high, tuple(counts[:, low:high].sum(axis=1).tolist()))


def _split_shards(shards: Sequence[TokenShard], workers: int) -> list[list[Stretch]]:
    shares: list[list[Stretch]] = [[] for _ in range(workers)]
    for shard in shards:
        cuts = np.linspace(0, len(shard.tokens), workers + 1).astype(np.int64).tolist()
        arrays = read_only(shard.tokens), read_only(shard.documents)
        for share, (begin, end) in zip(shares, pairwise(cuts), strict=True):
            share.append((*arrays, begin, end))
    return shares


def _sort_keys(keys: Keys) -> Keys:
    if keys.shape[1] == 1:
        keys[:, 0].sort()
        return keys
    keys = keys[np.argsort(keys[:, 0])]
    ties = keys[1:, 0] == keys[:-1, 0]  # with the previous row
    for word in range(1, keys.shape[1]):
        rows = np.flatnonzero(np.append(False, ties) | np.append(ties, False))
        groups = np.cumsum(np.append(True, ~ties))[rows]
        keys[rows] = keys[rows[np.lexsort((keys[rows, word], groups))]]
        ties &= keys[1:, word] == keys[:-1, word]
    return keys


def _as_runs(partition: Partition, keys: Keys, counts: Counts | None) -> SortedWindows:
    if counts is None:
        counts = np.empty(len(keys), np.int64)
        distinct = runs_of(keys, counts)
        keys, counts = keys[:distinct], counts[:distinct]
    return SortedWindows(partition, keys, counts)
