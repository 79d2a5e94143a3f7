"""How much of each draft is verified: as much as pays for its time.

A pass earns tokens and costs seconds, and a second is worth what the run makes of it on average
(the rate). So the next likeliest node is worth its place while its chance exceeds rate times the
seconds it adds: with that rule the whole run is as fast as its drafts allow, which keeping the best
ratio pass by pass is not. Scores are a drafter's own idea of its chances, so they are corrected by
what came of such scores before, across requests of the same drafter. What the rule left out is
judged by the text as well, so nothing is lost by having been left out once.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ngramkit.decode.profile import Profile
from ngramkit.drafters.base import Drafter, DraftTree
from ngramkit.kernels.budget import LEVELS, RUNS, chances, cut, recorded

Costs = npt.NDArray[np.float64]

FADE = 0.99  # of what is known, per pass
MEMORY = 0.98  # of the rate, per pass
FIRST_RATE = 1.5  # tokens per pass without a draft, before anything is known
SPARE = 8  # nodes asked for beyond one and a half times what was last kept
CALIBRATED = np.ones(RUNS, np.float32)
# A share of the matches is no chance: of a single match it is 1. What such shares were worth on
# Vicuna 7B's answers to MT-Bench, by the run before them, for continuations in a datastore of 10
# million tokens of chat and for those in the context alike.
SHARES_OF_MATCHES = np.array([0.4, 0.5, 0.6, 0.65, 0.7, 0.8], np.float32)

_RECORDS: WeakKeyDictionary[Drafter, npt.NDArray[np.float32]] = WeakKeyDictionary()


class AutoBudget:
    """One request. `ask` a drafter for so many nodes, `cut` its tree, `learn` what came of it."""

    def __init__(self, profile: Profile, drafter: Drafter) -> None:
        self._contexts = profile.contexts
        sizes = profile.sizes
        self.most = sizes[-1]
        nodes = np.arange(self.most + 1)
        self._table: list[Costs] = [np.interp(nodes, sizes, row) for row in profile.table()]
        shares = bool(getattr(drafter, "scores_are_shares", False))
        self._trust = SHARES_OF_MATCHES if shares else CALIBRATED
        self._record = _record_of(drafter)
        self._run = 0  # tokens foreseen in a row
        self._tokens, self._seconds = FIRST_RATE, float(self._table[0][0])
        self._whole, self._cost = DraftTree.empty(), 0.0  # of the pass that is under way
        self._ask = self.most

    def ask(self, budget: int) -> int:
        """How many nodes a drafter need not exceed."""
        return min(budget, self._ask)

    def cut(self, tree: DraftTree, length: int, riding: int | None = None) -> DraftTree:
        """The part of the tree that is worth verifying behind `length` tokens.

        `riding`: a chain's pass repeats so many tokens in front of it; with the draft they are no
        more than `most`.
        """
        self._whole, seconds = tree, self.costs_at(length)[riding or 0 :]
        if len(tree) == 0:
            self._cost = float(seconds[0])
            return tree
        costs = seconds if riding is None else self._with_repeats(seconds, tree, length, riding)
        rate = self._tokens / self._seconds
        kept, parents = cut(
            tree.parents, tree.scores, self._record, self._trust, self._run, costs, rate
        )
        self._cost = float(seconds[len(kept)])
        self._ask = max(len(kept) * 3 // 2 + SPARE, self._ask // 2)
        if len(kept) == len(tree):
            return tree
        return DraftTree(tree.token_ids[kept], parents, tree.scores[kept], tree.source[kept])

    def _with_repeats(self, seconds: Costs, tree: DraftTree, length: int, riding: int) -> Costs:
        """What drafting 0, 1, ... tokens of a chain costs, float64[n + 1]: this pass's seconds, and
        by the chance that the draft does not come true to its end, those of repeating what it
        brought in the next."""
        chance = chances(tree.parents, tree.scores, self._record, self._trust, self._run)
        alone = self.costs_at(length)
        repeated = np.minimum(riding + 1 + np.cumsum(chance), self.most)
        found = seconds[: len(tree) + 1].copy()
        found[1:] += (1 - chance) * (np.interp(repeated, np.arange(len(alone)), alone) - alone[0])
        return found

    def learn(self, written: Sequence[int]) -> None:
        """`written` is what the pass brought: what was accepted, and the model's own token."""
        self._tokens = MEMORY * self._tokens + len(written)
        self._seconds = MEMORY * self._seconds + self._cost
        tree, tokens = self._whole, np.array(written, np.int32)
        self._run = recorded(
            tree.token_ids, tree.parents, tree.scores, tokens, self._record, FADE, self._run
        )

    def costs_at(self, length: int) -> Costs:
        """Seconds of a pass with 0, 1, ... nodes, float64[most + 1], between measured contexts."""
        contexts = self._contexts
        if length <= contexts[0] or len(contexts) == 1:
            return self._table[0]
        after = next((i for i, c in enumerate(contexts) if c >= length), len(contexts) - 1)
        share = (length - contexts[after - 1]) / (contexts[after] - contexts[after - 1])
        low, high = self._table[after - 1], self._table[after]
        costs: Costs = low + share * (high - low)
        return costs


def _record_of(drafter: Drafter) -> npt.NDArray[np.float32]:
    """What is known of the drafter's scores; of one that cannot be kept apart, nothing."""
    empty = np.zeros((LEVELS, RUNS, 2), np.float32)
    try:
        return _RECORDS.setdefault(drafter, empty)
    except TypeError:  # not hashable, or without weak references
        return empty
