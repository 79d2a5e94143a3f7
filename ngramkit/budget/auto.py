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
CAUTION = 1.15  # times the rate: chances are judged a little too well where they are the best ones
SPARE = 8  # nodes asked for beyond one and a half times what was last kept
ALLOWANCE = 1.0  # tokens that trials of sizes may cost at first
GROWTH, MOST_ALLOWANCE = 0.01, 2.0  # and further ones with every pass; tokens saved up at most
LEAST_HOPE = 0.05  # tokens per pass that a trial may bring
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
    allowance: float = ALLOWANCE  # tokens that trials may cost


_KNOWN: WeakKeyDictionary[object, Known] = WeakKeyDictionary()


class AutoBudget:
    """One request. Before each pass: if it `opens`, a drafter is asked, for `ask` nodes; its tree,
    else an empty one, is `cut`. After it `learn` hears what came of it.

    `rows`: the paths of a draft are verified as rows of a batch.
    """

    def __init__(self, costs: PassCosts, drafter: object, *, rows: bool = False) -> None:
        self.costs, self._rows = costs, rows
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
        self._trying = False
        self.declined = False  # there was a draft, or would have been, but it did not pay

    @property
    def rate(self) -> float:
        """Tokens that the time of a pass without a draft is counted to be worth."""
        return max(CAUTION * self._tokens / self._time, 1.0)

    def opens(self) -> bool:
        """Whether the drafter is asked before this pass."""
        self._asked = self._known.asking.opens()
        return self._asked

    def ask(self, budget: int, length: int) -> int:
        """How many nodes the drafter need not exceed, behind `length` tokens."""
        return min(budget, self._ask, self.costs.reach(length) + SPARE)

    def cut(self, tree: DraftTree, length: int, riding: int | None = None) -> DraftTree:
        """The part of the tree that is worth verifying behind `length` tokens.

        `riding`: a chain's pass repeats so many tokens in front of it.
        """
        self._whole, self._length, self._trying = tree, length, False
        if len(tree) == 0 and not riding:
            self._size, self._cost, self.declined = 0, 1.0, not self._asked
            return tree
        alone, kept = self.costs.at(length), tree
        if len(tree):
            kept, self._size = self._worthwhile(tree, alone, riding)
        else:
            self._size = riding or 0
        self._cost = float(alone[min(self._size, self.costs.most)])
        self.declined = not len(kept) and (len(tree) > 0 or not self._asked)
        return kept

    def _worthwhile(
        self, tree: DraftTree, alone: Costs, riding: int | None
    ) -> tuple[DraftTree, int]:
        """What of it to verify, and the rows of a pass with that, the root's apart."""
        known, length = self._known, self._length
        scored = tree.parents, tree.scores, known.record, self._trust, self._run
        sizes = (riding or 0) + np.arange(len(tree) + 1)
        if self._rows:
            sizes = cells(tree.parents, chances(*scored), riding or 0)
        sizes = np.minimum(sizes, self.costs.most)
        costs, hopes = alone[sizes], self.costs.hopeful(length)[sizes]
        if riding is not None:
            repeats = self._repeats(alone, chances(*scored), riding)
            costs, hopes = costs + repeats, hopes + repeats
        out_of_reach = sizes > self.costs.reach(length)
        out_of_reach[0] = False
        wary = costs[0] + known.asking.wariness * (costs - costs[0])
        wary[out_of_reach] = hopes[out_of_reach] = np.inf
        guessed = np.flatnonzero(hopes < costs)
        trial = self._trial(guessed, chances(*scored), costs, hopes, wary) if len(guessed) else 0
        if trial:  # nothing but the trial's size is to be had
            wary[:] = np.inf
            wary[trial] = 0.0
        kept, parents = cut(*scored, wary, self.rate)
        self._trying = trial > 0
        self._ask = max(len(kept) * 3 // 2 + SPARE, self._ask // 2)
        size = int(sizes[len(kept)])
        if len(kept) == len(tree):
            return tree, size
        return DraftTree(tree.token_ids[kept], parents, tree.scores[kept], tree.source[kept]), size

    def _trial(
        self,
        guessed: npt.NDArray[np.int64],
        chance: npt.NDArray[np.float32],
        costs: Costs,
        hopes: Costs,
        wary: Costs,
    ) -> int:
        """Return how many nodes to verify to learn what that costs; 0 where it is not worth it.

        A size that is `guessed` is tried if it would be the best at the least that it may cost, and
        if what it loses at what it is likely to cost can be afforded.
        """
        earned = np.concatenate([[0.0], np.cumsum(-np.sort(-chance))])
        best = max(float(np.max(earned - self.rate * (wary - wary[0]))), 0.0)
        hoped = earned[guessed] - self.rate * (hopes[guessed] - costs[0])
        lost = best - (earned[guessed] - self.rate * (costs[guessed] - costs[0]))
        worth = (hoped > best + LEAST_HOPE) & (lost < self._known.allowance)
        if not worth.any():
            return 0
        at = int(np.flatnonzero(worth)[np.argmax(hoped[worth])])
        self._known.allowance -= max(float(lost[at]), 0.0)
        return int(guessed[at])

    def _repeats(self, alone: Costs, chance: npt.NDArray[np.float32], riding: int) -> Costs:
        """What drafting 0, 1, ... nodes costs a model with recurrent layers beside this pass,
        float64[n + 1]: by the chance that the draft does not come true to its end, repeating what
        it brought in the next one. Of rows, only one can."""
        likeliest = -np.sort(-chance)
        fails = 1 - likeliest if not self._rows else np.ones_like(likeliest)
        repeated = np.minimum(riding + 1 + np.cumsum(likeliest), self.costs.most)
        again = np.interp(repeated, np.arange(len(alone)), alone) - alone[0]
        return np.concatenate([[0.0], fails * again])

    def learn(self, written: Sequence[int], passing: float, drafting: float = 0.0) -> None:
        """`written` is what the pass brought: what was accepted, and the model's own token. It took
        `passing` seconds; the drafter, if it was asked, `drafting` with all that is done for it."""
        more = self._cost - 1
        self.costs.learn(self._size, self._length, passing)
        if self._asked:
            drafter = self._drafter_time(drafting)
            more += drafter
            if not self._trying:  # what a trial costs says nothing of the drafter
                self._known.asking.judge(len(written) - 1, more, drafter)
        allowance = self._known.allowance + GROWTH
        self._known.allowance = min(allowance, MOST_ALLOWANCE)
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
        unit = self.costs.unit(self._length)
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
