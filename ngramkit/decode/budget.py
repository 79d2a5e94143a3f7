"""How much of each draft is verified: as much as pays for its time.

A pass earns tokens and costs seconds, and a second is worth what the run makes of it on average
(the rate). So the next likeliest node is worth its place while its chance exceeds rate times the
seconds it adds: with that rule the whole run is as fast as its drafts allow, which keeping the best
ratio pass by pass is not. Scores are a drafter's own idea of its chances, so they are corrected by
what came of such scores before, across requests of the same drafter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ngramkit.drafters.base import Drafter, DraftTree
from ngramkit.kernels.worth import DEPTHS, LEVELS, chances, recorded, subtree, worthwhile

if TYPE_CHECKING:
    from ngramkit.decode.profile import Profile

FADE = np.float32(0.99)  # of what is known, per pass
MEMORY = 0.98  # of the rate, per pass
FIRST_RATE = 1.5  # tokens per pass without a draft, before anything is known
BELIEF = 1.5  # in scores as they are, see kernels.worth.chances; a drafter's class may say another
SPARE = 4  # nodes asked for beyond twice what was last kept

_RECORDS: WeakKeyDictionary[Drafter, npt.NDArray[np.float32]] = WeakKeyDictionary()


class AutoBudget:
    """One request. `ask` a drafter for so many nodes, `cut` its tree, `learn` what came of it."""

    def __init__(self, profile: Profile, drafter: Drafter) -> None:
        self._contexts = np.array(profile.contexts, np.float64)
        sizes = profile.sizes
        self.most = sizes[-1]
        table = profile.table()
        self._table = np.array([np.interp(np.arange(self.most + 1), sizes, row) for row in table])
        self._belief = np.float32(getattr(drafter, "belief", BELIEF))
        self._record = _record_of(drafter)
        self._tokens, self._seconds = FIRST_RATE, float(self._table[0, 0])
        self._last = self._table[0]
        self._ask = self.most

    def ask(self, budget: int) -> int:
        """How many nodes a drafter need not exceed."""
        return min(budget, self._ask)

    def cut(self, tree: DraftTree, length: int) -> DraftTree:
        """The part of the tree that is worth verifying behind `length` tokens."""
        self._last = self._costs(length)
        if len(tree) == 0:
            return tree
        chance = chances(tree.parents, tree.scores, self._record, self._belief)
        kept = worthwhile(tree.parents, chance, self._last, self._tokens / self._seconds)
        self._ask = max(2 * len(kept) + SPARE, self._ask // 2)
        if len(kept) == len(tree):
            return tree
        parents = subtree(tree.parents, kept)
        return DraftTree(tree.token_ids[kept], parents, tree.scores[kept], tree.source[kept])

    def learn(self, tree: DraftTree, nodes: Sequence[int]) -> None:
        """Of the verified tree, `nodes` were accepted."""
        self._tokens = MEMORY * self._tokens + len(nodes) + 1
        self._seconds = MEMORY * self._seconds + float(self._last[len(tree)])
        accepted = np.array(nodes, np.int64)
        recorded(tree.parents, tree.scores, accepted, self._record, FADE)

    def _costs(self, length: int) -> npt.NDArray[np.float64]:
        """Seconds of a pass with 0, 1, ... nodes, float64[most + 1], between measured contexts."""
        contexts = self._contexts
        if length <= contexts[0] or len(contexts) == 1:
            first: npt.NDArray[np.float64] = self._table[0]
            return first
        after = min(int(np.searchsorted(contexts, length)), len(contexts) - 1)
        share = (length - contexts[after - 1]) / (contexts[after] - contexts[after - 1])
        low, high = self._table[after - 1], self._table[after]
        costs: npt.NDArray[np.float64] = low + share * (high - low)
        return costs


def _record_of(drafter: Drafter) -> npt.NDArray[np.float32]:
    """What is known of the drafter's scores; of one that cannot be kept apart, nothing."""
    empty = np.zeros((LEVELS, DEPTHS, 2), np.float32)
    try:
        return _RECORDS.setdefault(drafter, empty)
    except TypeError:  # not hashable, or without weak references
        return empty
