"""Every n-gram of a token store, sorted, in bounded memory.

The windows of a corpus (see kernels/counting) are split into partitions: ranges of the first
token, or, where one token alone is too frequent, of the token after a prefix. Partitions that fit
into memory together are filled in one pass over the memory-mapped store, then sorted one by one.
This module does not know leaders from followers.
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

from ngramkit.formats.container import Array
from ngramkit.formats.tokens import TokenStore
from ngramkit.kernels.counting import count_next, runs_of, scatter, scatter_wide

COMFORTABLE = 1 << 19  # rows; a partition of this size is sorted in the cache
MOST_ROWS = 1 << 31  # rows in a partition; kernels count them in 32 bits

Keys = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]
Stretch = tuple[Array, Array, int, int]  # tokens, documents, begin and end positions
Result = TypeVar("Result")


@dataclass(frozen=True)
class Partition:
    """The windows that begin with `prefix` and then a token of [low, high)."""

    prefix: tuple[int, ...]
    low: int
    high: int
    windows: int


@dataclass(frozen=True)
class Runs:
    """A partition's distinct windows in order, packed as `kernels.counting.scatter` packs them."""

    partition: Partition
    keys: Keys  # uint64[distinct, words]
    counts: Counts  # int64[distinct]


class Windows:
    """All windows of `length` tokens that begin in some stretches of a store's files.

    `memory` is in bytes, `workers` are threads.
    """

    def __init__(
        self,
        stretches: Sequence[Stretch],
        vocabulary: int,
        length: int,
        memory: int,
        workers: int,
    ) -> None:
        self.length = length
        self.vocabulary = vocabulary
        self.bits = max(1, (self.vocabulary - 1).bit_length())
        self._pool = ThreadPoolExecutor(workers)
        self._work = _shares(stretches, workers)
        self._histograms = lru_cache(maxsize=2)(self._count)
        key = 8 * self.words(length)  # bytes
        in_use = 3 * key + 8 * length + 40  # bytes per row while a partition is being counted
        half = memory // 2
        self._most = min(max(half // in_use // workers, 1), MOST_ROWS)  # rows in one partition
        self._together = max(half // key, self._most)  # rows in one pass

    @classmethod
    def of(cls, store: TokenStore, length: int, memory: int, workers: int) -> Windows:
        """Those of the whole store."""
        whole = [(each.tokens, each.documents, 0, len(each.tokens)) for each in store.shards]
        return cls(whole, store.tokenizer.vocabulary, length, memory, workers)

    def each(self, use: Callable[[Partition, Keys, Counts | None], Result]) -> Iterator[Result]:
        """use(partition, keys, counts) of every partition in ascending order, in threads.

        `keys` are the partition's windows, sorted, a copy for every occurrence; or, where `counts`
        is given, each window once.
        """
        for group in self._groups():
            if len(group[0].prefix) == self.length - 1:
                for partition in group:
                    yield use(partition, *self._last_tokens(partition))
                continue
            keys, ends = self._fill(group)
            parts = np.split(keys, ends[:-1])
            yield from self._pool.map(
                lambda partition, part: use(partition, _sorted(part), None), group, parts
            )

    def runs(self) -> Iterator[Runs]:
        """Every distinct window with its count, in ascending order."""
        yield from self.each(_as_runs)

    def words(self, rest: int) -> int:
        """u64 words for `rest` tokens; the first token of the first word is relative."""
        per_word = 64 // self.bits
        return max(1, -(-(rest - 1) // per_word))

    def masks(self, depth: int, leader_len: int) -> Keys:
        """uint64[words]: the bits of a leader's tokens in keys after a prefix of `depth`."""
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

    def _span(self, rest: int) -> int:
        """How many different first tokens one partition can tell apart."""
        packed = rest - (self.words(rest) - 1) * (64 // self.bits)  # tokens in the first word
        return 1 << min(self.bits, 64 - self.bits * (packed - 1))

    def _count(self, prefix: tuple[int, ...]) -> Counts:
        """int64[workers, vocabulary]: windows of each worker with `prefix` and then each token."""
        counts = np.zeros((len(self._work), self.vocabulary), np.int64)
        wanted = np.array(prefix, np.int64)

        def count(stretches: list[Stretch], row: Counts) -> None:
            for tokens, documents, begin, end in stretches:
                count_next(tokens, documents, begin, end, self.length, wanted, row)

        list(self._pool.map(count, self._work, counts))
        return counts

    def _partitions(self, prefix: tuple[int, ...] = ()) -> Iterator[Partition]:
        """In ascending order; each small enough, or of the last token alone."""
        counts = self._histograms(prefix).sum(axis=0)
        rest = self.length - len(prefix)
        enough, span = min(COMFORTABLE, self._most), self._span(rest)
        low = windows = 0
        for token in np.flatnonzero(counts).tolist():
            count = int(counts[token])
            if windows and (windows + count > enough or token - low >= span):
                yield Partition(prefix, low, token, windows)
                windows = 0
            if count > self._most and rest > 1:
                yield from self._partitions((*prefix, token))
                continue
            low = token if not windows else low
            windows += count
        if windows:
            yield Partition(prefix, low, min(low + span, self.vocabulary), windows)

    def _groups(self) -> Iterator[list[Partition]]:
        """Neighbours with one prefix that fit into memory together."""
        group: list[Partition] = []
        held = 0
        for partition in self._partitions():
            apart = bool(group) and group[0].prefix != partition.prefix
            if group and (apart or held + partition.windows > self._together):
                yield group
                group, held = [], 0
            group.append(partition)
            held += partition.windows
        if group:
            yield group

    def _last_tokens(self, partition: Partition) -> tuple[Keys, Counts]:
        """Only the last token is open: the histogram is the answer already."""
        counts = self._histograms(partition.prefix).sum(axis=0)[partition.low : partition.high]
        last = np.flatnonzero(counts)
        return last.astype(np.uint64)[:, None], counts[last]

    def _fill(self, group: list[Partition]) -> tuple[Keys, Counts]:
        """One pass over the store: (keys uint64[n, words], where each partition ends)."""
        prefix = np.array(group[0].prefix, np.int64)
        owner = np.full(self.vocabulary, -1, np.int32)
        for i, part in enumerate(group):
            owner[part.low : part.high] = i
        counts = self._histograms(group[0].prefix)
        sizes = np.stack([counts[:, p.low : p.high].sum(axis=1) for p in group])
        ends = np.cumsum(sizes.ravel()).reshape(sizes.shape)
        bases = np.array([part.low for part in group], np.uint64)
        keys = np.empty((int(ends[-1, -1]), self.words(self.length - len(prefix))), np.uint64)
        write = scatter if keys.shape[1] == 1 else scatter_wide

        def fill(stretches: list[Stretch], cursors: Counts) -> None:
            for tokens, documents, begin, end in stretches:
                where = (tokens, documents, begin, end, self.length, prefix)
                write(*where, owner, self.bits, bases, cursors, keys)

        list(self._pool.map(fill, self._work, np.ascontiguousarray((ends - sizes).T)))
        return keys, ends[:, -1]


def _shares(stretches: Sequence[Stretch], workers: int) -> list[list[Stretch]]:
    """For each worker, its part of every stretch."""
    shares: list[list[Stretch]] = [[] for _ in range(workers)]
    for tokens, documents, first, last in stretches:
        cuts = np.linspace(first, last, workers + 1).astype(np.int64).tolist()
        for share, (begin, end) in zip(shares, pairwise(cuts), strict=True):
            share.append((tokens, documents, begin, end))
    return shares


def _sorted(keys: Keys) -> Keys:
    """Rows in ascending order: by the first word, in place; then, where rows tie, by the next."""
    if keys.shape[1] == 1:
        keys[:, 0].sort()
        return keys
    keys = keys[np.argsort(keys[:, 0])]
    ties = keys[1:, 0] == keys[:-1, 0]  # with the row before
    for word in range(1, keys.shape[1]):
        rows = np.flatnonzero(np.append(False, ties) | np.append(ties, False))
        groups = np.cumsum(np.append(True, ~ties))[rows]
        keys[rows] = keys[rows[np.lexsort((keys[rows, word], groups))]]
        ties &= keys[1:, word] == keys[:-1, word]
    return keys


def _as_runs(partition: Partition, keys: Keys, counts: Counts | None) -> Runs:
    if counts is None:
        counts = np.empty(len(keys), np.int64)
        distinct = runs_of(keys, counts)
        keys, counts = keys[:distinct], counts[:distinct]
    return Runs(partition, keys, counts)
