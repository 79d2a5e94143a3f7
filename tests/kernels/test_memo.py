"""A memo's row: the most frequent successors, whatever two threads at once have made of it."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from ngramkit.kernels.blend.counts import (
    FIRST,
    LISTED,
    MEMOIZED_SUCCESSORS,
    begin_row,
    memoize_successor,
    new_candidates,
    new_memo,
    recall_successors,
)
from ngramkit.kernels.jit import entry
from ngramkit.kernels.packed_arguments import Packed

VOCABULARY = 100


@entry
def kept(memo, slot, tokens, counts, total):
    begin_row(memo, slot, np.uint64(1), total)
    for i in range(len(tokens)):
        memoize_successor(memo, slot, tokens[i], counts[i])


@entry
def recalled(memo, slot, into):
    recall_successors(memo, slot, into, 0)


@given(st.lists(st.integers(1, 5), max_size=VOCABULARY))
def test_the_most_frequent_are_kept_the_lower_token_first(counts):
    memo, into = new_memo(4), new_candidates(VOCABULARY)
    into.state[1] = 1
    tokens, total = np.arange(len(counts), dtype=np.int32), np.float32(sum(counts))
    kept(Packed(memo), 2, tokens, np.array(counts, np.float32), total)
    recalled(Packed(memo), 2, Packed(into))
    rows = into.state[0]
    expected = sorted(enumerate(counts), key=lambda pair: -pair[1])[:MEMOIZED_SUCCESSORS]
    found = zip(into.tokens[:rows].tolist(), into.counts[:rows, 0].tolist(), strict=True)
    assert list(found) == expected
    assert (into.totals[0], into.distinct[0]) == (sum(counts), len(counts))
    assert not memo.tokens[[0, 1, 3]].any()


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), max_size=60))
def test_a_successor_of_several_shards_is_listed_once(runs):
    memo, into = new_memo(4), new_candidates(VOCABULARY)
    into.state[1] = 1
    tokens, counts = np.array(runs, np.int32).reshape(-1, 2).T.copy()
    kept(Packed(memo), 2, tokens, counts.astype(np.float32), np.float32(counts.sum()))
    recalled(Packed(memo), 2, Packed(into))
    sums = {int(token): int(counts[tokens == token].sum()) for token in tokens}
    rows = into.state[0]
    assert (
        dict(zip(into.tokens[:rows].tolist(), into.counts[:rows, 0].tolist(), strict=True)) == sums
    )
    assert into.distinct[0] == len(sums)
    assert (np.diff(into.counts[:rows, 0]) <= 0).all()


@pytest.mark.parametrize("listed", [MEMOIZED_SUCCESSORS + 1, 1 << 30])
def test_a_number_that_two_threads_have_spoilt_reaches_no_other_row(listed):
    memo, into = new_memo(4), new_candidates(VOCABULARY)
    into.state[1] = 1
    tokens, counts = np.arange(1, 4, dtype=np.int32), np.full(3, 9, np.float32)
    memo.tokens[2, FIRST:] = np.arange(MEMOIZED_SUCCESSORS) + 10

    @entry
    def spoilt(memo, tokens, counts):
        memo.tokens[2, LISTED] = listed
        for i in range(len(tokens)):
            memoize_successor(memo, np.int64(2), tokens[i], counts[i])

    spoilt(Packed(memo), tokens, counts)
    recalled(Packed(memo), 2, Packed(into))
    assert not memo.tokens[[0, 1, 3]].any()
    assert into.state[0] <= MEMOIZED_SUCCESSORS
