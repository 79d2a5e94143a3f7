"""How much of each draft is verified: as much as pays for its time.

A pass earns tokens and costs time, and time is worth what the run makes of it on average (the
rate), but no less than passes without drafts would. So the next likeliest node is worth its place
while its chance exceeds rate times the time it adds: with that rule the whole run is as fast as its
drafts allow, which keeping the best ratio pass by pass is not. Scores are a drafter's own idea of
its chances, so they are corrected by what came of such scores before, across requests of the same
drafter. What the rule left out is judged by the text as well, so nothing is lost by having been
left out once. Time is counted in passes without a draft, see `pass_costs`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ngramkit.budget.asking import Asking
from ngramkit.budget.pass_costs import PassCosts
from ngramkit.budget.priors import MOST, Costs
from ngramkit.drafters.base import DraftTree
from ngramkit.kernels.budget import LEVELS, RUNS, cells, chances, cut, recorded
from ngramkit.kernels.tree import layout

FADE = 0.99  # of what is known, per pass
MEMORY = 0.98  # of the rate, per pass
FIRST_RATE = 1.5  # tokens per pass without a draft, before anything is known
SPARE = 8  # nodes asked for beyond one and a half times what was last kept
PROBES, PROBED = 4, 2  # the first passes with drafts, and their nodes: whether they pay or not
PROBE_AGAIN = 64  # drafts of which nothing paid, after which some is verified all the same
DRAFTS = 15  # of a drafter, whose seconds are remembered
CALIBRATED = np.ones(RUNS, np.float32)
# A share of the matches is no chance: of a single match it is 1. What such shares were worth on
# Vicuna 7B's answers to MT-Bench, by the run before them, for continuations in a datastore of 10
# million tokens of chat and for those in the context alike.
SHARES_OF_MATCHES = np.array([0.4, 0.5, 0.6, 0.65, 0.7, 0.8], np.float32)


@dataclass(eq=False)
class Known:
    """Of a drafter, across requests: what its scores were worth, and whether it is asked."""

    record: npt.NDArray[np.float32] = field(
        default_factory=lambda: np.zeros((LEVELS, RUNS, 2), np.float32)
    )
    asking: Asking = field(default_factory=Asking)
    unpaid: int = 0  # drafts in a row of which nothing paid


_KNOWN: WeakKeyDictionary[object, Known] = WeakKeyDictionary()


class AutoBudget:
    """One request. Before each pass: if it `opens`, a drafter is asked, for `ask` nodes; its tree,
    else an empty one, is `cut`. After it `learn` hears what came of it.

    `rows`: the paths of a draft are verified as rows of a batch.
    """

    def __init__(self, costs: PassCosts, drafter: object, *, rows: bool = False) -> None:
        self._costs, self._rows = costs, rows
        shares = bool(getattr(drafter, "scores_are_shares", False))
        self._trust = SHARES_OF_MATCHES if shares else CALIBRATED
        self._known = _known_of(drafter)
        self._known.asking.begin()
        self._drafting = costs.drafting.setdefault(type(drafter).__name__, deque(maxlen=DRAFTS))
        self._run = 0  # tokens foreseen in a row
        self._tokens, self._time = FIRST_RATE, 1.0
        self._ask = MOST
        # Of the pass that is under way:
        self._asked = False
        self._whole, self._length, self._size, self._cost = DraftTree.empty(), 0, 0, 1.0
        self.declined = False  # there was a draft, or would have been, but it did not pay

    @property
    def rate(self) -> float:
        """Tokens that the time of a pass without a draft is worth."""
        return max(self._tokens / self._time, 1.0)

    def opens(self) -> bool:
        """Whether the drafter is asked before this pass."""
        self._asked = self._known.asking.opens()
        return self._asked

    def ask(self, budget: int, length: int) -> int:
        """How many nodes the drafter need not exceed, behind `length` tokens."""
        return min(budget, self._ask, self._costs.reach(length) + SPARE)

    def cut(self, tree: DraftTree, length: int, riding: int | None = None) -> DraftTree:
        """The part of the tree that is worth verifying behind `length` tokens.

        `riding`: a chain's pass repeats so many tokens in front of it.
        """
        self._whole, self._length = tree, length
        if len(tree) == 0 and not riding:
            self._size, self._cost, self.declined = 0, 1.0, not self._asked
            return tree
        alone, kept = self._costs.at(length), tree
        if len(tree):
            kept, self._size = self._worthwhile(tree, alone, riding)
        else:
            self._size = riding or 0
        self._cost = float(alone[min(self._size, self._costs.most)])
        self.declined = not len(kept) and (len(tree) > 0 or not self._asked)
        return kept

    def _worthwhile(
        self, tree: DraftTree, alone: Costs, riding: int | None
    ) -> tuple[DraftTree, int]:
        """What of it to verify, and the rows of a pass with that, the root's apart."""
        known, length = self._known, self._length
        sizes = (riding or 0) + np.arange(len(tree) + 1)
        if self._rows or riding is not None:
            chance = chances(tree.parents, tree.scores, known.record, self._trust, self._run)
        if self._rows:
            sizes = cells(tree.parents, chance, riding or 0)
        costs = alone[np.minimum(sizes, self._costs.most)]
        if riding is not None:
            costs = self._with_repeats(costs, alone, chance, riding)
        costs[sizes > self._costs.reach(length)] = np.inf
        costs[0] = alone[min(sizes[0], self._costs.most)]
        scored = tree.parents, tree.scores, known.record, self._trust, self._run
        wary = costs[0] + known.asking.wariness * (costs - costs[0])
        kept, parents = cut(*scored, wary, self.rate)
        if len(kept) == 0 and self._probes():
            costs[: PROBED + 1], costs[PROBED + 1 :] = 0, np.inf
            kept, parents = cut(*scored, costs, self.rate)
        known.unpaid = 0 if len(kept) else known.unpaid + 1
        self._ask = max(len(kept) * 3 // 2 + SPARE, self._ask // 2)
        size = int(sizes[len(kept)])
        if len(kept) == len(tree):
            return tree, size
        return DraftTree(tree.token_ids[kept], parents, tree.scores[kept], tree.source[kept]), size

    def _with_repeats(
        self, costs: Costs, alone: Costs, chance: npt.NDArray[np.float32], riding: int
    ) -> Costs:
        """What drafting 0, 1, ... nodes costs a model with recurrent layers, float64[n + 1]: this
        pass, and by the chance that the draft does not come true to its end, repeating what it
        brought in the next one. Of rows, only one can."""
        likeliest = -np.sort(-chance)
        fails = 1 - likeliest if not self._rows else np.ones_like(likeliest)
        repeated = np.minimum(riding + 1 + np.cumsum(likeliest), self._costs.most)
        found: Costs = costs.copy()
        found[1:] += fails * (np.interp(repeated, np.arange(len(alone)), alone) - alone[0])
        return found

    def _probes(self) -> bool:
        """Whether some of a draft is verified although it does not pay: to know what it costs."""
        if self._costs.reach(self._length) < PROBED:
            return False
        seen, more = self._costs.seen(self._length), self._costs.at(self._length)[PROBED] - 1
        hopeless = seen and more > PROBED  # were all of it accepted, it would not pay
        return (seen < PROBES and not hopeless) or self._known.unpaid >= PROBE_AGAIN

    def learn(self, written: Sequence[int], passing: float, drafting: float = 0.0) -> None:
        """`written` is what the pass brought: what was accepted, and the model's own token. It took
        `passing` seconds; the drafter, if it was asked, `drafting` with all that is done for it."""
        more = self._cost - 1
        self._costs.learn(self._size, self._length, passing)
        if self._asked:
            drafter = self._drafter_time(drafting)
            more += drafter
            self._known.asking.judge(len(written) - 1, more, drafter)
        self._tokens = MEMORY * self._tokens + len(written)
        self._time = MEMORY * self._time + 1 + more
        tree, tokens = self._whole, np.array(written, np.int32)
        if len(tree):
            self._run = recorded(
                tree.token_ids,
                tree.parents,
                tree.scores,
                tokens,
                self._known.record,
                FADE,
                self._run,
            )

    def _drafter_time(self, seconds: float) -> float:
        """Of the drafter, in passes; its first drafts, which may wait for disk or a compiler, say
        nothing."""
        self._drafting.append(seconds)
        unit = self._costs.unit(self._length)
        usual = sorted([0.0, 0.0, *self._drafting])
        return usual[len(usual) // 2] / unit if unit else 0.0


def _known_of(drafter: object) -> Known:
    """Of a drafter that cannot be kept apart, nothing."""
    try:
        return _KNOWN.setdefault(drafter, Known())
    except TypeError:  # not hashable, or without weak references
        return Known()


@cache
def prepare() -> None:
    """Loads the kernels that the first draft would wait for."""
    parents, tokens = np.array([-1, 0], np.int32), np.array([1, 2], np.int32)
    scores, record = np.array([0.5, 0.2], np.float32), Known().record
    layout(parents, np.float32(-1))
    cut(parents, scores, record, CALIBRATED, 0, np.linspace(1.0, 2.0, 3), 1.5)
    recorded(tokens, parents, scores, tokens, record, FADE, 0)
