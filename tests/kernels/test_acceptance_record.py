import numpy as np
from hypothesis import given, settings, strategies as st
from twins import acceptance_record as reference

from ngramkit.kernels.acceptance_record import (
    RUN_CLASSES,
    SHARE_CLASSES,
    chances,
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
    expected = reference.corrected_scores(*tree, before, trust, run)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@settings(max_examples=80, deadline=None)
@given(st.lists(drafts(), max_size=5))
def test_a_run_lasts_as_long_as_drafts_are_right(all_drafts):
    run = 0
    for draft in all_drafts:
        _, run = reference.judged(draft, run)
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
@given(scored_trees(), st.integers(0, 3))
def test_tokens_of_paths_as_rows(tree, riding):
    parents, scores = tree
    chance = list(scores)
    for node, parent in enumerate(parents):
        if parent >= 0:
            chance[node] = min(chance[node], chance[parent])
    parents, chance = arrays(parents, chance)
    found = expected_tokens(parents, np.argsort(-chance, kind="stable"), riding)
    assert found.dtype == np.int64
    assert found.tolist() == reference.tokens_in_rows(parents.tolist(), chance.tolist(), riding)


def test_a_second_row_is_as_long_as_the_first():
    parents, order = np.array([-1, 0, -1], np.int32), np.arange(3)
    assert expected_tokens(parents, order, 0).tolist() == [0, 1, 2, 5]
    assert expected_tokens(parents, order, 4).tolist() == [4, 5, 6, 13]


def test_a_class_without_a_record_is_corrected_as_all_are():
    record = np.zeros((SHARE_CLASSES, RUN_CLASSES, 2), np.float32)
    record[3, 0] = 30.0, 0.0  # of other shares nothing was right
    found = chances(*arrays([-1], [0.75]), record, np.ones(RUN_CLASSES, np.float32), 0)
    assert found[0] < 0.05
