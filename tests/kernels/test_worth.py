import numpy as np
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

from ngramkit.kernels.worth import DEPTHS, LEVELS, chances, recorded, subtree, worthwhile

SCORES = st.floats(0, 1, width=32)


@st.composite
def scored_trees(draw, most=9):
    size = draw(st.integers(0, most))
    parents = [draw(st.integers(-1, i - 1)) for i in range(size)]
    return parents, [draw(SCORES) for _ in range(size)]


@st.composite
def verified(draw):
    """A tree, and the path in it that was accepted."""
    parents, scores = draw(scored_trees())
    node = draw(st.integers(-1, len(parents) - 1))
    path = []
    while node >= 0:
        path.insert(0, node)
        node = parents[node]
    return parents, scores, path


def arrays(parents, scores):
    return np.array(parents, np.int32), np.array(scores, np.float32)


@settings(max_examples=60, deadline=None)
@given(scored_trees(), st.lists(verified(), max_size=4), st.sampled_from([0.25, 1.5, 4.0]))
def test_scores_are_corrected_by_what_came_of_such_scores(tree, drafts, belief):
    record = np.zeros((LEVELS, DEPTHS, 2), np.float32)
    for parents, scores, path in drafts:
        recorded(*arrays(parents, scores), np.array(path, np.int64), record, np.float32(1))
    found = chances(*arrays(*tree), record, np.float32(belief))
    assert found.dtype == np.float32
    np.testing.assert_allclose(
        found, reference.corrected_scores(*tree, drafts, belief), rtol=1e-4, atol=1e-6
    )


def test_old_drafts_fade():
    record = np.zeros((LEVELS, DEPTHS, 2), np.float32)
    tree = arrays([-1], [0.75])
    recorded(*tree, np.array([0]), record, np.float32(0.5))
    recorded(*tree, np.array([], np.int64), record, np.float32(0.5))
    assert record[0, 0].tolist() == [0.75 + 0.375, 0.5]
    assert record.sum() == 1.625


@settings(max_examples=60, deadline=None)
@given(scored_trees(), st.data(), st.floats(0, 5))
def test_nothing_is_worth_more_than_what_is_kept(tree, data, rate):
    parents, scores = tree
    chance = list(scores)
    for node, parent in enumerate(parents):
        if parent >= 0:
            chance[node] = min(chance[node], chance[parent])
    steps = [data.draw(st.floats(0, 1, width=32)) for _ in range(len(parents) + 1)]
    seconds = np.cumsum(np.array(steps, np.float64))
    kept = worthwhile(*arrays(parents, chance), seconds, rate)
    assert kept.dtype == np.int32
    nodes = kept.tolist()
    assert nodes == sorted(set(nodes))
    assert all(parents[node] < 0 or parents[node] in nodes for node in nodes)
    value = sum(chance[node] for node in nodes) - rate * seconds[len(nodes)]
    best = reference.most_worthwhile(parents, chance, seconds, rate)
    np.testing.assert_allclose(value, best, rtol=1e-5, atol=1e-5)


def test_a_node_that_costs_more_than_it_earns_is_left_out():
    parents, chance = arrays([-1, 0], [0.5, 0.4])
    assert worthwhile(parents, chance, np.array([1, 1.2, 2.0]), 1.0).tolist() == [0]
    assert worthwhile(parents, chance, np.array([1, 1.2, 2.0]), 0.1).tolist() == [0, 1]
    assert worthwhile(parents, chance, np.array([1, 1.2, 2.0]), 9.0).tolist() == []


def test_kept_nodes_keep_their_parents():
    parents = np.array([-1, 0, -1, 2, 3], np.int32)
    kept = subtree(parents, np.array([0, 2, 3, 4], np.int32))
    assert kept.tolist() == [-1, -1, 1, 2]
    assert kept.dtype == np.int32
