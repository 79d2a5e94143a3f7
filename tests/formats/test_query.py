"""What people are told of a datastore is what drafters find in it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ngramkit.formats.datastore import DatastoreShard, search_table
from ngramkit.formats.query import MAX_TOKENS, spans_of, top_continuations
from ngramkit.kernels.jit import allocating_entry
from ngramkit.kernels.suffix import draft_tree, search
from ngramkit.kernels.suffix.sort import sort_shard

find_all = allocating_entry(search.find_all.py_func)
most_frequent_continuations = allocating_entry(draft_tree.most_frequent_continuations.py_func)

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
    table, intervals = search_table(shards), np.zeros((len(shards), 2), np.int64)
    count = int(find_all(table, np.array(phrase, np.int32), intervals)) if phrase else 0
    assert sum(high - low for low, high in spans) == count
    if count:
        nodes, _ = most_frequent_continuations(table, intervals, len(phrase), top, MAX_TOKENS, eos)
        paths: list[list[int]] = []
        for token, parent, _, _ in nodes.tolist():
            paths.append([*(paths[parent] if parent >= 0 else []), token])
        expected = list(zip(paths, nodes[:, 3].tolist(), strict=True))
        ends = frozenset([eos] if eos >= 0 else [])
        assert top_continuations(shards, spans, len(phrase), top, ends) == expected


def test_values_that_point_outside_are_errors_not_crashes():
    (shard,) = shards_of([[[0, 1, 2, 0, 1, 3]]])
    wild = DatastoreShard(
        shard.tokens, np.full_like(shard.suffix_array, 2**31 - 1), shard.first_token
    )
    with pytest.raises(IndexError):
        top_continuations([wild], spans_of([wild], [0]), 1, 5, frozenset())
