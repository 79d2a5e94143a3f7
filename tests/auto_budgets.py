"""AutoBudgets of a made-up machine."""

from __future__ import annotations

from ngramkit.budget.auto import AutoBudget
from ngramkit.budget.costs import PassCosts
from ngramkit.budget.model_cost import FREE_TOKENS, ModelCost
from ngramkit.budget.profile import Pass, Profile
from ngramkit.drafters.registry import NoDraft


def auto_of(node, drafter=None, **options):
    """A node costs so much of a pass, which is known."""
    passes = [Pass(size, 10, 1 + node * size) for size in (0, 1, 2, 4, 8, 16)]
    costs = PassCosts(ModelCost(FREE_TOKENS["cpu"]).curve(16))
    costs.recall(Profile("made-up", "cpu", "float32", passes).summary())
    costs.learn(0, 10, 1.0)
    return AutoBudget(costs, drafter or NoDraft(), **options)
