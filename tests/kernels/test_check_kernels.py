"""The kernels that check artifacts agree with naive twins, on what is whole and what is not."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from twins import kernels as reference

from ngramkit.kernels.arrays import read_only
from ngramkit.kernels.frozen_checks import WHOLE, first_bad_leader
from ngramkit.kernels.suffix import check
from ngramkit.kernels.suffix.sort import first_token_of

SEPARATOR = 4
texts = st.lists(st.integers(0, SEPARATOR), max_size=24).map(lambda text: [*text, SEPARATOR])


def misplaced(tokens, suffixes, workers=1):
    bounds = first_token_of(tokens, SEPARATOR).astype(np.int64)
    return check.first_wrong_position(tokens, suffixes, bounds, workers)


@pytest.fixture
def threads_for_few(monkeypatch):
    monkeypatch.setattr(check, "MIN_SUFFIXES_PER_THREAD", 3)


@pytest.mark.parametrize("workers", [1, 4])
@given(text=texts, data=st.data())
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_only_the_suffix_array_passes(threads_for_few, workers, text, data):
    tokens = np.array(text, np.uint16)
    right = np.array(reference.suffix_array(text), np.int32)
    assert misplaced(tokens, right, workers) == -1
    values = st.integers(-2, len(text) + 1) | st.sampled_from([-(1 << 31), (1 << 31) - 1])
    changed = right.copy()
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(text) - 1))] = data.draw(values)
    assert (misplaced(tokens, changed, workers) == -1) == np.array_equal(changed, right)
    shuffled = np.array(data.draw(st.permutations(right.tolist())), np.int32)
    assert (misplaced(tokens, shuffled, workers) == -1) == np.array_equal(shuffled, right)


@pytest.mark.parametrize("seed", range(40))
def test_the_first_bad_leader(seed):
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 5, 6)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    leaders = np.sort(random.choice(30, 6, replace=False))[:, None].astype(np.uint16)
    followers = random.integers(0, 6, (offsets[-1], 2)).astype(np.uint16)
    counts = random.integers(1, 4, offsets[-1]).astype(np.uint32)
    for begin, end in pairwise(offsets):
        order = np.lexsort((*followers[begin:end].T[::-1], -counts[begin:end].astype(int)))
        followers[begin:end], counts[begin:end] = (
            followers[begin:end][order],
            counts[begin:end][order],
        )
    seen = (np.add.reduceat(counts, offsets[:-1]) - random.integers(0, 2, 6)).astype(np.uint32)
    vocabulary = int(random.integers(5, 31))
    table = tuple(map(read_only, (leaders, seen, offsets, followers, counts)))
    row, why = first_bad_leader(0, 6, vocabulary, *table, int(random.integers(1 << 60)) | 1)
    bad = reference.bad_leaders(vocabulary, *(array.tolist() for array in table))
    assert (row, why == WHOLE) == ((bad[0], False) if bad else (-1, True))
