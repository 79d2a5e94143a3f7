"""llama.cpp's n-gram cache: records of varying length in a flat array of words.

A record is KEY_IDS token ids (padded with -1), the number of pairs, then pairs of token id and
count.
"""

from __future__ import annotations

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import allocating_entry, part

KEY_IDS = 4  # ids


@allocating_entry
def measure_records(words: Array) -> tuple[int, int, int]:
    """Return the numbers of records and pairs, and the begin of the first bad record or -1."""
    records = pairs = at = 0
    while at < len(words):
        length = key_length(words[at : at + KEY_IDS])
        if length < 1 or at + KEY_IDS >= len(words):
            return records, pairs, at
        size = int(words[at + KEY_IDS])
        end = at + KEY_IDS + 1 + 2 * size
        if size < 1 or end > len(words):
            return records, pairs, at
        for pair in range(at + KEY_IDS + 1, end, 2):
            if words[pair] < 0 or words[pair + 1] < 1:
                return records, pairs, at
        records, pairs, at = records + 1, pairs + size, end
    return records, pairs, -1


@part
def key_length(key):
    """Return how many ids `key` (int32[KEY_IDS]) holds; 0 if an id follows an unused place."""
    length = 0
    while length < len(key) and key[length] >= 0:
        length += 1
    for i in range(length, len(key)):
        if key[i] != -1:
            return 0
    return length


@allocating_entry
def split_records(words: Array, keys: Array, offsets: Array, pairs: Array) -> None:
    """Fill keys int32[records, KEY_IDS], offsets int64[records + 1] and pairs int32[pairs, 2]."""
    at = pair = 0
    for record in range(len(keys)):
        keys[record] = words[at : at + KEY_IDS]
        size = words[at + KEY_IDS]
        offsets[record + 1] = offsets[record] + size
        at += KEY_IDS + 1
        for _ in range(size):
            pairs[pair, 0] = words[at]
            pairs[pair, 1] = words[at + 1]
            pair += 1
            at += 2
