"""Where chains are cut, learnt: against naive twins, and what is known of made-up engines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twins import cut as twin

from ngramkit.drafters.base import DraftTree
from ngramkit.drafters.registry import NoDraft
from ngramkit.engines.batch import BatchDrafter
from ngramkit.engines.config import DraftConfig
from ngramkit.engines.cut import PROBE, Cut
from ngramkit.engines.workspace import DrafterSource


def chain(scores):
    n = len(scores)
    return DraftTree(
        np.arange(n, dtype=np.int32), np.arange(-1, n - 1, dtype=np.int32),
        np.array(scores, np.float32), np.zeros(n, np.uint8),
    )  # fmt: skip


score = st.integers(1, 999).map(lambda n: n / 1000)
chains = st.lists(st.tuples(st.lists(score, max_size=6), st.integers(0, 6)), max_size=60)


@settings(max_examples=150, deadline=None)
@given(chains, st.sampled_from([0.02, 0.15, 0.4, 0.6]))
def test_the_cut_is_its_twins(made, least):
    cut, told = Cut(), []
    for scores, accepted in made:
        scores, accepted = sorted(scores, reverse=True), min(accepted, len(scores))
        cut.judge(chain(scores), accepted)
        told += [([float(np.float32(s)) for s in scores], accepted)] if scores else []
    assert cut.learnt(least) == pytest.approx(twin.learnt(told, least), abs=2e-4)


def test_without_evidence_scores_are_believed():
    assert Cut().learnt(0.3) == pytest.approx(0.3)


@pytest.mark.parametrize(("truth", "factor"), [(0.5, 2.0), (1.5, 2 / 3)])
def test_scores_that_promise_too_much_or_too_little_are_seen_through(truth, factor):
    random, cut = np.random.default_rng(1), Cut()
    for _ in range(3000):
        told = float(random.uniform(0.02, 0.6))
        cut.judge(chain([told]), int(random.random() < truth * told))
    assert cut.learnt(0.15) == pytest.approx(0.15 * factor, rel=0.3)


class Half(NoDraft):
    """Drafts 0 0 0 and says 0.5, 0.4, 0.3, whatever comes."""

    def draft(self, budget):
        n = min(budget, 3)
        return DraftTree(
            np.zeros(n, np.int32), np.arange(-1, n - 1, dtype=np.int32),
            np.array([0.5, 0.4, 0.3], np.float32)[:n], np.zeros(n, np.uint8),
        )  # fmt: skip


def served(right, steps=160, **options):
    """Lengths of chains that an engine is given which accepts the first `right` tokens of each."""
    drafter = BatchDrafter(DrafterSource(Half, 9), threads=1, pause=False, **options)
    tokens, lengths = [1], []
    for _ in range(steps):
        (drafted,) = drafter.chain_batch([np.array(tokens, np.int32)], [3])
        lengths.append(len(drafted))
        tokens = [*tokens, *[0] * min(right, len(drafted)), 1]
    return lengths


def test_chains_become_as_long_as_they_come_true():
    assert served(0, learn=False, least=0.2) == [3] * 160
    never = served(0, learn=True, least=0.2)
    assert never[:3] == [3] * 3
    assert set(never[-PROBE:]) == {0, 3}  # not drafted, but for a probe
    assert sum(length > 0 for length in never[-PROBE:]) == 1
    always = served(3, learn=True, least=0.45)
    assert always[:2] == [1] * 2  # 0.4 promises less than it costs
    assert always[-8:-1] == [3] * 7  # and keeps more
    assert served(3, learn=False, least=0.45) == [1] * 160


def test_two_ranks_cut_alike():
    assert served(1, learn=True, least=0.2) == served(1, learn=True, least=0.2)


def test_the_configuration_says_which():
    learning = BatchDrafter.open(DraftConfig("context", vocabulary=9), least=0.2)
    fixed = BatchDrafter.open(DraftConfig("context", vocabulary=9, min_probability=0.2))
    assert learning.cut is not None
    assert fixed.cut is None
