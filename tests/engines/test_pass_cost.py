"""What a drafted token costs by the number of requests, against passes that last as supposed."""

from __future__ import annotations

import numpy as np
import pytest

from ngramkit.drafters.base import DraftTree
from ngramkit.drafters.registry import NoDraft
from ngramkit.engines.batch import BatchDrafter
from ngramkit.engines.pass_cost import FREE, PassCost
from ngramkit.engines.workspace import DrafterSource

LENGTH = 16


def seen(rows, verified, written, passes=400):
    cost = PassCost()
    for _ in range(passes):
        cost.observe(rows, verified * rows, written * rows)
    return cost.of_token(rows)


@pytest.mark.parametrize(("rows", "verified", "written"), [(1, 9, 2), (8, 5, 1.9), (64, 2, 1.5)])
def test_a_token_that_costs_what_it_brings_changes_no_rate(rows, verified, written):
    cost = seen(rows, verified, written)

    def rate(more, chance):
        return (rows * written + more * chance) / (FREE + rows * verified + more)

    assert rate(0.01, cost) == pytest.approx(rate(0, 0), rel=1e-4)
    assert rate(0.01, 1.1 * cost) > rate(0, 0) > rate(0.01, 0.9 * cost)


def test_a_token_is_nearly_free_alone_and_never_where_many_run():
    assert seen(1, 9, 2) < 0.02
    assert seen(8, 5, 2) < seen(64, 5, 2)
    assert seen(100_000, 1, 1) == pytest.approx(1, rel=0.01)


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
    drafter = BatchDrafter(DrafterSource(Falling, 9), threads=1, learn=True, cost=PassCost())
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
