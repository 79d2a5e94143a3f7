"""Counting n-grams: windows packed into u64 keys (`kernels.scattering`), sorted, run by run."""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.jit import allocating_entry, entry, part
from ngramkit.kernels.scattering import low_bits

LATEST = np.uint64(0xFFFFFFFF)


@entry
def runs_of(keys, counts):
    """Moves each distinct row of sorted keys (u64[n, words]) to the front, its number of copies
    into counts (i64[n]), and returns how many distinct rows there are."""
    distinct = 0
    for i in range(len(keys)):
        if i and _same(keys, i, distinct - 1):
            counts[distinct - 1] += 1
        else:
            for word in range(keys.shape[1]):
                keys[distinct, word] = keys[i, word]
            counts[distinct] = 1
            distinct += 1
    return distinct


@allocating_entry
def best_runs(keys, masks, most):
    """Of sorted keys (u64[n, words], n < 2^32), each leader's `most` longest runs of equal keys.

    `masks` (u64[words]) covers the leader's bits. Returns, for each leader in order, its number of
    keys (i64[leaders]) and how many runs were chosen (i64[leaders]); and for every chosen run, the
    longest first, ties in order, its first row (i64[runs]) and its length (i64[runs]).
    """
    size = len(keys)
    totals, chosen = np.empty(size, np.int64), np.empty(size, np.int64)
    rows, counts = np.empty(size, np.int64), np.empty(size, np.int64)
    # The smallest entry of a heap is its worst run: short ones first, then late ones.
    heap = np.empty(min(most, size), np.uint64)
    leaders = runs = held = leader = run = 0
    for i in range(1, size + 1):
        if i < size and _same(keys, i, run):
            continue
        held = _offer(heap, held, i - run, run - leader)
        run = i
        if i == size or _changes(keys, i, leader, masks):
            totals[leaders], chosen[leaders] = i - leader, held
            _drain(heap, held, leader, rows[runs : runs + held], counts[runs : runs + held])
            leaders += 1
            runs += held
            held, leader = 0, i
    return (
        totals[:leaders].copy(),
        chosen[:leaders].copy(),
        rows[:runs].copy(),
        counts[:runs].copy(),
    )


@part
def _same(keys, i, j):
    for word in range(keys.shape[1]):  # noqa: SIM110 -- numba compiles no all()
        if keys[i, word] != keys[j, word]:
            return False
    return True


@part
def _changes(keys, i, j, masks):
    for word in range(keys.shape[1]):  # noqa: SIM110 -- numba compiles no any()
        if (keys[i, word] ^ keys[j, word]) & masks[word]:
            return True
    return False


@part
def _offer(heap, held, count, order):
    """Keeps a run if it is among the best; returns how many are held then."""
    entry = (np.uint64(count) << np.uint64(32)) | (LATEST - np.uint64(order))
    if held < len(heap):
        heap[held] = entry
        _rise(heap, held)
        return held + 1
    if entry > heap[0]:
        heap[0] = entry
        _sink(heap, held)
    return held


@part
def _drain(heap, held, leader, rows, counts):
    """Empties the heap into rows and counts, its worst run last."""
    for at in range(held - 1, -1, -1):
        rows[at] = leader + np.int64(LATEST - (heap[0] & LATEST))
        counts[at] = np.int64(heap[0] >> np.uint64(32))
        heap[0] = heap[at]
        _sink(heap, at)


@part
def _rise(heap, at):
    entry = heap[at]
    while at > 0 and heap[(at - 1) >> 1] > entry:
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = entry


@part
def _sink(heap, size):
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


@allocating_entry
def unpack(keys, rows, bits, base, prefix, length):
    """The windows of chosen rows: u32[len(rows), length], the prefix first."""
    depth, words = len(prefix), keys.shape[1]
    per_word = 64 // bits
    mask = low_bits(bits)
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
