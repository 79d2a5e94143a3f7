"""The end of chains: a token's cost against passes that last as supposed, and the learnt threshold
against a naive twin and in made-up engines."""

from __future__ import annotations

import numpy as np
import pytest

from ngramkit.budget.batch import BatchBudget
from ngramkit.budget.costs import TokenCost
from ngramkit.drafters.base import DraftTree
from ngramkit.drafters.registry import NoDraft
from ngramkit.engines.batch import BatchDrafter
from ngramkit.engines.config import DraftConfig
from ngramkit.engines.drafter_requests import DrafterSource

LENGTH = 16


def seen(rows, verified, written, passes=400):
    cost = TokenCost()
    for _ in range(passes):
        cost.observe(rows, verified * rows, written * rows)
    return cost, cost.price(rows)


@pytest.mark.parametrize(("rows", "verified", "written"), [(1, 9, 2), (8, 5, 1.9), (64, 2, 1.5)])
def test_a_token_that_costs_what_it_brings_changes_no_rate(rows, verified, written):
    cost, price = seen(rows, verified, written)

    def rate(more, chance):
        return (rows * written + more * chance) / (cost.free + rows * verified + more)

    assert rate(0.01, price) == pytest.approx(rate(0, 0), rel=1e-4)
    assert rate(0.01, 1.1 * price) > rate(0, 0) > rate(0.01, 0.9 * price)


def test_a_token_is_nearly_free_alone_and_never_where_many_run():
    assert seen(1, 9, 2)[1] < 0.02
    assert seen(8, 5, 2)[1] < seen(64, 5, 2)[1]
    assert seen(100_000, 1, 1)[1] == pytest.approx(1, rel=0.01)


class Falling(NoDraft):
    """A drafter of zeros, of which each is right with a probability of 0.8 after right ones."""

    def draft(self, budget):
        n = min(budget, LENGTH)
        return DraftTree(
            np.zeros(n, np.int32), np.arange(-1, n - 1, dtype=np.int32),
            (0.8 ** np.arange(1, n + 1)).astype(np.float32), np.zeros(n, np.uint8),
        )  # fmt: skip


def served(rows, length, steps=200, seed=0):
    """Return the tokens drafted and written in each step and row, on average."""
    random = np.random.default_rng(seed)
    drafter = BatchDrafter(DrafterSource(Falling, 9), DraftConfig(threads=1), cost=TokenCost())
    texts = [[1, row] for row in range(1, rows + 1)]
    for _ in range(steps):
        chains = drafter.chain_batch([np.array(t, np.int32) for t in texts], [length] * rows)
        for text, chain in zip(texts, chains, strict=True):
            right = int(random.geometric(0.2)) - 1
            text += [0] * min(right, len(chain)) + [1]
    counts = drafter.statistics
    return counts.draft_tokens / counts.rows, counts.accepted_tokens / counts.rows


def test_chains_are_long_for_few_requests_and_short_for_many():
    (few, right), (many, _) = served(1, LENGTH), served(96, LENGTH, steps=40)
    assert few > 10
    assert many < 4
    assert right > served(1, LENGTH // 2)[1]


def test_ranks_decide_alike():
    assert served(3, LENGTH) == served(3, LENGTH)


@pytest.mark.parametrize("truth", [0.5, 1.0, 1.5])
def test_scores_that_are_too_high_or_too_low_are_corrected(truth):
    random, budget = np.random.default_rng(1), BatchBudget(0.15)
    assert budget.step(1) == pytest.approx(0.15)  # before anything was observed
    found = []
    for _ in range(3000):
        score = float(random.uniform(0.02, 0.6))
        right = int(random.random() < truth * score)
        budget.observe([np.array([score], np.float32)], [right])
        found.append(budget.step(1))
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
    assert drafter.budget.step(1) == 0.2
