"""Partitions of a store's windows, and what is done with each: sorted, counted run by run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ngramkit.formats.container import Array
from ngramkit.kernels.counting import runs_of

Keys = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]
Stretch = tuple[Array, Array, int, int]  # tokens, documents, begin and end positions


@dataclass(frozen=True)
class Partition:
    """The windows that begin with `prefix` and then a token of [low, high)."""

    prefix: tuple[int, ...]
    low: int
    high: int
    shares: tuple[int, ...]  # windows that each worker finds

    @property
    def windows(self) -> int:
        return sum(self.shares)


@dataclass(frozen=True)
class Runs:
    """A partition's distinct windows in order, packed as `scattering.scatter` packs them."""

    partition: Partition
    keys: Keys  # uint64[distinct, words]
    counts: Counts  # int64[distinct]


def partition_of(prefix: tuple[int, ...], low: int, high: int, counts: Counts) -> Partition:
    return Partition(prefix, low, high, tuple(counts[:, low:high].sum(axis=1).tolist()))


def shares_of(stretches: Sequence[Stretch], workers: int) -> list[list[Stretch]]:
    """For each worker, its part of every stretch."""
    shares: list[list[Stretch]] = [[] for _ in range(workers)]
    for tokens, documents, first, last in stretches:
        cuts = np.linspace(first, last, workers + 1).astype(np.int64).tolist()
        for share, (begin, end) in zip(shares, pairwise(cuts), strict=True):
            share.append((tokens, documents, begin, end))
    return shares


def in_order(keys: Keys) -> Keys:
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


def as_runs(partition: Partition, keys: Keys, counts: Counts | None) -> Runs:
    if counts is None:
        counts = np.empty(len(keys), np.int64)
        distinct = runs_of(keys, counts)
        keys, counts = keys[:distinct], counts[:distinct]
    return Runs(partition, keys, counts)
