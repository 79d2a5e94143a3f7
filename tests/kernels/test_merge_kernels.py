"""Suffix arrays over requests: sorted, merged and cut as their twin orders them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from twins.kernels import request_order

from ngramkit.kernels.suffix.check import first_wrong_position
from ngramkit.kernels.suffix.sort import (
    MAX_EQUAL_TOKENS,
    SHORT_TEXT,
    cut_suffix_array,
    first_token_of,
    merge_suffix_arrays,
    sort_requests,
)

SEPARATOR = 4
requests = st.lists(st.lists(st.integers(0, 3), max_size=9), min_size=1, max_size=5)
widths = st.sampled_from([np.uint16, np.uint32])


def text_of(requests):
    return [token for request in requests for token in (*request, SEPARATOR)]


def misplaced(tokens, suffix_array, separator=SEPARATOR):
    bounds = first_token_of(tokens, separator).astype(np.int64)
    return first_wrong_position(tokens, suffix_array, bounds, merged=True)


@settings(max_examples=80, deadline=None)
@given(requests, widths)
def test_requests_are_sorted(held, width):
    text = text_of(held)
    found = sort_requests(np.array(text, width), SEPARATOR)
    assert found.dtype == np.int32
    assert found.tolist() == request_order(text, SEPARATOR)


@settings(max_examples=80, deadline=None)
@given(st.lists(requests, min_size=2, max_size=4), st.data(), widths)
def test_a_merged_array_is_the_sorted_one(parts, data, width):
    """Whatever is left out of the earlier text on the way."""
    text, suffix_array = text_of(parts[0]), None
    suffix_array = sort_requests(np.array(text, width), SEPARATOR)
    for part in parts[1:]:
        added = text_of(part)
        begin = data.draw(st.integers(0, len(text) - 1))
        suffix_array = merge_suffix_arrays(
            np.array(text, width), suffix_array, np.array(added, width),
            sort_requests(np.array(added, width), SEPARATOR), begin,
        )  # fmt: skip
        text = text[begin:] + added
        assert suffix_array.tolist() == request_order(text, SEPARATOR)
        assert misplaced(np.array(text, width), suffix_array) == -1


@settings(max_examples=80, deadline=None)
@given(requests, st.data())
def test_a_cut_array_is_the_sorted_one(held, data):
    text = text_of(held)
    end = data.draw(st.sampled_from([i + 1 for i, t in enumerate(text) if t == SEPARATOR]))
    begin = data.draw(st.integers(0, end - 1))
    whole = np.array(request_order(text, SEPARATOR), np.int32)
    cut = cut_suffix_array(whole, begin, end)
    assert cut.tolist() == request_order(text[begin:end], SEPARATOR)


@pytest.mark.parametrize("period", [1, 7])
def test_text_that_repeats_itself_is_sorted_and_merged(period):
    """Too long to compare; the order of what agrees up to a separator is any."""
    text = np.resize(np.arange(period, dtype=np.uint16), SHORT_TEXT)
    text[SHORT_TEXT // 2], text[-1] = 9, 9
    assert SHORT_TEXT * SHORT_TEXT // 8 > MAX_EQUAL_TOKENS
    suffix_array = sort_requests(text, 9)
    assert misplaced(text, suffix_array, 9) == -1
    merged = merge_suffix_arrays(text, suffix_array, text, suffix_array)
    assert misplaced(np.concatenate([text, text]), merged, 9) == -1


@settings(max_examples=80, deadline=None)
@given(requests, st.data())
def test_only_an_order_up_to_separators_passes(held, data):
    """Separators in any order, each suffix of the others by what follows it."""
    text = text_of(held)
    tokens, size = np.array(text, np.uint16), len(text)
    changed = np.array(request_order(text, SEPARATOR), np.int32)
    for _ in range(data.draw(st.integers(0, 3))):
        values = st.integers(-2, size + 1)
        changed[data.draw(st.integers(0, size - 1))] = data.draw(values)
    shuffled = data.draw(st.permutations(changed.tolist()))
    for order in (changed.tolist(), shuffled):
        found = misplaced(tokens, np.array(order, np.int32))
        ranks = {position: rank for rank, position in enumerate(order)}
        right = sorted(order) == list(range(size)) and all(
            text[one] < text[other]
            or (text[one] == text[other] == SEPARATOR)
            or (text[one] == text[other] and ranks[one + 1] < ranks[other + 1])
            for one, other in pairwise(order)
        )
        assert (found == -1) == right
