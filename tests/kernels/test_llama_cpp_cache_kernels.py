"""llama.cpp's records against the naive twin, whole and damaged."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings, strategies as st
from twins.kernels import ngram_cache

from ngramkit.kernels.llama_cpp_cache import KEY_IDS, measure_records, split_records

token = st.integers(0, 9)
pairs = st.lists(st.tuples(token, st.integers(1, 9)), min_size=1, max_size=3)
record = st.tuples(st.lists(token, min_size=1, max_size=KEY_IDS), pairs)


def words_of(records):
    words = []
    for key, followers in records:
        words += [*key, *[-1] * (KEY_IDS - len(key)), len(followers)]
        words += [value for pair in followers for value in pair]
    return words


@settings(max_examples=150, deadline=None)
@given(
    st.lists(record, max_size=4),
    st.lists(st.tuples(st.integers(0, 40), st.integers(-2, 6)), max_size=2),
    st.integers(0, 3),
)
def test_records_are_found_as_the_naive_twin_finds_them(records, damage, cut):
    words = words_of(records)
    for at, value in damage:
        if at < len(words):
            words[at] = value
    words = words[: len(words) - cut] if cut < len(words) else words
    wanted = ngram_cache(words)
    array = np.array(words, np.int32)
    count, total, bad = measure_records(array)
    assert (bad < 0) == (wanted is not None)
    if wanted is None:
        assert ngram_cache(words[:bad]) is not None
        return
    keys, offsets = np.empty((count, KEY_IDS), np.int32), np.zeros(count + 1, np.int64)
    flat = np.empty((total, 2), np.int32)
    split_records(array, keys, offsets, flat)
    found = [
        (key[key >= 0].tolist(), flat[begin:end].tolist())
        for key, begin, end in zip(keys, offsets[:-1], offsets[1:], strict=True)
    ]
    assert found == [(key, [list(pair) for pair in pairs]) for key, pairs in wanted]
