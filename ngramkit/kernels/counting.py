"""Count n-grams: windows become packed u64 keys in partitions, which are sorted and counted.

A window is inside one document and begins in [begin, end), so threads can share a shard.
"""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.jit import allocating_entry, entry, part
from ngramkit.kernels.sorting import move_down_heap, move_up_heap

NONE, SECOND = -1, -2  # first token's partition: none, or by the second (row SECOND - value)


@part
def low_bits(count):
    if count >= 64:
        return ~np.uint64(0)
    return (np.uint64(1) << np.uint64(count)) - np.uint64(1)


@allocating_entry
def count_next(tokens, documents, begin, end, length, prefix, counts):
    """Add the windows that begin with `prefix` and t to counts[t] (i64)."""
    depth = len(prefix)
    document = np.searchsorted(documents, np.uint64(begin), side="right") - 1
    while document < len(documents) - 1 and np.int64(documents[document]) < end:
        first = max(np.int64(documents[document]), begin)
        last = min(np.int64(documents[document + 1]) - length + 1, end)
        for i in range(first, last):
            if _has_prefix(tokens, i, prefix):
                counts[tokens[i + depth]] += 1
        document += 1


@allocating_entry
def count_seconds(tokens, documents, begin, end, length, rows, counts):
    """Add windows that begin with t, u to counts[rows[t], u] (i64[n, V]) unless rows[t] is -1."""
    document = np.searchsorted(documents, np.uint64(begin), side="right") - 1
    while document < len(documents) - 1 and np.int64(documents[document]) < end:
        first = max(np.int64(documents[document]), begin)
        last = min(np.int64(documents[document + 1]) - length + 1, end)
        for i in range(first, last):
            row = rows[tokens[i]]
            if row >= 0:
                counts[row, tokens[i + 1]] += 1
        document += 1


@allocating_entry
def scatter_windows(
    tokens, documents, begin, end, length, prefix, partition, second, bits, bases, cursors, keys
):
    """Write the windows after `prefix` as packed keys (u64[n, 1]), each into its partition.

    Keys hold tokens of `bits` bits, first token highest. `partition` (i32[V]) maps the first one to
    NONE or to an index into `cursors` (i64, next free row, advanced) and `bases` (u64, subtracted
    from the token). From SECOND down it names a row of `second` (i32[rows, V]), which does the same
    for the next token.
    """
    depth = len(prefix)
    rest = length - depth
    mask = low_bits(bits * rest)
    place = low_bits(bits * (rest - 1)) + np.uint64(1)  # first token's lowest bit; 0 past 64 bits
    inner, inner_place = low_bits(bits * (rest - 1)), low_bits(bits * (rest - 2)) + np.uint64(1)
    document = np.searchsorted(documents, np.uint64(begin), side="right") - 1
    while document < len(documents) - 1 and np.int64(documents[document]) < end:
        first = max(np.int64(documents[document]), begin)
        last = min(np.int64(documents[document + 1]) - length + 1, end)
        key = np.uint64(0)
        if first < last:
            for i in range(first + depth, first + length - 1):
                key = (key << np.uint64(bits)) | np.uint64(tokens[i])
        for i in range(first, last):
            # Only bits of the first token overflow, which its base subtracts again.
            key = ((key << np.uint64(bits)) | np.uint64(tokens[i + length - 1])) & mask
            to = partition[tokens[i + depth]]
            if to == NONE or not _has_prefix(tokens, i, prefix):
                continue
            if to >= 0:
                keys[cursors[to], 0] = key - bases[to] * place
                cursors[to] += 1
                continue
            to = second[SECOND - to, tokens[i + depth + 1]]
            if to >= 0:
                keys[cursors[to], 0] = (key & inner) - bases[to] * inner_place
                cursors[to] += 1
        document += 1


@allocating_entry
def scatter_wide(
    tokens, documents, begin, end, length, prefix, partition, bits, bases, cursors, keys
):
    """Scatter windows into u64[n, words]; words but the first hold `64 // bits` tokens."""
    depth, words = len(prefix), keys.shape[1]
    per_word = 64 // bits
    document = np.searchsorted(documents, np.uint64(begin), side="right") - 1
    while document < len(documents) - 1 and np.int64(documents[document]) < end:
        first = max(np.int64(documents[document]), begin)
        last = min(np.int64(documents[document + 1]) - length + 1, end)
        for i in range(first, last):
            to = partition[tokens[i + depth]]
            if to < 0 or not _has_prefix(tokens, i, prefix):
                continue
            row = cursors[to]
            cursors[to] = row + 1
            start = i + depth
            stop = i + length - (words - 1) * per_word
            base = bases[to]
            for word in range(words):
                key = np.uint64(tokens[start]) - base
                for j in range(start + 1, stop):
                    key = (key << np.uint64(bits)) | np.uint64(tokens[j])
                keys[row, word] = key
                start, stop = stop, stop + per_word
                base = np.uint64(0)
        document += 1


@part
def _has_prefix(tokens, i, prefix):
    for j in range(len(prefix)):  # noqa: SIM110 -- numba does not compile all()
        if tokens[i + j] != prefix[j]:
            return False
    return True


# Runs of sorted keys.

LATEST = np.uint64(0xFFFFFFFF)


@entry
def runs_of(keys, counts):
    """Move distinct sorted keys (u64[n, words]) to the front; return their number."""
    distinct = 0
    for i in range(len(keys)):
        if i and _same_keys(keys, i, distinct - 1):
            counts[distinct - 1] += 1
        else:
            for word in range(keys.shape[1]):
                keys[distinct, word] = keys[i, word]
            counts[distinct] = 1
            distinct += 1
    return distinct


@allocating_entry
def most_frequent_followers_of_keys(keys, masks, most):
    """Return each leader's `most` frequent followers in sorted keys (u64[n, words], n < 2^32).

    `masks` (u64[words]) covers the leader's bits. Returns i64: keys and followers per leader; first
    row and count per follower, the highest count first, ties to the lower ids.
    """
    size = len(keys)
    totals, chosen = np.empty(size, np.int64), np.empty(size, np.int64)
    rows, counts = np.empty(size, np.int64), np.empty(size, np.int64)
    # The smallest entry of a heap is its worst run: short ones first, then late ones.
    heap = np.empty(min(most, size), np.uint64)
    leaders = runs = queued = leader = run = 0
    for i in range(1, size + 1):
        if i < size and _same_keys(keys, i, run):
            continue
        queued = _offer_follower(heap, queued, i - run, run - leader)
        run = i
        if i == size or _prefix_changes(keys, i, leader, masks):
            totals[leaders], chosen[leaders] = i - leader, queued
            _drain_heap(
                heap, queued, leader, rows[runs : runs + queued], counts[runs : runs + queued]
            )
            leaders += 1
            runs += queued
            queued, leader = 0, i
    return (
        totals[:leaders].copy(),
        chosen[:leaders].copy(),
        rows[:runs].copy(),
        counts[:runs].copy(),
    )


@part
def _same_keys(keys, i, j):
    for word in range(keys.shape[1]):  # noqa: SIM110 -- numba does not compile all()
        if keys[i, word] != keys[j, word]:
            return False
    return True


@part
def _prefix_changes(keys, i, j, masks):
    for word in range(keys.shape[1]):  # noqa: SIM110 -- numba does not compile any()
        if (keys[i, word] ^ keys[j, word]) & masks[word]:
            return True
    return False


@part
def _offer_follower(heap, size, count, order):
    entry = (np.uint64(count) << np.uint64(32)) | (LATEST - np.uint64(order))
    if size < len(heap):
        heap[size] = entry
        move_up_heap(heap, size)
        return size + 1
    if entry > heap[0]:
        heap[0] = entry
        move_down_heap(heap, size)
    return size


@part
def _drain_heap(heap, size, leader, rows, counts):
    for at in range(size - 1, -1, -1):
        rows[at] = leader + np.int64(LATEST - (heap[0] & LATEST))
        counts[at] = np.int64(heap[0] >> np.uint64(32))
        heap[0] = heap[at]
        move_down_heap(heap, at)


@allocating_entry
def unpack_windows(keys, rows, bits, base, prefix, length):
    """Return the windows of chosen rows, u32[len(rows), length]."""
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
