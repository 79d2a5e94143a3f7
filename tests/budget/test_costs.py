"""What passes cost, learnt from passes of made-up seconds."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ngramkit.budget.costs import MAX_NODES, RECENT_PASSES, PassCosts
from ngramkit.budget.model_cost import FREE_TOKENS, ModelCost
from ngramkit.budget.profile import Pass, Profile

SIZES = (1, 2, 4, 8, 16, 32)


def by_device(device="cpu"):
    return PassCosts(ModelCost(FREE_TOKENS[device]).curve(MAX_NODES))


def fed(costs, seconds, rounds=RECENT_PASSES, length=100, sizes=SIZES, outliers=0.0, seed=0):
    """All sizes in turns, each after a pass without a draft; some take five times as long."""
    random = np.random.default_rng(seed)
    for _ in range(rounds):
        for size in sizes:
            for rows in (0, size):
                slow = 5 if random.random() < outliers else 1
                costs.learn(rows, length, slow * seconds(rows))
    return costs


@pytest.mark.parametrize("node", [0.001, 0.05, 0.4])
@pytest.mark.parametrize("outliers", [0.0, 0.2])
def test_costs_are_learnt_whatever_was_supposed(node, outliers):
    costs = fed(by_device(), lambda rows: 0.01 * (1 + node * rows), outliers=outliers)
    found = costs.at(100)
    assert found[0] == 1
    for rows in SIZES:
        assert found[rows] == pytest.approx(1 + node * rows, rel=0.03)  # 32 counts as 31
    assert found[12] == pytest.approx(1 + node * 12, rel=0.3)  # in between, as the prior bends
    assert costs.unit(100) == pytest.approx(0.01, rel=0.01)


def test_one_pass_of_five_times_the_time_says_nothing():
    costs = fed(by_device(), lambda rows: 1 + 0.1 * rows, rounds=3)
    before = costs.at(100).copy()
    costs.learn(8, 100, 5 * float(before[8]))
    np.testing.assert_allclose(costs.at(100), before, rtol=0.01)


def test_no_shape_is_supposed():
    """Five rows may take less than three, as matrix kernels change."""
    curve = {0: 57, 1: 93, 2: 110, 3: 110, 4: 90, 7: 101, 8: 109, 15: 109, 31: 149}
    costs = fed(by_device(), lambda rows: curve[rows], rounds=3, sizes=list(curve)[1:])
    found = costs.at(100)
    for rows, seconds in curve.items():
        assert found[rows] == pytest.approx(seconds / 57, rel=0.03)  # 31 counts as 30
    assert found[4] < found[2]


def test_what_was_learnt_is_taken_up_by_another_process():
    costs = fed(by_device(), lambda rows: 0.01 * (1 + 0.1 * rows))
    again = by_device()
    again.recall(json.loads(json.dumps(costs.summary())))
    np.testing.assert_allclose(again.at(100), costs.at(100), rtol=0.03)
    assert again.unit(100) == pytest.approx(costs.unit(100))
    for _ in range(5):  # the machine is slower now
        again.learn(8, 100, 3 * 0.018)
    assert again.unit(100) == pytest.approx(0.03, rel=0.2)
    assert again.at(100)[8] == pytest.approx(1.8, rel=0.1)


@pytest.mark.parametrize(
    "found",
    [
        None,
        [],
        {"3": 1},
        {"3": {"0": "x"}},
        {"3": {"0": float("nan")}},
        {"3": {"0": -1.0}},
        {"3": {"8": 0.1}},
        {"x": {"0": 0.1}},
        {"3": {"0": True and 1e99}},
        {"99999": {"0": 0.1}},
    ],
)
def test_of_what_makes_no_sense_nothing_is_taken_up(found):
    costs = by_device()
    costs.recall(found)
    assert costs.unit(100) == 0.0
    np.testing.assert_array_equal(costs.at(100), by_device().at(100))


def test_one_stalled_pass_is_not_kept_for_other_processes():
    costs = by_device()
    fed(costs, lambda node: 1 + node / 10, sizes=(0, 4))
    costs.learn(8, 100, 50.0)
    (sizes,) = costs.summary().values()
    assert set(sizes) == {"0", "4"}


def test_a_busy_machine_keeps_nothing_for_other_processes():
    costs, random = by_device(), np.random.default_rng(0)
    for _ in range(4 * RECENT_PASSES):
        costs.learn(0, 100, float(random.uniform(1, 5)))
    assert costs.summary() == {}


def test_a_size_whose_passes_disagree_is_not_kept_for_other_processes():
    costs = fed(by_device(), lambda rows: 1 + rows / 10, sizes=(2, 4))
    for i in range(RECENT_PASSES):
        for rows in (0, 2, 4):
            costs.learn(rows, 100, (1 + rows / 10) * (1 + (rows == 4 and i % 3)))
    (sizes,) = costs.summary().values()
    assert set(sizes) == {"0", "2"}


def test_a_busy_moment_ends_while_new_sizes_are_tried():
    costs = by_device()
    for rows in (0, 1, 4, 16, 4, 4):
        costs.learn(rows, 100, 1 + rows / 10)
    for rows in (4, 4, 4, 4):  # half of the machine is taken
        costs.learn(rows, 100, 2 * (1 + rows / 10))
    for rows in (5, 20, 32, 64, 28, 20, 20):
        costs.learn(rows, 100, 1 + rows / 10)
    assert costs.at(100)[20] == pytest.approx(3.0, rel=0.02)
    assert costs.at(100)[4] == pytest.approx(1.4, rel=0.02)


def test_a_well_known_size_is_tried_less_often():
    costs = fed(by_device(), lambda rows: 1 + 0.1 * rows, rounds=5, sizes=(4,))
    costs.learn(16, 100, 2.6)
    for _ in range(50):
        costs.learn(0, 100, 1.0)
    ages = dict(costs.untried(100))
    assert (ages[0], ages[4], ages[16]) == (0, 51 / 5, 50)


def test_a_machine_that_becomes_slower_is_followed():
    costs = fed(by_device(), lambda rows: 1 + 0.1 * rows)
    for _ in range(RECENT_PASSES):
        costs.learn(0, 100, 3.0)
    assert costs.unit(100) == pytest.approx(3.0, rel=0.02)
    fed(costs, lambda rows: 3 * (1 + 0.1 * rows), rounds=3)
    assert costs.at(100)[8] == pytest.approx(1.8, rel=0.04)


@pytest.mark.parametrize("slower", [0.3, 3.0])
def test_a_machine_of_another_pace_changes_no_cost(slower):
    costs = fed(by_device(), lambda rows: 1 + 0.1 * rows)
    for _ in range(5):
        costs.learn(8, 100, slower * 1.8)
    assert costs.unit(100) == pytest.approx(slower, rel=0.02)
    assert costs.at(100)[8] == pytest.approx(1.8, rel=0.02)


def test_a_first_pass_that_was_disturbed_is_found_out():
    costs = by_device()
    costs.learn(0, 100, 5.0)
    fed(costs, lambda rows: 1 + 0.1 * rows, rounds=4, sizes=(4,))
    assert costs.unit(100) == 1.0
    assert costs.at(100)[4] == pytest.approx(1.4, rel=0.02)


def test_nodes_that_become_dear_are_followed():
    costs = fed(by_device(), lambda rows: 1 + 0.01 * rows)
    fed(costs, lambda rows: 1 + 0.3 * rows)
    assert costs.at(100)[8] == pytest.approx(3.4, rel=0.02)


def test_a_longer_context_begins_with_what_is_known_and_finds_its_own():
    costs = fed(by_device(), lambda rows: 1 + 0.1 * rows)
    np.testing.assert_allclose(costs.at(5000), costs.at(100), rtol=1e-3)
    fed(costs, lambda rows: 7 * (1 + 0.4 * rows), length=5000)
    assert costs.unit(5000) == 7.0
    assert costs.at(5000)[8] == pytest.approx(4.2, rel=0.02)
    assert costs.at(100)[8] == pytest.approx(1.8, rel=0.02)


def profile():
    passes = [
        Pass(size, context, seconds * (1 + node * size))
        for context, seconds, node in ((32, 1.0, 0.1), (512, 2.0, 0.3))
        for size in (0, 1, 4, 16)
    ]
    return Profile("made-up", "cpu", "float32", passes)


def test_costs_start_from_the_measured_sizes_of_a_profile():
    costs = by_device()
    costs.recall(profile().summary())
    assert costs.at(40)[4] == pytest.approx(1.4)
    assert costs.at(600)[16] == pytest.approx(1 + 0.3 * 16)
    assert costs.reach(40) == 0  # the machine's pace is not known yet
    costs.learn(0, 40, 3.0)
    assert (costs.reach(40), costs.unit(40)) == (32, 3.0)
    fed(costs, lambda rows: 1 + 0.5 * rows, length=40, sizes=(1, 4, 16))
    assert costs.at(40)[4] == pytest.approx(3.0, rel=0.02)


@pytest.mark.parametrize(("device", "free"), FREE_TOKENS.items())
def test_costs_start_from_a_count_of_tokens(device, free):
    assert by_device(device).at(100)[32] == pytest.approx((33 + free) / (1 + free))


def test_larger_passes_are_tried_once_smaller_ones_were_timed():
    costs = by_device()
    assert costs.reach(100) == 0  # a pass without a draft comes first
    for rows, reach in ((0, 1), (1, 2), (2, 4), (4, 8)):
        costs.learn(rows, 100, 1.0)
        assert costs.reach(100) == reach


def test_a_size_that_never_ran_may_cost_what_the_next_smaller_one_does():
    costs = by_device()
    costs.learn(0, 100, 1.0)
    costs.learn(4, 100, 2.0)
    assert costs.below(16, 100) == 4
    assert costs.at(100)[4] < costs.at(100)[16]
    ages = dict(costs.untried(100))
    assert (ages[0], ages[4], ages[16]) == (1, 0, -1)
