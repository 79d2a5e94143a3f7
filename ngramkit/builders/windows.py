"""Every n-gram of a token store, counted in key order, in bounded memory.

The windows of a corpus (see kernels/counting) are split into partitions: ranges of the first
token, or, where one token alone is too frequent, of the token after a prefix. Partitions that fit
into memory together are filled in one pass over the memory-mapped store, then sorted one by one.
This module does not know leaders from followers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ngramkit.formats.container import Array
from ngramkit.formats.manifest import TokenizerRecord
from ngramkit.formats.tokens import TokenShard
from ngramkit.kernels.counting import count_next, runs_of, scatter

COMFORTABLE = 1 << 19  # rows; the sort of a partition of this size stays in the cache
SORTING = 48  # bytes per row and word that a partition takes while it is being sorted


class Documents(Protocol):
    """What is counted in: a token store, or what has shards like one."""

    @property
    def tokenizer(self) -> TokenizerRecord: ...
    @property
    def shards(self) -> Sequence[TokenShard]: ...


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
    keys: npt.NDArray[np.uint64]  # uint64[distinct, words]
    counts: npt.NDArray[np.int64]  # int64[distinct]


class Windows:
    """All windows of `length` tokens of a store. `memory` is in bytes, `workers` are threads."""

    def __init__(self, store: Documents, length: int, memory: int, workers: int) -> None:
        self.length = length
        self.vocabulary = store.tokenizer.vocabulary
        self.bits = max(1, (self.vocabulary - 1).bit_length())
        self.pool = ThreadPoolExecutor(workers)
        self.workers = workers
        per_row = SORTING * self._words(length)
        self.most = max(memory // per_row // (workers + 1), 1)  # rows in one partition
        self.together = max(memory // (2 * 8 * self._words(length)), self.most)  # rows in one pass
        self._slices = list(self._cut(store))

    def runs(self) -> Iterator[Runs]:
        """Every distinct window with its count, in ascending order."""
        for group in self._groups():
            yield from self._count_group(group)

    def _words(self, rest: int) -> int:
        """u64 words for `rest` tokens; the first token of the first word is relative."""
        per_word = 64 // self.bits
        return max(1, -(-(rest - 1) // per_word))

    def _span(self, rest: int) -> int:
        """How many different first tokens one partition can tell apart."""
        per_word = 64 // self.bits
        packed = rest - (self._words(rest) - 1) * per_word  # tokens in the first word
        return 1 << min(self.bits, 64 - self.bits * (packed - 1))

    def masks(self, depth: int, leader_len: int, words: int) -> npt.NDArray[np.uint64]:
        """uint64[words]: the bits of the first `leader_len` tokens after a prefix of `depth`."""
        per_word = 64 // self.bits
        masks = np.zeros(words, np.uint64)
        stop = self.length - depth
        for word in range(words - 1, -1, -1):
            start = max(0, stop - per_word) if word else 0
            others = min(max(stop - max(leader_len, start), 0), stop - start)
            if others < stop - start:
                masks[word] = (1 << 64) - (1 << self.bits * others)
            stop = start
        return masks

    def _cut(self, store: Documents) -> Iterator[tuple[Array, Array, int, int]]:
        """The store as equal stretches of positions, at least one for each worker."""
        for shard in store.shards:
            cuts = np.linspace(0, len(shard.tokens), self.workers + 1).astype(np.int64)
            for begin, end in zip(cuts[:-1], cuts[1:], strict=True):
                yield shard.tokens, shard.documents, int(begin), int(end)

    def _histograms(self, prefix: tuple[int, ...]) -> npt.NDArray[np.int64]:
        """int64[slices, vocabulary]: windows with `prefix` and then each token."""
        counts = np.zeros((len(self._slices), self.vocabulary), np.int64)
        wanted = np.array(prefix, np.int64)
        list(
            self.pool.map(
                lambda s, row: count_next(*s, self.length, wanted, row), self._slices, counts
            )
        )
        return counts

    def partitions(self, prefix: tuple[int, ...] = ()) -> Iterator[Partition]:
        """In ascending order; each small enough, or one single window however often."""
        counts = self._histograms(prefix).sum(axis=0)
        span, rest = self._span(self.length - len(prefix)), self.length - len(prefix)
        low = windows = 0
        for token in np.flatnonzero(counts).tolist():
            count = int(counts[token])
            if windows and (windows + count > min(COMFORTABLE, self.most) or token - low >= span):
                yield Partition(prefix, low, token, windows)
                windows = 0
            if count > self.most and rest > 1:
                yield from self.partitions((*prefix, token))
                continue
            low = token if not windows else low
            windows += count
        if windows:
            yield Partition(prefix, low, self.vocabulary, windows)

    def _groups(self) -> Iterator[list[Partition]]:
        """Neighbours with one prefix that fit into memory together."""
        group: list[Partition] = []
        held = 0
        for partition in self.partitions():
            apart = bool(group) and group[0].prefix != partition.prefix
            if group and (apart or held + partition.windows > self.together):
                yield group
                group, held = [], 0
            group.append(partition)
            held += partition.windows
        if group:
            yield group

    def _count_group(self, group: list[Partition]) -> Iterator[Runs]:
        if len(group[0].prefix) == self.length - 1:
            yield from self._single(group)
            return
        keys, ends = self._fill(group)
        parts = np.split(keys, ends[:-1])
        yield from self.pool.map(count_runs, group, parts)

    def _single(self, group: list[Partition]) -> Iterator[Runs]:
        """Only the last token is open: the histogram is the answer already."""
        counts = self._histograms(group[0].prefix).sum(axis=0)
        for partition in group:
            last = np.flatnonzero(counts[partition.low : partition.high])
            yield Runs(
                partition,
                last.astype(np.uint64)[:, None],
                counts[partition.low : partition.high][last],
            )

    def _fill(self, group: list[Partition]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        """One pass over the store: (keys uint64[n, words], where each partition ends)."""
        prefix = np.array(group[0].prefix, np.int64)
        owner = np.full(self.vocabulary, -1, np.int32)
        for i, part in enumerate(group):
            owner[part.low : part.high] = i
        counts = self._histograms(group[0].prefix)
        sizes = np.stack([counts[:, p.low : p.high].sum(axis=1) for p in group])
        flat = np.cumsum(sizes.ravel())
        cursors = (flat - sizes.ravel()).reshape(sizes.shape).T.copy()
        bases = np.array([part.low for part in group], np.uint64)
        keys = np.empty((int(flat[-1]), self._words(self.length - len(prefix))), np.uint64)
        list(
            self.pool.map(
                lambda s, row: scatter(*s, self.length, prefix, owner, self.bits, bases, row, keys),
                self._slices,
                cursors,
            )
        )
        return keys, flat.reshape(sizes.shape)[:, -1]


def count_runs(partition: Partition, keys: npt.NDArray[np.uint64]) -> Runs:
    """Sorts `keys` in place and counts equal ones."""
    if keys.shape[1] == 1:
        keys[:, 0].sort()
    else:
        keys[:] = keys[np.lexsort(keys.T[::-1])]
    counts = np.empty(len(keys), np.int64)
    distinct = runs_of(keys, counts)
    return Runs(partition, keys[:distinct], counts[:distinct])
