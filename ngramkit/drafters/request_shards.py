"""Suffix arrays over past requests, by where the requests came from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.formats.container import Array
from ngramkit.formats.datastore import DatastoreShard
from ngramkit.kernels.suffix.sort import sort_shard


class Shards(NamedTuple):
    """By origin: none, one (sorted), or two (sorted, and a tail)."""

    earlier: tuple[DatastoreShard, ...] = ()  # there at first, or after the log was rewritten
    session: tuple[DatastoreShard, ...] = ()  # added since, by anybody, but for
    newest: tuple[DatastoreShard, ...] = ()  # the last of these


def sorted_shards(tokens: Array, separator: int) -> tuple[DatastoreShard, ...]:
    """One shard over requests that each end with `separator`, or none of no tokens."""
    return (DatastoreShard(**sort_shard(tokens, separator)),) if len(tokens) else ()


def joined(shards: Shards, separator: int) -> DatastoreShard:
    """What a later process loads: all of it is then earlier."""
    each = [shard for part in shards for shard in part]
    if len(each) == 1:
        return each[0]
    return sorted_shards(np.concatenate([shard.tokens for shard in each]), separator)[0]
