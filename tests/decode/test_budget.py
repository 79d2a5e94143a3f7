"""Calibration, and drafts cut to what pays for its time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from calibrated import profile
from scripted import NoisyOracle, tree_of

from ngramkit.decode.budget import SPARE, AutoBudget
from ngramkit.decode.generate import generate
from ngramkit.decode.profile import profile_path
from ngramkit.decode.runner import Runner
from ngramkit.decode.task import Task
from ngramkit.drafters.base import DraftTree
from ngramkit.drafters.none import NoDraft
from ngramkit.errors import UsageError


def chain(scores):
    tree = tree_of([(5 + i, i - 1) for i in range(len(scores))])
    return DraftTree(tree.token_ids, tree.parents, np.array(scores, np.float32), tree.source)


def test_dear_nodes_are_left_out_and_free_ones_kept():
    tree = chain([0.9, 0.5, 0.2, 0.05])
    kept = {node: len(AutoBudget(profile(node), NoDraft()).cut(tree, 10)) for node in (0, 0.2, 9)}
    # The first rate is 1.5 tokens a second: a node of 0.2 s must have a chance of 0.3.
    assert kept == {0: 4, 0.2: 2, 9: 0}


def test_a_cut_tree_is_a_tree_of_the_same_paths():
    pairs = [(1, -1), (2, -1), (3, 0), (4, 1), (5, 3)]
    tree = tree_of(pairs)
    scores = np.array([0.05, 0.9, 0.01, 0.8, 0.7], np.float32)
    tree = DraftTree(tree.token_ids, tree.parents, scores, np.arange(5, dtype=np.uint8))
    cut = AutoBudget(profile(0.2), NoDraft()).cut(tree, 10)
    cut.check()
    assert cut.token_ids.tolist() == [2, 4, 5]
    assert cut.parents.tolist() == [-1, 0, 1]
    assert cut.scores.tolist() == scores[[1, 3, 4]].tolist()
    assert cut.source.tolist() == [1, 3, 4]


def learnt(auto, tree, written, passes=40):
    """The sizes of cuts of the same tree, pass by pass."""
    sizes = []
    for _ in range(passes):
        sizes.append(len(auto.cut(tree, 10)))
        auto.learn(written)
    return sizes


def test_scores_that_do_not_come_true_are_believed_less():
    drafter, tree = NoDraft(), chain([0.9] * 6)
    sizes = learnt(AutoBudget(profile(0.2), drafter), tree, [99])
    assert sizes[0] == 6
    assert max(sizes[-5:]) == 0
    # The next request of the same drafter knows; another drafter's does not.
    assert len(AutoBudget(profile(0.2), drafter).cut(tree, 10)) == 0
    assert len(AutoBudget(profile(0.2), NoDraft()).cut(tree, 10)) == 6


def test_what_was_left_out_is_judged_too():
    """Scores far too low: nothing is verified, and yet it is learnt that all would have held."""
    tree = chain([0.02] * 6)
    sizes = learnt(AutoBudget(profile(0.02), NoDraft()), tree, tree.token_ids.tolist())
    assert sizes[0] == 0
    assert min(sizes[-5:]) == 6


def test_shares_of_matches_are_no_chances():
    drafter = NoDraft()
    drafter.scores_are_shares = True
    found = [
        len(AutoBudget(profile(0.2), each).cut(chain([1] * 6), 9)) for each in (drafter, NoDraft())
    ]
    assert found == [1, 6]


def test_costs_are_those_of_the_context():
    auto = AutoBudget(profile(0.1, per_context=0.1), NoDraft())
    assert auto.costs_at(50)[4] == pytest.approx(1.4 + 5)
    assert auto.costs_at(0)[16] == pytest.approx(2.6)
    assert auto.costs_at(200)[0] == pytest.approx(1 + 20)  # beyond what was measured, as it grew


def test_a_drafter_is_asked_for_little_more_than_was_kept():
    auto = AutoBudget(profile(9), NoDraft())
    assert auto.ask(64) == 16
    for _ in range(8):
        auto.cut(chain([0.5] * 8), 10)
    assert auto.ask(64) == SPARE
    assert auto.ask(2) == 2


@pytest.mark.parametrize("node", [0.0, 0.02, 0.3, 5.0])
def test_what_is_written_does_not_change(model, node):
    prompt = np.array([3, 14, 15, 92, 65], np.int32)
    fixed = Task(model, Runner.of(model.model, budget=6), 20)
    costs = profile(node)
    auto = replace(fixed, runner=replace(fixed.runner, budget=costs.sizes[-1], profile=costs))
    plain = fixed.complete(prompt, NoDraft())
    for seed in range(4):
        drafter = NoisyOracle(plain.token_ids, 4096, seed)
        drafter.draft = scored_draft(drafter.draft)
        run = auto.complete(prompt, drafter)
        assert run.token_ids.tolist() == plain.token_ids.tolist()
        assert (run.tokens_per_step > 1.5) == (node < 1)


def scored_draft(draft):
    def scored(budget):
        tree = draft(budget)
        depth_falls = 0.9 ** np.arange(1, len(tree) + 1)
        return DraftTree(tree.token_ids, tree.parents, depth_falls.astype(np.float32), tree.source)

    return scored


def test_generate_takes_what_pays_for_its_time(model):
    ids = torch.tensor([[3, 14, 15, 92, 65]])
    with pytest.raises(UsageError, match="was not calibrated"):
        generate(model, ids, drafter=NoDraft(), budget="auto", max_new_tokens=20)
    plain = generate(model, ids, drafter=NoDraft(), max_new_tokens=20)
    oracle = NoisyOracle(plain[0, 5:].tolist(), 4096)
    oracle.draft = noted(scored_draft(oracle.draft), asked := [])
    for node, verified in ((9.0, False), (0.0, True)):
        profile(node).save(profile_path(model))
        done = generate(model, ids, drafter=oracle, budget="auto", max_new_tokens=20)
        assert done.tolist() == plain.tolist()
        assert (len(asked) < 15) == verified  # in how many passes
        asked.clear()


def noted(draft, asked):
    return lambda budget: asked.append(budget) or draft(budget)
