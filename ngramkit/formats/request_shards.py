"""Shards over past requests: sorted, merged, and cut, each a new one.

They are searched as a datastore's are (`formats.datastore`), with two differences: suffixes that
agree up to a separator stand in any order among themselves, and a shard of few tokens for its
vocabulary has no `first_token` (its array is empty): a search finds it in the suffix array.
"""

from __future__ import annotations

import numpy as np

from ngramkit.formats.container import Array
from ngramkit.formats.datastore import DatastoreShard
from ngramkit.kernels.arrays import empty


def sort(tokens: Array, separator: int) -> DatastoreShard:
    """Return a shard over requests, u16 | u32 [n], that each end with `separator`."""
    from ngramkit.kernels.suffix.sort import sort_requests

    return _shard(tokens, sort_requests(tokens, separator))


def merge(older: DatastoreShard, newer: DatastoreShard, begin: int = 0) -> DatastoreShard:
    """Return a shard over the tokens of both, those of `older` from `begin` on, less than all."""
    from ngramkit.kernels.suffix.sort import merge_suffix_arrays

    suffix_array = merge_suffix_arrays(
        older.tokens, older.suffix_array, newer.tokens, newer.suffix_array, begin
    )
    tokens = empty(len(suffix_array), newer.tokens.dtype)
    np.concatenate([older.tokens[begin:], newer.tokens], out=tokens)
    return _shard(tokens, suffix_array)


def cut(shard: DatastoreShard, begin: int, end: int) -> DatastoreShard:
    """Return a shard over the tokens from `begin` to `end`, the last of which is a separator."""
    from ngramkit.kernels.suffix.sort import cut_suffix_array

    suffix_array = cut_suffix_array(shard.suffix_array, begin, end)
    tokens = empty(end - begin, shard.tokens.dtype)
    tokens[:] = shard.tokens[begin:end]
    return _shard(tokens, suffix_array)


def with_first_token(shard: DatastoreShard) -> DatastoreShard:
    """Return the shard with `first_token`, as a file holds it."""
    from ngramkit.kernels.suffix.sort import token_counts

    if len(shard.first_token):
        return shard
    separator = int(shard.tokens[-1])
    bounds = np.zeros(separator + 2, np.uint64)
    np.cumsum(token_counts(shard.tokens, separator + 1), out=bounds[1:])
    return DatastoreShard(shard.tokens, shard.suffix_array, bounds)


def _shard(tokens: Array, suffix_array: Array) -> DatastoreShard:
    shard = DatastoreShard(tokens, suffix_array, np.empty(0, np.uint64))
    return with_first_token(shard) if len(tokens) > int(tokens[-1]) else shard
