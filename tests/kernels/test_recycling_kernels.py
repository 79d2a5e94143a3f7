"""Token Recycling's matrix and tree, and the suffix automaton, against naive twins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from twins import recycling as naive

from ngramkit.kernels.automaton import (
    MAX_SCANNED,
    extend,
    first_match_in_corpus,
    longest_repeat,
    new_automaton,
)
from ngramkit.kernels.recycling import fill_tree, likeliest_shape, overwrite_top_k
from ngramkit.kernels.suffix.search import shard_table
from ngramkit.kernels.suffix.sort import sort_shard

FEW = settings(max_examples=80, deadline=None)
V, K = 6, 3
texts = st.lists(st.integers(0, 3), max_size=40)


@pytest.mark.parametrize("nodes", [1, 2, 7])
def test_a_shape_is_the_paths_of_highest_chance(nodes):
    chances = np.array([0.5, 0.3, 0.15])
    parents, ranks, scores = likeliest_shape(chances, nodes)
    np.testing.assert_allclose(scores, naive.likeliest_shape(chances.tolist(), nodes), rtol=1e-6)
    for node in range(nodes):
        path, at = [], node
        while at >= 0:
            path.append(ranks[at])
            assert parents[at] < at
            at = parents[at]
        assert scores[node] == pytest.approx(np.prod(chances[path]), rel=1e-6)
    assert len(set(zip(parents.tolist(), ranks.tolist(), strict=True))) == nodes
    longer = likeliest_shape(chances, nodes + 5)
    assert all(np.array_equal(a[:nodes], b) for a, b in zip(longer, (parents, ranks, scores)))  # noqa: B905


rows = st.lists(st.tuples(st.integers(-2, V + 2), st.permutations(range(V))), max_size=12)


@FEW
@given(rows, st.integers(-1, V), st.integers(0, 20))
def test_a_tree_is_filled_in_from_what_was_recycled(given_rows, last, budget):
    matrix, known = np.full((V, K), -1, np.int32), {}
    for token, candidates in given_rows:  # a pass of one row, then all in one pass
        overwrite_top_k(matrix, np.array([token], np.int32), np.array([candidates], np.int32))
        if 0 <= token < V:
            known = naive.recycle(known, [token], [candidates[:K]])
    if given_rows:
        at_once = np.full((V, K), -1, np.int32)
        tokens, tops = zip(*given_rows, strict=True)
        overwrite_top_k(at_once, np.array(tokens, np.int32), np.array(tops, np.int32))
        np.testing.assert_array_equal(at_once, matrix)
    parents, ranks, scores = likeliest_shape(np.array([0.5, 0.3, 0.1]), 16)
    tokens, above, chances = fill_tree(matrix, last, parents, ranks, scores, budget)
    paths = {-1: ()}
    for node, (token, parent) in enumerate(zip(tokens.tolist(), above.tolist(), strict=True)):
        assert parent < node
        paths[node] = (*paths[parent], token)
    assert len(tokens) == len(chances) <= budget
    found = set(paths.values()) - {()}
    assert found == naive.fill_tree(known, last, parents.tolist(), ranks.tolist(), budget)
    assert len(found) == len(tokens)


def test_fewer_candidates_than_the_matrix_holds_end_a_row():
    matrix = np.full((V, K), 5, np.int32)
    overwrite_top_k(matrix, np.array([2], np.int32), np.array([[4]], np.int32))
    assert matrix[2].tolist() == [4, -1, -1]


@FEW
@given(texts, st.data())
def test_the_longest_repeated_suffix_and_what_followed(text, data):
    automaton, size = new_automaton(len(text)), 0
    while size < len(text):
        more = data.draw(st.integers(1, len(text) - size))
        extend(automaton, np.array(text[size : size + more], np.int32))
        size += more
        width = data.draw(st.integers(1, 6))
        matched, line = longest_repeat(automaton, width)
        assert (matched, line.tolist()) == naive.longest_repeat(text[:size], width)


@pytest.mark.parametrize("text", [[7] * 50, [1, 2] * 25, list(range(50)), [1, 1, 2, 1, 1, 3] * 8])
def test_repetitive_texts_fit_into_the_room(text):
    automaton = new_automaton(len(text))
    for size, token in enumerate(text, 1):
        extend(automaton, np.array([token], np.int32))
        matched, line = longest_repeat(automaton, 4)
        assert (matched, line.tolist()) == naive.longest_repeat(text[:size], 4)


def test_nothing_is_repeated_in_no_text():
    matched, line = longest_repeat(new_automaton(0), 4)
    assert (matched, line.tolist()) == (0, [])


@FEW
@given(
    st.lists(texts.filter(bool), min_size=1, max_size=3), texts, st.integers(0, 6),
    st.integers(0, 3), st.integers(1, 5), st.integers(-1, 3),
)  # fmt: skip
def test_the_same_in_a_corpus(documents, context, longest, shortest, width, eos):
    shards = [[*tokens, 4] for tokens in documents]
    table, _arrays = _corpus(shards)
    found = first_match_in_corpus(table, np.array(context, np.int32), longest, shortest, width, eos)
    matched, line = found
    expected, copied = naive.first_match_in_corpus(shards, context, longest, width, 4, eos)
    assert (matched, line.tolist()) == (expected, copied if matched >= shortest else [])


def _corpus(shards):
    """Return a shard table, and its arrays."""
    sorted_shards = [sort_shard(np.array(tokens, np.uint16), 4) for tokens in shards]
    arrays = [(s["tokens"], s["suffix_array"], s["first_token"]) for s in sorted_shards]
    return shard_table(arrays), arrays


@pytest.mark.parametrize(
    ("rest", "places"),
    [
        (MAX_SCANNED - 2, MAX_SCANNED),
        (9, MAX_SCANNED + 1),
        (MAX_SCANNED - 2, MAX_SCANNED + 1),
        (MAX_SCANNED, MAX_SCANNED + 9),
    ],
)
def test_the_first_of_many_places_is_found(rest, places):
    """In order of the suffix array, the first place of `1 0` is the last."""
    text = [*[3] * rest, 1, 0, 2, *[1, 0, 1] * (places - 2), 1, 0, 0, 4]
    table, _arrays = _corpus([text])
    matched, line = first_match_in_corpus(table, np.array([1, 0], np.int32), 64, 1, 3, -1)
    assert matched == 2
    expected = naive.first_match_in_corpus([text], [1, 0], 64, 3, 4, -1)[1]
    if rest < MAX_SCANNED:
        assert line.tolist() == expected == [2, 1, 0]
    else:  # a later one
        assert line.tolist() in ([0], [1, 1, 0])
