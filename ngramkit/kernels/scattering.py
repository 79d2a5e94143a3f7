"""Windows of `length` tokens into partitions, packed into u64 keys: what counting n-grams sorts.

A window lies wholly inside one document. Windows are taken by where they begin: the caller gives
positions [begin, end) of a shard, so one shard can be shared among threads. A `prefix` restricts
them to windows that begin with these tokens; the token after it decides the partition.
"""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.jit import allocating_entry, part

NONE, SECOND = -1, -2  # of a first token: no partition, or one by the second (row SECOND - value)


@part
def low_bits(count):
    if count >= 64:
        return ~np.uint64(0)
    return (np.uint64(1) << np.uint64(count)) - np.uint64(1)


@allocating_entry
def count_next(tokens, documents, begin, end, length, prefix, counts):
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


@allocating_entry
def count_seconds(tokens, documents, begin, end, length, rows, counts):
    """Adds to counts[rows[t], u] (i64[n, vocabulary]) the windows that begin with t and u, where
    rows (i32[vocabulary]) is not -1."""
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
def scatter(
    tokens, documents, begin, end, length, prefix, partition, second, bits, bases, cursors, keys
):
    """Writes the windows after `prefix` as packed keys (u64[n, 1]), each into its partition.

    A key holds the tokens after the prefix, `bits` wide, first token highest. `partition`
    (i32[vocabulary]) is NONE where the token after the prefix is not wanted, else an index into
    `cursors` (i64, the next free row, advanced) and `bases` (u64, taken from that token, so that
    what is left fits into the key). From SECOND down it names a row of `second` (i32[rows,
    vocabulary]), which says the same of the token after that: it is in the prefix, then.
    """
    depth = len(prefix)
    rest = length - depth
    mask = low_bits(bits * rest)
    place = low_bits(bits * (rest - 1)) + np.uint64(1)  # of the first token; 0 beyond 64 bits
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
            # What overflows is the part of the first token that its base takes away again.
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
    """`scatter` for windows of several words: keys is u64[n, words]; all words but the first hold
    `64 // bits` tokens."""
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
    for j in range(len(prefix)):  # noqa: SIM110 -- numba compiles no all()
        if tokens[i + j] != prefix[j]:
            return False
    return True
