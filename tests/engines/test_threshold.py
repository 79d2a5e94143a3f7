"""The learnt end of chains: against a naive twin, and in made-up engines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from twins import threshold as twin

from ngramkit.drafters.base import DraftTree
from ngramkit.drafters.registry import NoDraft
from ngramkit.engines.batch import BatchDrafter
from ngramkit.engines.config import DraftConfig
from ngramkit.engines.threshold import PROBE, ScoreThreshold
from ngramkit.engines.workspace import DrafterSource

score = st.integers(1, 999).map(lambda n: n / 1000)
chain = st.tuples(st.lists(score, max_size=6), st.integers(0, 6))
steps = st.lists(st.lists(chain, max_size=4), max_size=30)


@settings(max_examples=150, deadline=None)
@given(steps, st.sampled_from([0.02, 0.15, 0.4, 0.6]))
def test_the_threshold_is_its_twins(made, cost):
    threshold, observed = ScoreThreshold(), []
    for step in made:
        sorted_scores = [np.array(sorted(scores, reverse=True), np.float32) for scores, _ in step]
        accepted = [min(right, len(scores)) for scores, right in step]
        threshold.observe(sorted_scores, accepted)
        pairs = zip(sorted_scores, accepted, strict=True)
        observed.append([(scores.tolist(), right) for scores, right in pairs if len(scores)])
    assert threshold.learnt(cost) == pytest.approx(twin.learnt(observed, cost), abs=2e-4)


def test_without_observations_scores_are_believed():
    assert ScoreThreshold().learnt(0.3) == pytest.approx(0.3)


@pytest.mark.parametrize(("truth", "factor"), [(0.5, 2.0), (1.5, 2 / 3)])
def test_scores_that_are_too_high_or_too_low_are_corrected(truth, factor):
    random, threshold = np.random.default_rng(1), ScoreThreshold()
    for _ in range(3000):
        score = float(random.uniform(0.02, 0.6))
        right = int(random.random() < truth * score)
        threshold.observe([np.array([score], np.float32)], [right])
    assert threshold.learnt(0.15) == pytest.approx(0.15 * factor, rel=0.3)


class Half(NoDraft):
    """A drafter of 0 0 0 with scores 0.5, 0.4, 0.3, whatever comes."""

    def draft(self, budget):
        n = min(budget, 3)
        return DraftTree(
            np.zeros(n, np.int32), np.arange(-1, n - 1, dtype=np.int32),
            np.array([0.5, 0.4, 0.3], np.float32)[:n], np.zeros(n, np.uint8),
        )  # fmt: skip


def served(right, steps=160, **options):
    """Return the lengths of chains in an engine that accepts the first `right` tokens of each."""
    drafter = BatchDrafter(DrafterSource(Half, 9), threads=1, pause=False, **options)
    tokens, lengths = [1], []
    for _ in range(steps):
        (drafted,) = drafter.chain_batch([np.array(tokens, np.int32)], [3])
        lengths.append(len(drafted))
        tokens = [*tokens, *[0] * min(right, len(drafted)), 1]
    return lengths


def test_chains_become_as_long_as_they_are_accepted():
    assert served(0, learn=False, cost=0.2) == [3] * 160
    never = served(0, learn=True, cost=0.2)
    assert never[:3] == [3] * 3
    assert set(never[-PROBE:]) == {0, 3}  # not drafted, but for a probe
    assert sum(length > 0 for length in never[-PROBE:]) == 1
    always = served(3, learn=True, cost=0.45)
    assert always[:2] == [1] * 2  # a score of 0.4 is below the cost of 0.45
    assert always[-8:-1] == [3] * 7  # but more is accepted
    assert served(3, learn=False, cost=0.45) == [1] * 160


def test_two_ranks_decide_alike():
    assert served(1, learn=True, cost=0.2) == served(1, learn=True, cost=0.2)


def test_min_probability_turns_learning_off():
    learning = BatchDrafter.open(DraftConfig("context", vocabulary=9), cost=0.2)
    fixed = BatchDrafter.open(DraftConfig("context", vocabulary=9, min_probability=0.2))
    assert learning.threshold is not None
    assert fixed.threshold is None
