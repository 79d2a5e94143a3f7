"""Counting n-grams: windows of `length` tokens, packed into u64 keys, sorted, run by run.

A window lies wholly inside one document. Windows are taken by where they begin: the caller gives
positions [begin, end) of a shard, so one shard can be shared among threads. A `prefix` restricts
them to windows that begin with these tokens; the token after it decides the partition.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def count_next(tokens, documents, begin, end, length, prefix, counts):  # type: ignore[no-untyped-def]
    """Adds to counts[t] (i64) the windows that hold `prefix` and then t."""
    depth = len(prefix)
    document = np.searchsorted(documents, np.uint64(begin), side="right") - 1
    while document < len(documents) - 1 and np.int64(documents[document]) < end:
        first = max(np.int64(documents[document]), begin)
        last = min(np.int64(documents[document + 1]) - length + 1, end)
        for i in range(first, last):
            if _has_prefix(tokens, i, prefix):
                counts[tokens[i + depth]] += 1
        document += 1


@njit(cache=True, nogil=True)
def scatter(tokens, documents, begin, end, length, prefix, partition, bits, bases, cursors, keys):  # type: ignore[no-untyped-def]
    """Writes the windows after `prefix` as packed keys, each into its partition's place.

    The window's tokens after the prefix are packed `64 // bits` to a word, first token highest,
    into keys (u64[n, words]); `partition` (i32[vocabulary]) is -1 where the token after the prefix
    is not wanted, else the index into `cursors` (i64, the next free row, advanced) and `bases`
    (u64, taken from the first word so that it fits).
    """
    depth, words = len(prefix), keys.shape[1]
    per_word = 64 // bits
    document = np.searchsorted(documents, np.uint64(begin), side="right") - 1
    while document < len(documents) - 1 and np.int64(documents[document]) < end:
        first = max(np.int64(documents[document]), begin)
        last = min(np.int64(documents[document + 1]) - length + 1, end)
        for i in range(first, last):
            if not _has_prefix(tokens, i, prefix):
                continue
            to = partition[tokens[i + depth]]
            if to < 0:
                continue
            row = cursors[to]
            cursors[to] = row + 1
            stop = i + length
            for word in range(words - 1, -1, -1):
                start = max(i + depth, stop - per_word) if word else i + depth
                key = np.uint64(0)
                for j in range(start, stop):
                    token = np.uint64(tokens[j])
                    if j == i + depth:
                        token -= bases[to]
                    key = (key << np.uint64(bits)) | token
                keys[row, word] = key
                stop = start
        document += 1


@njit(cache=True, nogil=True)
def _has_prefix(tokens, i, prefix):  # type: ignore[no-untyped-def]
    for j in range(len(prefix)):  # noqa: SIM110 -- numba compiles no all()
        if tokens[i + j] != prefix[j]:
            return False
    return True


@njit(cache=True, nogil=True)
def runs_of(keys, counts):  # type: ignore[no-untyped-def]
    """Moves each distinct row of sorted keys (u64[n, words]) to the front, its number of copies
    into counts (i64[n]), and returns how many distinct rows there are."""
    distinct = 0
    for i in range(len(keys)):
        if i and _equal(keys, i, distinct - 1):
            counts[distinct - 1] += 1
        else:
            for word in range(keys.shape[1]):
                keys[distinct, word] = keys[i, word]
            counts[distinct] = 1
            distinct += 1
    return distinct


@njit(cache=True, nogil=True)
def _equal(keys, i, j):  # type: ignore[no-untyped-def]
    for word in range(keys.shape[1]):  # noqa: SIM110 -- numba compiles no all()
        if keys[i, word] != keys[j, word]:
            return False
    return True


@njit(cache=True, nogil=True)
def leader_starts(keys, distinct, masks):  # type: ignore[no-untyped-def]
    """i64[leaders + 1]: the rows where a leader begins among `distinct` sorted ones, and their end.

    `masks` (u64[words]) covers the leader's bits of a row.
    """
    starts = np.empty(distinct + 1, np.int64)
    leaders = 0
    for i in range(distinct):
        begins = i == 0
        for word in range(keys.shape[1]):
            begins |= (keys[i, word] ^ keys[i - 1, word]) & masks[word] != 0
        if begins:
            starts[leaders] = i
            leaders += 1
    starts[leaders] = distinct
    return starts[: leaders + 1].copy()


@njit(cache=True, nogil=True)
def best_followers(counts, starts, most):  # type: ignore[no-untyped-def]
    """Of the rows starts[i] .. starts[i + 1], the `most` with the highest count, ties by row.

    counts i64[rows]; starts i64[leaders + 1], at most 2^32 rows. Returns (rows i64[kept], best
    first for each leader; offsets i64[leaders + 1] into them).
    """
    leaders = len(starts) - 1
    offsets = np.zeros(leaders + 1, np.int64)
    for leader in range(leaders):
        offsets[leader + 1] = offsets[leader] + min(starts[leader + 1] - starts[leader], most)
    rows = np.empty(offsets[leaders], np.int64)
    # A heap's worst entry is its smallest: low counts first, then high rows.
    heap = np.empty(most, np.uint64)
    low = np.uint64(0xFFFFFFFF)
    for leader in range(leaders):
        size = 0
        begin = starts[leader]
        for row in range(begin, starts[leader + 1]):
            entry = (np.uint64(counts[row]) << np.uint64(32)) | (low - np.uint64(row - begin))
            if size < most:
                heap[size] = entry
                size += 1
                _rise(heap, size - 1)
            elif entry > heap[0]:
                heap[0] = entry
                _sink(heap, size)
        for at in range(offsets[leader] + size - 1, offsets[leader] - 1, -1):
            rows[at] = begin + np.int64(low - (heap[0] & low))
            size -= 1
            heap[0] = heap[size]
            _sink(heap, size)
    return rows, offsets


@njit(cache=True, nogil=True)
def _rise(heap, at):  # type: ignore[no-untyped-def]
    entry = heap[at]
    while at > 0 and heap[(at - 1) >> 1] > entry:
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = entry


@njit(cache=True, nogil=True)
def _sink(heap, size):  # type: ignore[no-untyped-def]
    entry, at = heap[0], 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= entry:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = entry


@njit(cache=True, nogil=True)
def unpack(keys, rows, bits, base, prefix, length):  # type: ignore[no-untyped-def]
    """The windows of chosen rows: u32[len(rows), length], the prefix first. See `scatter`."""
    depth, words = len(prefix), keys.shape[1]
    per_word = 64 // bits
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    windows = np.empty((len(rows), length), np.uint32)
    for i in range(len(rows)):
        for j in range(depth):
            windows[i, j] = prefix[j]
        stop = length
        for word in range(words - 1, -1, -1):
            start = max(depth, stop - per_word) if word else depth
            key = keys[rows[i], word]
            for j in range(stop - 1, start, -1):
                windows[i, j] = key & mask
                key >>= np.uint64(bits)
            windows[i, start] = key + (base if word == 0 else np.uint64(0))
            stop = start
    return windows
