import numpy as np
from hypothesis import given, settings, strategies as st
from twins import kernels as reference

from ngramkit.kernels.tree_paths import best_path, root_to_leaf_paths


@st.composite
def parent_lists(draw):
    size = draw(st.integers(0, 40))
    return [draw(st.integers(-1, i - 1)) for i in range(size)]


@settings(max_examples=60, deadline=None)
@given(parent_lists())
def test_paths_are_those_from_the_root_to_the_leaves(parents):
    nodes, rows, columns = root_to_leaf_paths(np.array(parents, np.int32))
    expected = reference.tree_paths(parents)
    assert [[n for n in row if n != -2] for row in nodes.tolist()] == expected
    assert all(
        row[len(path) :] == [-2] * (len(row) - len(path))
        for row, path in zip(nodes.tolist(), expected, strict=True)
    )
    assert nodes.dtype == np.int32
    assert nodes[rows, columns].tolist() == list(range(-1, len(parents)))


@settings(max_examples=200, deadline=None)
@given(parent_lists(), st.data())
def test_the_best_path_is_the_one_with_the_most_expected_tokens(parents, data):
    halves = st.integers(0, 8).map(lambda n: n / 8)  # summed without rounding
    scores = [data.draw(halves) for _ in parents]
    most = data.draw(st.integers(-1, 6))
    cost = data.draw(st.sampled_from([0.0, 0.125, 0.5]))
    found = best_path(np.array(parents, np.int32), np.array(scores, np.float32), most, cost)
    assert found.dtype == np.int32
    assert found.tolist() == reference.best_path(
        parents, [score - cost for score in scores], max(most, 0)
    )
