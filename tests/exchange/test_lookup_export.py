"""llama.cpp's drafts from an export, by a naive twin of its rule that raises on overflow."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from made_up import bigram, ngrams, random_documents
from reporters import Notes
from twins import lookup as llama

from ngramkit.basics.errors import UsageError
from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.exchange.llama_cpp import (
    MAX_COUNT,
    NgramSelection,
    can_draft,
    cap_counts,
    export_cache,
    totals_of_leaders,
    write_cache,
)
from ngramkit.exchange.ngrams import datastore_ngrams

ORDERS = (1, 2, 3, 4)


def counted(documents, orders):
    """Return the cache of all n-grams with their counts; followers by count, then by token."""
    cache = {}
    for ids in documents:
        for order in orders:
            for i in range(len(ids) - order):
                cache.setdefault(tuple(ids[i : i + order]), Counter())[ids[i + order]] += 1
    return {
        key: dict(sorted(found.items(), key=lambda each: (-each[1], each[0])))
        for key, found in cache.items()
    }


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, token_store):
    documents = random_documents(vocabulary=4, documents=30, longest=30)
    store = token_store(documents, 4)
    folder = tmp_path_factory.mktemp("corpus")
    datastore = build_datastore(store, folder / "d")
    export_cache(datastore, folder / "static")
    export_cache(datastore, folder / "dynamic", dynamic=True)
    return documents, datastore, folder


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=st.lists(st.integers(0, 3), min_size=4, max_size=20), data=st.data())
def test_llama_cpp_drafts_the_same_from_an_export_as_from_all_counts(corpus, text, data):
    documents, _, folder = corpus
    static, dynamic = llama.load(folder / "static"), llama.load(folder / "dynamic")
    full = counted(documents, (2,)), counted(documents, ORDERS)
    assert static == full[0]
    assert 0 < len(dynamic) < len(full[1])  # what can never be drafted from is not there
    for with_static, with_dynamic in ((1, 0), (0, 1), (1, 1)):
        ours = [
            cache if on else {} for cache, on in ((dynamic, with_dynamic), (static, with_static))
        ]
        exact = [c if on else {} for c, on in ((full[1], with_dynamic), (full[0], with_static))]
        assert llama.draft(text, 8, *ours) == llama.draft(text, 8, *exact)


def test_llama_cpp_drafts_from_the_files(corpus):
    folder = corpus[2]
    static, dynamic = llama.load(folder / "static"), llama.load(folder / "dynamic")
    found = Counter()
    for text in (
        [a, b, c, d] for a in range(4) for b in range(4) for c in range(4) for d in range(4)
    ):
        alone = llama.draft(text, 4, {}, {})
        found["static"] += llama.draft(text, 4, {}, static) != alone
        found["dynamic"] += llama.draft(text, 4, dynamic, {}) != alone
    assert found["static"] > 8
    assert found["dynamic"] > 8


often = st.one_of(st.integers(1, 9), st.integers(1, 3 * MAX_COUNT), st.integers(1, 2**31 - 1))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_product_of_two_counts_overflows(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("caches")
    token = st.integers(0, 2)
    for name, orders in (("static", (2,)), ("dynamic", ORDERS)):
        pieces = []
        for order in orders:
            rows = data.draw(
                st.lists(st.tuples(*[token] * (order + 1), often), min_size=1, max_size=12)
            )
            pieces.append(ngrams(*rows))
        write_cache(folder / name, pieces)
    static, dynamic = llama.load(folder / "static"), llama.load(folder / "dynamic")
    for cache in (static, dynamic):
        assert all(sum(followers.values()) <= MAX_COUNT for followers in cache.values())
    for text in data.draw(
        st.lists(st.lists(token, min_size=4, max_size=9), min_size=1, max_size=9)
    ):
        llama.draft(text, 6, dynamic, static)  # raises where 32 bits are not enough


def test_the_largest_count_does_not_overflow(tmp_path):
    write_cache(tmp_path / "static", [ngrams((1, 1, 1, 10**9))])
    write_cache(tmp_path / "dynamic", [ngrams((1, 1, 10**9))])
    static, dynamic = llama.load(tmp_path / "static"), llama.load(tmp_path / "dynamic")
    assert static == {(1, 1): {1: MAX_COUNT}}
    assert llama.draft([0, 0, 1, 1], 2, dynamic, static) == [1, 1]
    static[1, 1][1] += 1
    with pytest.raises(OverflowError):
        llama.draft([0, 0, 1, 1], 2, dynamic, static)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), often), min_size=1, max_size=60))
def test_scaled_counts_keep_their_shares(rows):
    piece = ngrams(*rows)
    total = dict(
        zip(np.unique(piece.rows[:, 0]).tolist(), totals_of_leaders(piece).tolist(), strict=True)
    )
    exact = {
        (x, z): n for (x, z), n in zip(piece.rows.tolist(), piece.counts.tolist(), strict=True)
    }
    ready = cap_counts(piece)
    found = {
        (x, z): n for (x, z), n in zip(ready.rows.tolist(), ready.counts.tolist(), strict=True)
    }
    for x, often in total.items():
        mine = {z: n for (y, z), n in found.items() if y == x}
        assert sum(mine.values()) == min(often, MAX_COUNT)
        for z in range(41):
            wanted = exact.get((x, z), 0) * min(often, MAX_COUNT) / often
            assert abs(mine.get(z, 0) - wanted) <= (1 if often > MAX_COUNT else 0)
    starts, _ = ready.groups()
    for part in np.split(ready.counts, starts[1:]):
        assert (np.diff(part) <= 0).all()


def test_a_dynamic_cache_drafts_above_its_thresholds():
    rows = [(1, 9, 3), (2, 9, 4), (3, 9, 3), (3, 8, 1), (4, 9, 2), (4, 8, 2)]
    assert can_draft(ngrams(*rows)).tolist() == [False, True, True, False]
    pairs = [(1, 1, 9, 2), (1, 2, 9, 3), (1, 3, 9, 2), (1, 3, 8, 1), (1, 4, 9, 200), (1, 4, 8, 101)]
    assert can_draft(ngrams(*pairs)).tolist() == [False, True, True, True]
    assert can_draft(ngrams((1, 1, 1, 9, 2), (1, 1, 2, 9, 1))).tolist() == [True, False]


@pytest.mark.parametrize("most", [1, 5, 17, 10**6])
@pytest.mark.parametrize("dynamic", [False, True])
def test_the_most_frequent_ngrams_are_kept(corpus, tmp_path, dynamic, most):
    documents, datastore, folder = corpus
    whole = llama.load(folder / ("dynamic" if dynamic else "static"))
    done = export_cache(datastore, tmp_path / "c", dynamic=dynamic, max_ngrams=most)
    kept = llama.load(tmp_path / "c")
    assert len(kept) == done["ngrams"] == min(most, len(whole))
    assert kept.items() <= whole.items()
    left = [sum(whole[key].values()) for key in whole.keys() - kept.keys()]
    assert min(sum(found.values()) for found in kept.values()) >= max(left, default=0)
    every = len(counted(documents, ORDERS if dynamic else (2,)))
    assert done["left_out"] == every - len(kept)


def test_rare_ngrams_are_left_out(corpus, tmp_path):
    _, datastore, folder = corpus
    whole = llama.load(folder / "static")
    export_cache(datastore, tmp_path / "c", min_count=20)
    assert llama.load(tmp_path / "c") == {k: v for k, v in whole.items() if sum(v.values()) >= 20}
    assert len(llama.load(tmp_path / "c")) < len(whole)
    selection = NgramSelection(dynamic=False, min_count=20)
    list(selection.select(datastore_ngrams(datastore, 2)))
    assert selection.left_out == sum(sum(v.values()) < 20 for v in whole.values())


def test_the_size_and_the_loading_time_are_reported(corpus, tmp_path, monkeypatch):
    datastore, notes = corpus[1], Notes()
    monkeypatch.setattr("ngramkit.exchange.llama_cpp.LOADED_BYTES_PER_SECOND", 100)
    done = export_cache(datastore, tmp_path / "c", dynamic=True, reporter=notes)
    before, after = notes.lines
    assert before.startswith("counting n-grams of 1, 2, 3, 4 tokens")
    assert f"in about {done['bytes'] / 100:.0f} s at each start" in after
    tokens = datastore.manifest.counts["tokens"]
    selection = NgramSelection(dynamic=True)
    bound = sum(20 * selection.bound(tokens, order) + 8 * tokens for order in ORDERS)
    assert done["bytes"] <= bound


def test_a_model_bigram_is_no_static_cache(tmp_path, word_tokenizer):
    made = bigram(tmp_path / "b", word_tokenizer.record)
    with pytest.raises(UsageError, match="static cache"):
        export_cache(made, tmp_path / "c")
    with pytest.raises(UsageError, match="no n-gram that llama"):
        export_cache(made, tmp_path / "c", dynamic=True)
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_a_model_bigram_exports_what_the_model_is_sure_of(tmp_path, word_tokenizer):
    sure = bigram(tmp_path / "b", word_tokenizer.record, even=(0.7, 0.2, 0.1), odd=(0.8, 0.1, 0.1))
    export_cache(sure, tmp_path / "c", dynamic=True)
    cache = llama.load(tmp_path / "c")
    alone = {key: found for key, found in cache.items() if len(key) == 1}
    assert alone == {(y,): {(y + 1) % 12: 800} for y in range(1, 12, 2)}
    pairs = {(x, y) for x in range(12) for y in sure.next_tokens[x].tolist()}
    assert {key for key in cache if len(key) == 2} == pairs
    assert llama.draft([9, 7, 5, 3], 1, cache, {}) == [4]  # after 3 alone, for 5 3 is no pair
    assert llama.draft([9, 7, 5, 4], 1, cache, {}) == []  # 0.7 after one token is too little
    assert llama.draft([9, 7, 3, 4], 3, cache, {}) == [5, 6, 7]  # and after two enough


def test_a_frozen_table_exports_the_orders_that_it_has(tmp_path, token_store):
    store = token_store([[0, 1, 2, 3] * 6], 4)
    table = build_frozen(store, tmp_path / "f", leader_len=1, follower_len=2, followers=100)
    export_cache(table, tmp_path / "c", dynamic=True)
    assert {len(key) for key in llama.load(tmp_path / "c")} == {1, 2}


def test_orders_are_written_one_after_another(corpus):
    lengths = [len(key) for key in llama.load(corpus[2] / "dynamic")]
    assert lengths == sorted(lengths)
    assert {3, 4} <= set(lengths) <= set(ORDERS)
