"""Sort, merge and cut suffix arrays of token ids.

pydivsufsort sorts big-endian bytes. Besides the tokens this takes 10 bytes per token at 16 bits, 15
at 24 bits.

Merging counts the earlier suffixes before each later one by backward search (Ferragina and Manzini,
2000), which long repeats do not slow down. Merged texts end with a separator; of suffixes that
agree up to one, the earlier text's come first, which no search notices.
"""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.arrays import Array, empty, read_only
from ngramkit.kernels.jit import allocating_entry, entry, part

MAX_INT32 = (1 << 31) - 1
SHORT_TEXT = 1 << 14  # tokens; pydivsufsort needs 0.7 ms for even one
MAX_EQUAL_TOKENS = 1 << 18  # equal tokens that are compared, at most (0.3 ms)
TRIED_NEIGHBOURS = 8  # neighbours that are tried before the bucket is searched


def sort_shard(tokens: Array, separator: int, *, wide: bool = False) -> dict[str, Array]:
    """Return tokens, suffix_array (i32 | i64 [n]) and first_token (u64 [separator + 2]).

    `tokens` u16 | u32 [n] hold no id above `separator`. `wide` forces 64-bit byte positions.
    """
    from pydivsufsort import divsufsort

    if separator <= 0xFFFF:
        width, raw = 2, tokens.astype(">u2").view(np.uint8)
    else:
        columns = tokens.astype("<u4").view(np.uint8).reshape(-1, 4)[:, 2::-1]
        width, raw = 3, np.ascontiguousarray(columns).reshape(-1)
    positions = divsufsort(raw, force64=wide)
    dtype = np.int32 if len(tokens) <= MAX_INT32 else np.int64
    kept = positions.view(dtype)[: len(tokens)]
    keep_aligned(positions, kept, width)
    first_token = first_token_of(tokens, separator)
    return {"tokens": tokens, "suffix_array": kept, "first_token": first_token}


def first_token_of(tokens: Array, separator: int) -> Array:
    """Return where each id's suffixes begin, u64[separator + 2]."""
    bounds = np.zeros(separator + 2, np.uint64)
    np.cumsum(_token_counts(read_only(tokens), separator + 1), out=bounds[1:])
    return bounds


@allocating_entry
def _token_counts(tokens: Array, size: int) -> Array:
    """Count ids, int64[size], without bincount's int64 copy."""
    counts = np.zeros(size, np.int64)
    for i in range(len(tokens)):
        if tokens[i] < size:
            counts[tokens[i]] += 1
    return counts


def sort_requests(tokens: Array, separator: int) -> Array:
    """Return the suffix array i32 of texts that each end with `separator`, the highest id.

    Suffixes that agree up to a separator are in any order.
    """
    if len(tokens) <= SHORT_TEXT:
        order = np.empty((2, len(tokens)), np.int32)
        place = sort_by_comparing(tokens, order)
        if place >= 0:
            return order[place].copy()
    kept = empty(len(tokens), np.int32)
    kept[:] = sort_shard(tokens, separator)["suffix_array"]  # a view of a longer array
    return kept


@entry
def sort_by_comparing(tokens: Array, order: Array) -> int:
    """Merge sort suffixes up to their first separator, with which `tokens` must end.

    Returns the row of `order` i32[2, n] with the result, or -1 if it takes too long.
    """
    size, left, row = len(tokens), MAX_EQUAL_TOKENS, 0
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


@entry
def keep_aligned(byte_positions: Array, positions: Array, width: int) -> int:
    """Keep byte positions that are multiples of `width`, divided by it; return their number.

    `positions` may begin at the address of `byte_positions`.
    """
    kept = i = 0
    while kept < len(positions) and i < len(byte_positions):
        position = byte_positions[i]
        quotient = position // width
        # Always written, counted if kept: a branch would be mispredicted every other time.
        positions[kept] = quotient
        kept += quotient * width == position
        i += 1
    return kept


def merge_suffix_arrays(
    tokens: Array, suffix_array: Array, added: Array, added_suffix_array: Array, begin: int = 0
) -> Array:
    """Return the suffix array i32 of tokens[begin:] followed by `added`.

    Both, u16 | u32, end with the separator, the highest id, and have fewer than 2**31 tokens
    together. Memory: 4 bytes per added token besides the result.
    """
    size, merged_size = len(tokens), len(tokens) - begin + len(added)
    merged, before = empty(max(size, merged_size), np.int32), empty(len(added), np.int32)
    tokens, suffix_array = read_only(tokens), read_only(suffix_array)
    _count_earlier(tokens, suffix_array, read_only(added), merged, before)
    merged = merged[:merged_size]
    _interleave_suffixes(suffix_array, read_only(added_suffix_array), before, begin, merged)
    return merged


@entry
def _count_earlier(
    tokens: Array, suffix_array: Array, added: Array, ranks: Array, before: Array
) -> None:
    """Set `before` i32[len(added)] to the suffixes of `tokens` before each of `added`."""
    size = len(tokens)
    for i in range(size):
        ranks[suffix_array[i]] = i
    separator = tokens[size - 1]
    rank = size
    for i in range(len(added) - 1, -1, -1):
        token = added[i]
        rank = (
            size
            if token == separator
            else _preceding_suffixes(tokens, suffix_array, ranks, token, rank)
        )
        before[i] = rank


@part
def _preceding_suffixes(tokens, suffix_array, ranks, token, rank):
    """Return how many suffixes precede `token` followed by a suffix of rank `rank`.

    In repetitive text, a neighbour mostly answers at once.
    """
    size = len(tokens)
    for i in range(rank, min(rank + TRIED_NEIGHBOURS, size)):
        position = suffix_array[i]
        if position > 0 and tokens[position - 1] == token:
            return int(ranks[position - 1])
    for i in range(rank - 1, max(rank - 1 - TRIED_NEIGHBOURS, -1), -1):
        position = suffix_array[i]
        if position > 0 and tokens[position - 1] == token:
            return int(ranks[position - 1]) + 1
    low, high = 0, size
    while low < high:
        middle = (low + high) >> 1
        position = suffix_array[middle]
        first = tokens[position]
        if first < token or (first == token and ranks[position + 1] < rank):
            low = middle + 1
        else:
            high = middle
    return low


@entry
def _interleave_suffixes(
    suffix_array: Array, added: Array, before: Array, begin: int, merged: Array
) -> None:
    size, at, i = len(suffix_array), 0, 0
    for k in range(len(added) + 1):
        end = before[added[k]] if k < len(added) else size
        while i < end:
            position = suffix_array[i]
            if position >= begin:
                merged[at] = position - begin
                at += 1
            i += 1
        if k < len(added):
            merged[at] = added[k] + size - begin
            at += 1


def cut_suffix_array(suffix_array: Array, begin: int, end: int) -> Array:
    """Return the suffix array i32 of tokens[begin:end], which ends with a separator."""
    kept = empty(end - begin + 1, np.int32)
    _keep_between(read_only(suffix_array), begin, end, kept)
    return kept[: end - begin]


@entry
def _keep_between(suffix_array: Array, begin: int, end: int, kept: Array) -> None:
    """Fill `kept`, which needs one spare place."""
    at = 0
    for i in range(len(suffix_array)):
        position = suffix_array[i]
        kept[at] = position - begin  # always written, counted if kept: no branch to mispredict
        at += begin <= position < end
