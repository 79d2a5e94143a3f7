"""Drafts cut to what pays for its time; seconds are made up."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest
from auto_budgets import auto_of
from hypothesis import given, settings, strategies as st
from twins.acceptance_record import corrected_scores, most_worthwhile

from ngramkit.budget.auto import AutoBudget
from ngramkit.budget.costs import MAX_NODES, PassCosts
from ngramkit.budget.model_cost import FREE_TOKENS, ModelCost
from ngramkit.drafters.base import DraftTree
from ngramkit.drafters.registry import NoDraft


def tree_of(pairs, scores):
    """From (token, parent) pairs."""
    token_ids, parents = np.array(pairs, np.int32).reshape(-1, 2).T.copy()
    return DraftTree(
        token_ids, parents, np.array(scores, np.float32), np.arange(len(pairs), dtype=np.uint8)
    )


def chain(scores, first=5):
    return tree_of([(first + i, i - 1) for i in range(len(scores))], scores)


def test_dear_nodes_are_left_out_and_free_ones_kept():
    tree = chain([0.9, 0.5, 0.2, 0.05])
    kept = {node: len(auto_of(node).cut(tree, 10)) for node in (0, 0.3, 9)}
    assert kept == {0: 4, 0.3: 2, 9: 0}


def test_a_cut_tree_is_a_tree_of_the_same_paths():
    pairs = [(1, -1), (2, -1), (3, 0), (4, 1), (5, 3)]
    tree = tree_of(pairs, [0.05, 0.9, 0.01, 0.8, 0.7])
    cut = auto_of(0.2).cut(tree, 10)
    cut.check()
    assert cut.token_ids.tolist() == [2, 4, 5]
    assert cut.parents.tolist() == [-1, 0, 1]
    assert cut.scores.tolist() == tree.scores[[1, 3, 4]].tolist()
    assert cut.source.tolist() == [1, 3, 4]


@settings(max_examples=60, deadline=None)
@given(st.data(), st.floats(0, 1))
def test_no_other_part_of_a_draft_is_worth_more_than_what_is_kept(data, price):
    parents = [data.draw(st.integers(-1, i - 1)) for i in range(data.draw(st.integers(1, 9)))]
    scores = [data.draw(st.floats(0, 1, width=32)) for _ in parents]
    kept = auto_of(price).cut(tree_of(list(enumerate(parents)), scores), 10)
    kept.check()
    chances = corrected_scores(parents, scores, [], [1.0] * 6, 0)
    for token, parent in zip(kept.token_ids, kept.parents, strict=True):
        above = -1 if parent < 0 else kept.token_ids[parent]
        assert parents[token] == above
    value = sum(chances[token] for token in kept.token_ids) - price * len(kept)
    costs = price * np.arange(len(parents) + 1)
    np.testing.assert_allclose(value, most_worthwhile(parents, chances, costs), atol=1e-5)


def learnt(auto, tree, written, node, passes=40):
    """The sizes of cuts of the same tree, pass by pass."""
    sizes = []
    for _ in range(passes):
        sizes.append(len(auto.cut(tree, 10)))
        auto.learn(written, 1 + node * sizes[-1])
    return sizes


def test_scores_that_do_not_come_true_are_believed_less():
    drafter, tree = NoDraft(), chain([0.9] * 6)
    sizes = learnt(auto_of(0.2, drafter), tree, [99], 0.2)
    assert sizes[0] == 6
    assert max(sizes[-5:]) == 0
    # The next request of the same drafter knows; another drafter's does not.
    assert len(auto_of(0.2, drafter).cut(tree, 10)) == 0
    assert len(auto_of(0.2).cut(tree, 10)) == 6


def test_what_was_left_out_is_judged_too():
    """Scores far too low: nothing is verified, and yet it is learnt that all would have held."""
    tree = chain([0.02] * 6)
    sizes = learnt(auto_of(0.02), tree, tree.token_ids.tolist(), 0.02)
    assert sizes[0] == 0
    assert min(sizes[-5:]) == 6


def test_shares_of_matches_are_no_chances():
    drafter = NoDraft()
    drafter.scores_are_shares = True
    found = [len(auto_of(0.2, each).cut(chain([1] * 6), 9)) for each in (drafter, None)]
    assert found[0] < found[1] == 6


def test_a_drafter_is_asked_for_little_more_than_was_kept():
    auto = auto_of(9)
    assert auto.nodes_to_draft(64, 10) == 16  # the largest pass of the profile
    for _ in range(8):
        auto.cut(chain([0.5] * 8), 10)
    assert auto.nodes_to_draft(64, 10) == 8
    assert auto.nodes_to_draft(2, 10) == 2


def device_costs(device="cpu"):
    return PassCosts(ModelCost(FREE_TOKENS[device]).curve(MAX_NODES))


def test_where_more_nodes_cost_no_more_a_drafter_is_asked_for_them():
    """Of eight nodes none may pay, of 64 all: so they have to be drafted to be seen."""
    costs = device_costs("cuda")
    for rows in (0, 1, 4, 16, 64):
        costs.learn(rows, 10, 1.0 if rows == 0 else 1.5)
    auto = AutoBudget(costs, NoDraft())
    for _ in range(8):
        assert len(auto.cut(chain([0.1**k for k in range(1, 9)]), 10)) == 0
    assert auto.nodes_to_draft(MAX_NODES, 10) >= 64


def test_twice_of_what_was_kept_is_asked_for_so_that_the_next_size_can_be_tried():
    costs = device_costs("cuda")
    for rows in (0, 16, 32):
        costs.learn(rows, 10, 1.0)
    auto = AutoBudget(costs, NoDraft())
    for _ in range(8):
        assert len(auto.cut(chain([0.99**k for k in range(1, 33)]), 10)) == 32
    assert auto.nodes_to_draft(MAX_NODES, 10) >= 64


def run(auto, draft, seconds, passes, drafting=0.0):
    """`draft(i)` is a tree and what is written; the nodes that were verified in each pass, -1 where
    the drafter was not asked, and the seconds of all."""
    sizes, total = [], 0.0
    for i in range(passes):
        asked = auto.opens()
        tree, written = draft(i)
        tree = auto.cut(tree if asked else DraftTree.empty(), 100)
        took = seconds(len(tree), i)
        total += took + drafting * asked
        auto.learn(written[: len(tree) + 1], took, drafting)
        sizes.append(len(tree) if asked else -1)
    return sizes, total


def right(i):
    tree = chain([0.9**k for k in range(1, 41)])
    return tree, tree.token_ids.tolist()


def wrong(i):
    return chain([0.9] * 10), [99]


@pytest.mark.parametrize("start", ["cpu", "cuda"])
def test_where_nodes_cost_nothing_whole_drafts_are_verified(start):
    auto = AutoBudget(device_costs(start), NoDraft())
    sizes, _ = run(auto, right, lambda nodes, i: 1 + 0.001 * nodes, 40)
    assert sizes[0] == 0  # a pass without a draft has to be seen first
    assert sizes[1] == 1  # the smallest comes first
    assert min(sizes[-10:]) > 35  # sizes are told apart by fifths, and no node is sure


def test_a_pass_without_a_draft_is_timed_now_and_then():
    """Otherwise a machine that is slower now would look as if drafts were free."""
    auto = AutoBudget(device_costs("cuda"), NoDraft())
    sizes, _ = run(auto, some, lambda nodes, i: 1 + 0.001 * nodes, 400)
    assert 0 in sizes[200:]
    assert sum(size == 0 for size in sizes) < 12


def some(i):
    """Drafts that come true as one of chat does: 1.5 tokens at 4 nodes, 2.2 at 32."""
    scores = [0.5, 0.2, 0.25, 0.1, 0.12, 0.1] + [0.03] * 26
    parents = [-1, -1, 0, -1, 0, 2] + [0, 1, 2, 3] * 6 + [4, 5]
    tree = tree_of(list(enumerate(parents, 1)), scores)
    return tree, [[1, 3, 6, 99], [2, 99], [1, 99], [99]][i % 4]


def steps(nodes, i):
    """Five rows take less than two, sixteen hardly more: SmolLM2-135M on two cores."""
    return float(
        np.interp(nodes, [0, 1, 2, 3, 4, 8, 15, 23, 31], [57, 93, 110, 110, 90, 105, 109, 125, 149])
    )


def test_a_plateau_behind_dear_small_drafts_is_found():
    auto = AutoBudget(device_costs(), NoDraft())
    sizes, _ = run(auto, some, steps, 80)
    assert min(np.median(sizes[-20:]), sizes[-1]) >= 4
    assert not {1, 2, 3} & set(sizes[-20:])


def test_a_size_that_could_only_lose_is_not_tried():
    auto = AutoBudget(device_costs(), NoDraft())
    sizes, total = run(auto, some, lambda nodes, i: 1 + 2.0 * nodes, 200)
    assert max(sizes) <= 4
    assert total < 1.05 * 200
    assert sum(size > 1 for size in sizes) <= 2


def test_a_drafter_that_is_never_right_costs_little_and_is_asked_ever_more_rarely():
    auto = AutoBudget(device_costs(), NoDraft())
    sizes, total = run(auto, wrong, lambda nodes, i: 1 + 0.1 * nodes, 400, drafting=0.05)
    assert total < 1.03 * 400
    asked = [size >= 0 for size in sizes]
    assert sum(asked[:40]) / 40 > sum(asked[-200:]) / 200 > 0
    assert max(sizes[:2]) <= 4  # before anything is known, a draft is small


def test_drafts_that_help_again_are_found():
    auto = AutoBudget(device_costs(), NoDraft())
    sizes, _ = run(auto, lambda i: right(i) if i > 200 else wrong(i),
                   lambda nodes, i: 1 + 0.02 * nodes, 300, drafting=0.02)  # fmt: skip
    assert -1 in sizes[:200]
    assert min(sizes[-20:]) > 10


@pytest.mark.parametrize("every", [0, 7])
def test_a_pass_that_was_disturbed_decides_nothing(every):
    def seconds(nodes, i):
        return (1 + 0.02 * nodes) * (5 if every and i % every == 0 else 1)

    sizes, _ = run(AutoBudget(device_costs(), NoDraft()), right, seconds, 60)
    assert min(sizes[-30:]) > 15


def test_nodes_that_become_dear_are_left_out():
    def seconds(nodes, i):
        return 1 + nodes * (0.01 if i < 60 else 0.5)

    def some(i):
        # Now and then nothing is drafted, which shows what a pass costs without.
        tree = chain([0.7**k for k in range(1, 21)])
        return (tree if i % 3 else DraftTree.empty()), [5, 6, 99]

    sizes, _ = run(AutoBudget(device_costs(), NoDraft()), some, seconds, 200)
    assert max(sizes[40:60]) >= 4
    assert np.median(sizes[-30:]) == 2  # those that come true


def test_a_machine_that_becomes_slower_changes_nothing():
    def sizes(slower):
        def seconds(nodes, i):
            return (1 + 0.05 * nodes) * (slower if i >= 60 else 1)

        return run(AutoBudget(device_costs(), NoDraft()), right, seconds, 120)[0]

    assert np.median(sizes(3)[-20:]) == pytest.approx(np.median(sizes(1)[-20:]), abs=1)


def test_costs_that_a_busy_process_kept_are_found_to_be_wrong():
    """A pass with 30 nodes seemed to take half of one without; it takes 2.5 times as long."""
    costs = device_costs()
    costs.recall({"3": {"0": 0.027, "30": 0.0127}})
    sizes, _ = run(
        AutoBudget(costs, NoDraft()),
        lambda _: (chain([0.05 * 0.99**k for k in range(30)]), [99]),
        lambda nodes, _: 0.0055 * (1 + 0.05 * nodes),
        60,
    )
    assert sizes[0] == 0  # the machine's pace comes first
    assert sum(size > 0 for size in sizes) < 10
    assert costs.at(100)[30] > 1.4


def test_rows_of_a_batch_are_counted():
    """Beside a path of four, each further path is a row as long as the longest."""
    pairs = [(1, -1), (2, 0), (3, 1), (4, 2), (5, -1), (6, -1)]
    tree = tree_of(pairs, [0.9, 0.8, 0.7, 0.6, 0.3, 0.2])
    cheap, dear = auto_of(0.1).cut(tree, 10), auto_of(0.1, rows=True).cut(tree, 10)
    assert cheap.token_ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert dear.token_ids.tolist() == [1, 2, 3, 4]


def test_the_line_between_no_draft_and_none_that_paid():
    auto = auto_of(9)
    assert auto.opens()
    auto.cut(DraftTree.empty(), 10)
    assert not auto.declined
    auto.cut(chain([0.5] * 8), 10)
    assert auto.declined


def test_requests_in_several_threads_share_the_costs_of_passes():
    costs = PassCosts(ModelCost(FREE_TOKENS["cpu"]).curve(MAX_NODES))
    failures = []

    def decode(seed):
        random, auto = np.random.default_rng(seed), AutoBudget(costs, object())
        try:
            for number in range(1500):
                if number % 300 == 0:
                    length = 1 << 2 * int(random.integers(2, 7))
                nodes = int(random.integers(MAX_NODES)) if auto.opens() else 0
                tree = auto.cut(chain([0.9] * nodes), length)
                auto.learn(range(len(tree) // 2 + 1), 0.01 + 0.001 * len(tree))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=decode, args=(seed,)) for seed in range(6)]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(usual)
    assert not failures
