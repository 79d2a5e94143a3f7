import numpy as np
from hypothesis import given, settings, strategies as st
from twins import draft_cut as reference_budget

from ngramkit.kernels.draft_cut import (
    MAX_CHANCE,
    RUN_CLASSES,
    SHARE_CLASSES,
    chances,
    cut_draft,
    expected_tokens,
    update_record,
)

SCORES = st.floats(0, 1, width=32)


@st.composite
def scored_trees(draw, most=9):
    size = draw(st.integers(0, most))
    parents = [draw(st.integers(-1, i - 1)) for i in range(size)]
    return parents, [draw(SCORES) for _ in range(size)]


@st.composite
def drafts(draw):
    """token_ids, parents, scores and what was written: along some path, then anything."""
    parents, scores = draw(scored_trees())
    seen, tokens = set(), []
    for parent in parents:
        tokens.append(next(t for t in range(len(parents)) if (parent, t) not in seen))
        seen.add((parent, tokens[-1]))
    node, written = draw(st.integers(-1, len(parents) - 1)), [draw(st.integers(0, 3))]
    while node >= 0:
        written.insert(0, tokens[node])
        node = parents[node]
    return tokens, parents, scores, written


def arrays(parents, scores):
    return np.array(parents, np.int32), np.array(scores, np.float32)


def kept_of(parents, chance, seconds, rate):
    """What is kept of nodes with these chances, and the parents among them."""
    nothing = (
        np.zeros((SHARE_CLASSES, RUN_CLASSES, 2), np.float32),
        np.ones(RUN_CLASSES, np.float32),
    )
    return cut_draft(*arrays(parents, chance), *nothing, 0, np.array(seconds, np.float64), rate)


def on_record(all_drafts, fade=1.0):
    """The record and the run after these drafts."""
    record, run = np.zeros((SHARE_CLASSES, RUN_CLASSES, 2), np.float32), 0
    for tokens, parents, scores, written in all_drafts:
        ids = np.array(tokens, np.int32)
        new = np.array(written, np.int32)
        run = update_record(ids, *arrays(parents, scores), new, record, fade, run)
    return record, run


@settings(max_examples=80, deadline=None)
@given(scored_trees(), st.lists(drafts(), max_size=5), st.lists(SCORES, min_size=6, max_size=6))
def test_scores_are_corrected_by_the_acceptance_of_such_scores(tree, before, trust):
    record, run = on_record(before)
    found = chances(*arrays(*tree), record, np.array(trust, np.float32), run)
    assert found.dtype == np.float32
    expected = reference_budget.corrected_scores(*tree, before, trust, run)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@settings(max_examples=80, deadline=None)
@given(st.lists(drafts(), max_size=5))
def test_a_run_lasts_as_long_as_drafts_are_right(all_drafts):
    run = 0
    for draft in all_drafts:
        _, run = reference_budget.judged(draft, run)
    assert on_record(all_drafts)[1] == run


def test_an_accepted_chain_is_a_run_of_its_length():
    chain = ([5, 6, 7], [-1, 0, 1], [0.75, 0.75, 0.75])
    assert on_record([(*chain, [5, 6, 7, 8])])[1] == 3
    assert on_record([(*chain, [5, 6, 7, 8]), (*chain, [5, 6, 9])])[1] == 0
    # Without a guess there is nothing to be wrong about.
    assert on_record([(*chain, [5, 6, 7, 8]), ([], [], [], [4])])[1] == 3
    record, _ = on_record([(*chain, [5, 9])])
    assert record[1, 0].tolist() == [0.75, 1.0]  # the first was right
    assert record[0, 1].tolist() == [1.0, 0.0]  # the second was certain after it, and wrong
    assert record.sum() == 2.75  # nothing is known of the third


def test_old_drafts_fade():
    one = ([5], [-1], [0.75])
    record, _ = on_record([(*one, [5]), (*one, [6])], fade=0.5)
    assert record[1, 0].tolist() == [0.375, 0.5]
    assert record[1, 1].tolist() == [0.75, 0]


@settings(max_examples=60, deadline=None)
@given(scored_trees(), st.data(), st.floats(0, 5))
def test_nothing_is_worth_more_than_what_is_kept(tree, data, rate):
    parents, scores = tree
    chance = list(scores)
    for node, parent in enumerate(parents):
        chance[node] = min(chance[node], MAX_CHANCE * (chance[parent] if parent >= 0 else 1))
    steps = [data.draw(st.floats(0, 1, width=32)) for _ in range(len(parents) + 1)]
    seconds = np.cumsum(np.array(steps, np.float64))
    kept, _ = kept_of(parents, chance, seconds, rate)
    assert kept.dtype == np.int32
    nodes = kept.tolist()
    assert nodes == sorted(set(nodes))
    assert all(parents[node] < 0 or parents[node] in nodes for node in nodes)
    value = sum(chance[node] for node in nodes) - rate * seconds[len(nodes)]
    best = reference_budget.most_worthwhile(parents, chance, seconds, rate)
    np.testing.assert_allclose(value, best, rtol=1e-5, atol=1e-5)


def test_a_node_that_costs_more_than_it_earns_is_left_out():
    for rate, nodes in ((1.0, [0]), (0.1, [0, 1]), (9.0, [])):
        assert kept_of([-1, 0], [0.5, 0.4], [1, 1.2, 2.0], rate)[0].tolist() == nodes


def test_kept_nodes_keep_their_parents():
    """Four of five: the second is the least likely."""
    seconds = [1, 1, 1, 1, 1, 9]
    nodes, parents = kept_of([-1, 0, -1, 2, 3], [0.9, 0.1, 0.8, 0.7, 0.6], seconds, 1.0)
    assert nodes.tolist() == [0, 2, 3, 4]
    assert parents.tolist() == [-1, -1, 1, 2]
    assert parents.dtype == np.int32


@settings(max_examples=40, deadline=None)
@given(scored_trees())
def test_a_cut_is_the_worthwhile_part_by_chances(tree):
    record, trust = (
        np.zeros((SHARE_CLASSES, RUN_CLASSES, 2), np.float32),
        np.full(RUN_CLASSES, 0.5, np.float32),
    )
    seconds = 1 + 0.1 * np.arange(len(tree[0]) + 1.0)
    kept, parents = cut_draft(*arrays(*tree), record, trust, 0, seconds, 1.0)
    chance = chances(*arrays(*tree), record, trust, 0)
    wanted = reference_budget.worthwhile(chance.tolist(), seconds.tolist(), 1.0)
    assert kept.tolist() == wanted
    place = {node: i for i, node in enumerate(wanted)}
    assert parents.tolist() == [place.get(tree[0][node], -1) for node in wanted]


@settings(max_examples=60, deadline=None)
@given(scored_trees(), st.integers(0, 3))
def test_tokens_of_paths_as_rows(tree, riding):
    parents, scores = tree
    chance = list(scores)
    for node, parent in enumerate(parents):
        if parent >= 0:
            chance[node] = min(chance[node], chance[parent])
    found = expected_tokens(*arrays(parents, chance), riding)
    assert found.dtype == np.int64
    assert found.tolist() == reference_budget.tokens_in_rows(parents, chance, riding)


def test_a_second_row_is_as_long_as_the_first():
    parents, chance = arrays([-1, 0, -1], [0.9, 0.8, 0.1])
    assert expected_tokens(parents, chance, 0).tolist() == [0, 1, 2, 5]
    assert expected_tokens(parents, chance, 4).tolist() == [4, 5, 6, 13]


def test_a_class_without_a_record_is_corrected_as_all_are():
    record = np.zeros((SHARE_CLASSES, RUN_CLASSES, 2), np.float32)
    record[3, 0] = 30.0, 0.0  # of other shares nothing was right
    found = chances(*arrays([-1], [0.75]), record, np.ones(RUN_CLASSES, np.float32), 0)
    assert found[0] < 0.05
