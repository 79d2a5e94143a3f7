"""AutoBudgets of a made-up machine."""

from __future__ import annotations

from ngramkit.budget.costs import TRUSTED, PassCosts, Prior
from ngramkit.budget.profile import Pass, Profile
from ngramkit.budget.rule import AutoBudget
from ngramkit.drafters.registry import NoDraft


def auto_of(node, drafter=None, **options):
    """A node costs so much of a pass, which is known."""
    passes = [Pass(size, 0, 1 + node * size) for size in (0, 1, 4, 16)]
    profile = Profile("made-up", "cpu", "float32", passes)
    costs = PassCosts(Prior.by_profile(profile, 17))
    costs.learn(0, 10, 1.0)
    for _ in range(TRUSTED):
        costs.learn(1, 10, 1 + node)
    return AutoBudget(costs, drafter or NoDraft(), **options)
