"""Build suffix arrays of token ids: pydivsufsort over the narrowest big-endian bytes.

Tokens go in as big-endian bytes, so that bytes sort as tokens do; positions inside a token are
then dropped in place. At 16-bit width that needs 10 bytes per token beside the tokens (2 of text, 8
of byte positions), 15 at 24 bits. The sorting runs without the GIL.
"""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import allocating_entry, entry

INT32 = (1 << 31) - 1
SHORT = 1 << 14  # tokens; pydivsufsort takes 0.7 ms for even one
PATIENCE = 1 << 18  # equal tokens that are compared, at most: 0.3 ms


def sort_shard(tokens: Array, separator: int, *, wide: bool = False) -> dict[str, Array]:
    """Return the arrays of one shard of tokens (u16 | u32 [n], no id above `separator`):

    tokens itself, suffix_array (i32 | i64 [n]) and first_token (u64 [separator + 2]), as
    ngramkit.formats.datastore describes them. `wide` takes 64-bit byte positions where 32-bit ones
    would do.

    [1, 2, 1, 3] with separator 3 -> suffix_array [0, 2, 1, 3], first_token [0, 0, 2, 3, 4]
    """
    from pydivsufsort import divsufsort

    bounds = np.zeros(separator + 2, np.uint64)
    np.cumsum(token_counts(tokens, separator + 1), out=bounds[1:])
    width = 2 if separator <= 0xFFFF else 3
    positions = divsufsort(_big_endian(tokens, width), force64=wide)
    dtype = np.int32 if len(tokens) <= INT32 else np.int64
    kept = positions.view(dtype)[: len(tokens)]
    keep_aligned(positions, kept, width)
    return {"tokens": tokens, "suffix_array": kept, "first_token": bounds}


def sort_requests(tokens: Array, separator: int) -> Array:
    """Return the suffix array i32 of texts that each end with `separator`, the highest id.

    The order of suffixes that agree up to a separator is any. Few tokens are sorted by comparing,
    unless they repeat themselves too much.

    [1, 2, 1, 3] with separator 3 -> [0, 2, 1, 3]
    """
    if len(tokens) <= SHORT:
        order = np.empty((2, len(tokens)), np.int32)
        place = sort_by_comparing(tokens, order)
        if place >= 0:
            return order[place].copy()
    return sort_shard(tokens, separator)["suffix_array"].copy()  # twice as long underneath


@entry
def sort_by_comparing(tokens: Array, order: Array) -> int:
    """Merge ever longer runs of suffixes, compared up to the first separator, which `tokens` ends
    with. Return the row of `order`, i32[2, n], that they stand in, -1 where it takes too long."""
    size, left, row = len(tokens), PATIENCE, 0
    separator = tokens[size - 1]
    for i in range(size):
        order[0, i] = i
    width = 1
    while width < size and left >= 0:
        here, there = order[row], order[1 - row]
        for begin in range(0, size, 2 * width):
            middle, end = min(begin + width, size), min(begin + 2 * width, size)
            first, second = begin, middle
            for k in range(begin, end):
                take = second == end
                if not take and first < middle:
                    one, other = here[first], here[second]
                    while tokens[one] == tokens[other] and tokens[one] != separator:
                        one += 1
                        other += 1
                        left -= 1
                    take = tokens[one] <= tokens[other]
                there[k] = here[first] if take else here[second]
                first += take
                second += not take
        row = 1 - row
        width *= 2
    return row if left >= 0 else -1


def _big_endian(tokens: Array, width: int) -> Array:
    """Return uint8[width * n], each token's bytes from the highest."""
    if width == 2:
        return tokens.astype(">u2").view(np.uint8)
    columns = tokens.astype("<u4").view(np.uint8).reshape(-1, 4)[:, 2::-1]
    return np.ascontiguousarray(columns).reshape(-1)


@entry
def keep_aligned(byte_positions: Array, positions: Array, width: int) -> int:
    """Keep the byte positions that are multiples of `width`, divided by it, in their order.

    `positions` may begin at the same address as `byte_positions`, with items as wide or narrower:
    what is written never passes what is read. Returns how many there are, at most len(positions).

    [4, 1, 0, 3, 2] with width 2 -> positions [2, 0, 1], returns 3
    """
    kept = i = 0
    while kept < len(positions) and i < len(byte_positions):
        position = byte_positions[i]
        quotient = position // width
        # Written always, kept by the count: a branch here would be mispredicted every other time.
        positions[kept] = quotient
        kept += quotient * width == position
        i += 1
    return kept


@allocating_entry
def token_counts(tokens: Array, size: int) -> Array:
    """Return how often each id below `size` occurs, int64[size], without bincount's int64 copy."""
    counts = np.zeros(size, np.int64)
    for i in range(len(tokens)):
        if tokens[i] < size:
            counts[tokens[i]] += 1
    return counts
