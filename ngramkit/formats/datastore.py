"""Kind `datastore`: a corpus's suffix arrays (REST, arXiv:2311.08252, section 3.1).

Files `shard-00000.safetensors`, `shard-00001.safetensors`, ..., each with

    tokens        u16 or u32 [n]   whole documents, one separator after each; the last is one too
    suffix_array  i32 or i64 [n]   every position of `tokens`, in the order of the suffixes that
                                   begin there: by token value, a shorter suffix before a longer
                                   one that continues it; i64 from 2**31 tokens on
    first_token   u64 [V + 2]      first_token[t]: how many suffixes begin with a token below t

The separator is V, the vocabulary's size, which is not an id of any text: a match never crosses
documents. A document longer than a shard is cut into pieces. `counts`: documents, tokens (both
without separators and cuts); of a pruned datastore every passage is a document. `parameters`:
shard_tokens, the planned size of a shard; eos, false if documents were tokenised without one.

    tokens 1 2 1 | with V = 3: tokens [1, 2, 1, 3], suffix_array [0, 2, 1, 3],
    first_token [0, 0, 2, 3, 4]

A decoder in four lines, for the successors of `token`:

    begin, end = first_token[token], first_token[token + 1]
    for position in suffix_array[begin:end]:
        print(tokens[position + 1])
"""

from __future__ import annotations

from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ngramkit.basics.machine import cores
from ngramkit.formats.artifact import IDS, Artifact, Layout, ValueCheck, require, token_dtype
from ngramkit.formats.safetensors import Array
from ngramkit.kernels.arrays import empty

LAYOUT: Layout = {
    "tokens": (IDS, 1),
    "suffix_array": (("int32", "int64"), 1),
    "first_token": (("uint64",), 1),
}


class DatastoreShard(NamedTuple):
    tokens: Array  # uint16 | uint32 [n], separators included
    suffix_array: Array  # int32 | int64 [n], positions in tokens
    first_token: Array  # uint64 [V + 2], indices into suffix_array


class Datastore(Artifact):
    kind = "datastore"

    @cached_property
    def shards(self) -> list[DatastoreShard]:
        shards = []
        for name in sorted(self.manifest.files):
            shard = DatastoreShard(**self.arrays(name, LAYOUT))
            require_shape(self.path / name, shard, self.separator)
            shards.append(shard)
        return shards

    def value_checks(self) -> list[ValueCheck]:
        """Return the checks, which take 32 bytes per id and 8 more per thread."""
        names = sorted(self.manifest.files)
        shards = zip(names, self.shards, strict=True)
        return [*(partial(self._check_named_shard, *pair) for pair in shards), self._check_counts]

    def _check_named_shard(self, name: str, shard: DatastoreShard) -> list[str]:
        workers = cores() // len(self.shards)  # shards are checked in parallel
        lines = check_ids_and_suffix_order(self.path / name, shard, self.separator, workers)
        return [f"{name}: {line}" for line in lines]

    def _check_counts(self) -> list[str]:
        separators = sum(int(s.first_token[-1]) - int(s.first_token[-2]) for s in self.shards)
        tokens = sum(len(shard.tokens) for shard in self.shards) - separators
        listed = self.manifest.counts
        require(tokens == listed.get("tokens"), self.path, f"it holds {tokens:,} tokens")
        enough = separators >= listed.get("documents", separators + 1)
        require(enough, self.path, f"it holds {separators:,} documents")
        return ["counts"]


def require_shape(path: Path, shard: DatastoreShard, separator: int) -> None:
    width, buckets = token_dtype(separator), separator + 2
    require(shard.tokens.dtype == width, path, f"ids are not {width}")
    same = len(shard.suffix_array) == len(shard.tokens)
    require(same, path, "its suffix array has another length")
    require(len(shard.first_token) == buckets, path, f"first_token must have {buckets:,} entries")


def check_ids_and_suffix_order(
    path: Path, shard: DatastoreShard, separator: int, workers: int = 1, *, merged: bool = False
) -> list[str]:
    """Return the invariants. Raises ArtifactError at the first that does not hold.

    For `merged` see `kernels.suffix.check.first_wrong_position`.
    """
    from ngramkit.kernels.suffix.check import first_wrong_position
    from ngramkit.kernels.suffix.sort import first_token_of

    require_shape(path, shard, separator)
    tokens = shard.tokens
    highest = int(tokens.max(initial=0))
    require(highest <= separator, path, f"id {highest} is outside the vocabulary")
    require(len(tokens) > 0 and tokens[-1] == separator, path, "it does not end with a separator")
    bounds = first_token_of(tokens, separator)
    require(np.array_equal(bounds, shard.first_token), path, "first_token miscounts the tokens")
    bounds = bounds.astype(np.int64)
    wrong = first_wrong_position(tokens, shard.suffix_array, bounds, workers, merged=merged)
    require(wrong < 0, path, f"suffix {wrong:,} is out of order, or not a position")
    return [
        "ids inside the vocabulary",
        "ends with a separator",
        "first_token",
        "suffix array a permutation",
        "suffix array sorted",
    ]


# Shards over past requests. They differ in two points: the order of suffixes that are equal up to a
# separator is undefined, and a shard with fewer tokens than ids has an empty `first_token`, so that
# a search starts in the suffix array.


def requests_shard(tokens: Array, separator: int) -> DatastoreShard:
    """Return a shard over requests, u16 | u32 [n], each of which ends with `separator`."""
    from ngramkit.kernels.suffix import sort

    return _make_shard(tokens, sort.sort_requests(tokens, separator))


def merge_shards(older: DatastoreShard, newer: DatastoreShard, begin: int = 0) -> DatastoreShard:
    """Return a shard over both, without the first `begin` tokens of `older`."""
    from ngramkit.kernels.suffix.sort import merge_suffix_arrays

    suffix_array = merge_suffix_arrays(
        older.tokens, older.suffix_array, newer.tokens, newer.suffix_array, begin
    )
    tokens = empty(len(suffix_array), newer.tokens.dtype)
    np.concatenate([older.tokens[begin:], newer.tokens], out=tokens)
    return _make_shard(tokens, suffix_array)


def cut_shard(shard: DatastoreShard, begin: int, end: int) -> DatastoreShard:
    from ngramkit.kernels.suffix.sort import cut_suffix_array

    suffix_array = cut_suffix_array(shard.suffix_array, begin, end)
    tokens = empty(end - begin, shard.tokens.dtype)
    tokens[:] = shard.tokens[begin:end]
    return _make_shard(tokens, suffix_array)


def with_first_token(shard: DatastoreShard) -> DatastoreShard:
    from ngramkit.kernels.suffix.sort import first_token_of

    if len(shard.first_token):
        return shard
    bounds = first_token_of(shard.tokens, int(shard.tokens[-1]))
    return DatastoreShard(shard.tokens, shard.suffix_array, bounds)


def _make_shard(tokens: Array, suffix_array: Array) -> DatastoreShard:
    shard = DatastoreShard(tokens, suffix_array, np.empty(0, np.uint64))
    return with_first_token(shard) if len(tokens) > int(tokens[-1]) else shard
