"""What people are told of a datastore is what drafters find in it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ngramkit.formats.datastore import DatastoreShard
from ngramkit.formats.query import MAX_QUERY_TOKENS, spans_of, top_continuations
from ngramkit.kernels.rest import match_longest_then_shorter
from ngramkit.kernels.suffix.search import shard_table
from ngramkit.kernels.suffix.sort import sort_shard

TEXT = st.lists(st.integers(0, 3), max_size=40)
SHARDS = st.lists(st.lists(TEXT, min_size=1, max_size=5), min_size=1, max_size=3)
VOCABULARY = 4


def shards_of(held):
    streams = [[t for d in documents for t in [*d, VOCABULARY]] for documents in held]
    return [DatastoreShard(**sort_shard(np.array(s, np.uint16), VOCABULARY)) for s in streams]


@settings(max_examples=150, deadline=None)
@given(SHARDS, TEXT, st.integers(0, 12), st.integers(-1, 3))
def test_the_same_as_the_drafters_kernel(held, phrase, top, eos):
    shards, phrase = shards_of(held), phrase[:3]
    spans = spans_of(shards, phrase)
    count, size = sum(high - low for low, high in spans), len(phrase)
    rules = np.array([size, size, MAX_QUERY_TOKENS, eos], np.int64)

    def drafted(most):
        context = np.array(phrase, np.int32)
        return match_longest_then_shorter(shard_table(shards), context, size, top, rules, most)

    if not count:
        assert not phrase or drafted(0)[1] < size
        return
    assert drafted(count - 1)[1:] == (size, size)  # it occurs more often
    (tokens, parents, shares, _), *found = drafted(count)
    assert found == [size, 0]
    paths: list[list[int]] = []
    for token, parent in zip(tokens.tolist(), parents.tolist(), strict=True):
        paths.append([*(paths[parent] if parent >= 0 else []), token])
    expected = list(zip(paths, (shares * count).round().tolist(), strict=True))
    ends = frozenset([eos] if eos >= 0 else [])
    assert top_continuations(shards, spans, size, top, ends) == expected


def test_values_that_point_outside_are_errors_not_crashes():
    (shard,) = shards_of([[[0, 1, 2, 0, 1, 3]]])
    wild = DatastoreShard(
        shard.tokens, np.full_like(shard.suffix_array, 2**31 - 1), shard.first_token
    )
    with pytest.raises(IndexError):
        top_continuations([wild], spans_of([wild], [0]), 1, 5, frozenset())
