"""The end of chains: a token's cost against passes that last as supposed, and the learnt threshold
against a naive twin and in made-up engines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from benchmarks.load import served
from ngramkit.budget.batch import BatchBudget
from ngramkit.budget.model_cost import ModelCost
from ngramkit.budget.model_size import ModelSize
from ngramkit.budget.pass_times import MeasuredTimes
from ngramkit.budget.profile import Pass, Profile
from ngramkit.drafters.base import DraftTree
from ngramkit.drafters.registry import NoDraft
from ngramkit.engines.batch import BatchDrafter
from ngramkit.engines.config import DraftConfig
from ngramkit.engines.drafter_requests import DrafterSource

LENGTH = 16


DENSE = ModelCost()
# 64 and 128 experts, of which a token uses 6 and 8, with nine tenths of the weights.
WIDE = ModelCost(128, ModelSize(dense=1e8, expert=7.5e6, experts=128, chosen=8))
MIXED = ModelCost(128, ModelSize(dense=1e8, expert=1.5e7, experts=64, chosen=6))
STEPS = MeasuredTimes(
    Profile("", "", "", [Pass(n, 0, t) for n, t in ((0, 1), (3, 2), (7, 2.1), (40, 9))]), ""
)


def best_by_trial(times, requests, scores):
    """The naive twin: every number of the likeliest tokens is tried."""
    ranked = sorted((float(score) for chain in scores for score in chain), reverse=True)
    tokens = np.arange(requests, requests + len(ranked) + 1, dtype=np.float64)
    spent = times.times(tokens, requests, 0.0)
    return max((requests + sum(ranked[:n])) / spent[n] for n in range(len(ranked) + 1)), spent


@settings(max_examples=30)
@given(
    st.lists(st.lists(st.floats(0.01, 0.999), max_size=8), min_size=1, max_size=12),
    st.sampled_from([DENSE, MIXED, ModelCost(4), STEPS]),
)
@example([[], [0.5] * 3, [0.5] * 3], STEPS)  # equal scores, of which not all are worth a pass
def test_no_other_number_of_tokens_writes_more_in_the_time(factors, times):
    scores = [np.cumprod(chain).astype(np.float32) for chain in factors]
    budget = BatchBudget(times, corrects=False)
    least = budget.least_score_to_draft([8] * len(scores))
    kept = budget.cut_chains(scores)
    best, spent = best_by_trial(times, len(scores), scores)
    written = len(scores) + sum(float(c[:n].sum()) for c, n in zip(scores, kept, strict=True))
    assert written / spent[sum(kept)] == pytest.approx(best, rel=1e-5)
    # A token below the threshold of the kernel is never among them.
    assert all(c[n - 1] >= least * (1 - 1e-5) for c, n in zip(scores, kept, strict=True) if n)


def test_a_token_is_nearly_free_alone_and_never_where_many_run():
    assert BatchBudget(DENSE).least_score_to_draft([8]) < 0.01
    few = BatchBudget(DENSE).least_score_to_draft([8] * 8)
    assert few < BatchBudget(DENSE).least_score_to_draft([8] * 64)
    assert BatchBudget(DENSE).least_score_to_draft([1] * 100_000) == pytest.approx(1, rel=0.01)


def test_experts_are_dear_for_few_rows_then_cheaper_then_dear_again():
    def drafted(rows):
        budget = BatchBudget(MIXED, corrects=False)
        budget.least_score_to_draft([8] * rows)
        return sum(budget.cut_chains([(0.6 ** np.arange(1, 9)).astype(np.float32)] * rows)) / rows

    assert drafted(1) <= 1
    assert drafted(16) >= 5
    assert drafted(512) <= 1


def test_chains_are_long_for_few_requests_and_short_for_many():
    few = served(1, LENGTH, DENSE)
    assert few.drafted > 10
    assert served(96, LENGTH, DENSE, steps=40).drafted < 4
    assert few.accepted > served(1, LENGTH // 2, DENSE).accepted


@pytest.mark.parametrize("cost", [DENSE, MIXED, WIDE])
@pytest.mark.parametrize("right", [0.1, 0.8])  # scores of 0.8 are too high, or right
@pytest.mark.parametrize(("rows", "steps"), [(1, 240), (16, 60), (128, 60), (256, 60)])
def test_drafts_never_make_a_server_slower(cost, right, rows, steps):
    assert served(rows, LENGTH, cost, steps=steps, right=right).time < 1.02


def test_ranks_decide_alike():
    assert served(3, LENGTH, DENSE) == served(3, LENGTH, DENSE)


@pytest.mark.parametrize("truth", [0.5, 1.0, 1.5])
def test_scores_that_are_too_high_or_too_low_are_corrected(truth):
    random, budget = np.random.default_rng(1), BatchBudget(0.15)
    assert budget.least_score_to_draft([1]) == pytest.approx(0.15)  # before anything was observed
    found = []
    for _ in range(3000):
        score = float(random.uniform(0.02, 0.6))
        right = int(random.random() < truth * score)
        budget.observe([np.array([score], np.float32)], [right])
        found.append(budget.least_score_to_draft([1]))
    assert np.median(found[300:]) == pytest.approx(0.15 / truth, rel=0.3)


class Half(NoDraft):
    """A drafter of 0 0 0 with scores 0.5, 0.4, 0.3, whatever comes."""

    def draft(self, budget):
        n = min(budget, 3)
        return DraftTree(
            np.zeros(n, np.int32), np.arange(-1, n - 1, dtype=np.int32),
            np.array([0.5, 0.4, 0.3], np.float32)[:n], np.zeros(n, np.uint8),
        )  # fmt: skip


def lengths(right, cost, *, learn, steps=160):
    """Return the lengths of chains in an engine that accepts the first `right` tokens of each."""
    config = DraftConfig(threads=1, pause=False, min_probability=None if learn else cost)
    drafter = BatchDrafter(DrafterSource(Half, 9), config, cost=cost)
    tokens, drafted = [1], []
    for _ in range(steps):
        (chain,) = drafter.chain_batch([np.array(tokens, np.int32)], [3])
        drafted.append(len(chain))
        tokens = [*tokens, *[0] * min(right, len(chain)), 1]
    return drafted


def test_chains_become_as_long_as_they_are_accepted():
    assert lengths(0, 0.2, learn=False) == [3] * 160
    never = lengths(0, 0.2, learn=True)
    assert never[:2] == [3] * 2
    assert 0 < sum(length > 0 for length in never[-64:]) < 16  # tried again now and then
    always = lengths(3, 0.45, learn=True)
    assert always[:2] == [1] * 2  # a score of 0.4 is below the price of 0.45
    assert always[-8:] == [3] * 8  # but more is accepted
    assert lengths(3, 0.45, learn=False) == [1] * 160


def test_min_probability_turns_learning_off():
    drafter = BatchDrafter.open(DraftConfig("context", vocabulary=9, min_probability=0.2), cost=0.5)
    drafter.budget.observe([np.array([0.9], np.float32)] * 50, [0] * 50)
    assert drafter.budget.least_score_to_draft([1]) == 0.2
