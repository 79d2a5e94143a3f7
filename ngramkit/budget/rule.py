"""The budget rule: each draft is verified as far as it pays for its time.

A pass earns tokens and costs time, and time is worth what the run makes of it on average (the
rate), but at least what passes without drafts would. So of all sizes, the likeliest nodes first,
that one is taken whose expected tokens exceed the rate times its time by most
(`kernels.draft_cut`): by that rule the whole run is as fast as its drafts allow, which it is not if
each pass takes its own best ratio. Scores are a drafter's own estimates, so they are corrected by
the acceptance of such scores before, across requests of the same drafter. Nodes that the rule left
out are compared with the text as well, so they can come back. Time is counted in passes without a
draft, see `budget.costs`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ngramkit.budget.costs import MOST, Costs, PassCosts
from ngramkit.budget.pause import Pause
from ngramkit.drafters.base import DraftTree
from ngramkit.kernels.draft_cut import LEVELS, RUNS, cells, chances, cut, update_record

FADE = 0.9875  # of the record, per pass
MEMORY = 0.987  # of the rate, per pass
CAUTION = 1.15  # times the rate: scores at the top are a little too high
FIRST_RATE = 1.5  # tokens per time of a pass without a draft, at first
SPARE = 8  # nodes drafted beyond twice those kept last, where the next size to try lies
LEVEL = 1.11  # times what SPARE nodes cost: as many as cost no more are drafted always
ALLOWANCE = 1.0  # tokens that trials of sizes may cost at first
GROWTH, MOST_ALLOWANCE = 0.01, 2.5  # tokens added to it by every pass; its maximum
LEAST_HOPE = 0.1  # tokens per pass that a trial must be able to gain
# Tokens that verifying a draft counts as at least. Where all passes verify one, a machine that is
# slower now looks like drafts that cost nothing: those that bring nothing have to pause to show it.
LEAST_SPENT = 0.05
DRAFTS = 15  # latest drafts of a drafter whose times count
CALIBRATED = np.ones(RUNS, np.float32)
# A match share is not a probability: a single match gives 1.0. The acceptance of such shares on
# Vicuna 7B's answers to MT-Bench, by the run before them, for continuations in a datastore of 10
# million tokens of chat and for those in the context alike.
SHARES_OF_MATCHES = np.array([0.4, 0.5, 0.6, 0.65, 0.7, 0.8], np.float32)


@dataclass(eq=False)
class DrafterState:
    """A drafter's state across requests: the record of its scores, its pauses, its allowance."""

    record: npt.NDArray[np.float32] = field(
        default_factory=lambda: np.zeros((LEVELS, RUNS, 2), np.float32)
    )
    pause: Pause = field(default_factory=Pause)
    allowance: float = ALLOWANCE  # tokens that trials may cost still


_STATES: WeakKeyDictionary[object, DrafterState] = WeakKeyDictionary()


class AutoBudget:
    """The budget rule in one request.

    Before each pass: if it `opens`, the drafter drafts `ask` nodes; its tree, or an empty one, is
    `cut`. After the pass: `learn`. With `rows` a draft's paths are verified as rows of a batch.
    """

    def __init__(self, costs: PassCosts, drafter: object, *, rows: bool = False) -> None:
        self.costs, self._rows = costs, rows
        shares = bool(getattr(drafter, "scores_are_shares", False))
        self._trust = SHARES_OF_MATCHES if shares else CALIBRATED
        self._state = _state_of(drafter)
        self._state.pause.begin()
        self._drafting = costs.drafting.setdefault(type(drafter).__name__, deque(maxlen=DRAFTS))
        self._run = 0  # tokens in a row that drafts had right
        self._tokens, self._time = FIRST_RATE, 1.0
        self._ask = MOST
        # Of the current pass:
        self._drafts = False
        self._whole, self._length, self._size, self._cost = DraftTree.empty(), 0, 0, 1.0
        self._trying = False
        self.declined = False  # a draft was cut to nothing, or paused

    @property
    def rate(self) -> float:
        """Return the tokens that the time of a pass without a draft is worth."""
        return max(CAUTION * self._tokens / self._time, 1.0)

    def opens(self) -> bool:
        """Return whether to draft before this pass."""
        self._drafts = self._state.pause.opens()
        return self._drafts

    def ask(self, budget: int, length: int) -> int:
        """Return how many nodes are enough, after `length` tokens."""
        costs = self.costs.at(length)
        level = int(np.flatnonzero(costs <= LEVEL * costs[SPARE])[-1])
        return min(budget, max(self._ask, level), self.costs.reach(length) + SPARE)

    def cut(self, tree: DraftTree, length: int, replayed: int | None = None) -> DraftTree:
        """Return the part of the tree that is worth verifying after `length` tokens.

        A chain's pass repeats `replayed` tokens in front of it; None: passes repeat none.
        """
        self._whole, self._length, self._trying = tree, length, False
        if len(tree) == 0 and not replayed:
            self._size, self._cost, self.declined = 0, 1.0, not self._drafts
            return tree
        alone, kept = self.costs.at(length), tree
        if len(tree):
            kept, self._size = self._worthwhile(tree, alone, replayed)
        else:
            self._size = replayed or 0
        self._cost = float(alone[min(self._size, self.costs.most)])
        self.declined = not len(kept) and (len(tree) > 0 or not self._drafts)
        return kept

    def whole(self, tree: DraftTree, length: int) -> DraftTree:
        """Return all of the tree after `length` tokens, to learn what a pass of its size costs."""
        self._whole, self._length, self._trying = tree, length, True
        self._size = min(len(tree), self.costs.most)
        self._cost, self.declined = float(self.costs.at(length)[self._size]), False
        return tree

    def _worthwhile(
        self, tree: DraftTree, alone: Costs, replayed: int | None
    ) -> tuple[DraftTree, int]:
        """Return the part of the tree to verify, and the rows of a pass with it, the root apart."""
        state, length = self._state, self._length
        scored = tree.parents, tree.scores, state.record, self._trust, self._run
        sizes = (replayed or 0) + np.arange(len(tree) + 1)
        if self._rows:
            sizes = cells(tree.parents, chances(*scored), replayed or 0)
        sizes = np.minimum(sizes, self.costs.most)
        costs, hopes = alone[sizes], self.costs.hopeful(length)[sizes]
        if replayed is not None:
            repeats = self._repeats(alone, chances(*scored), replayed)
            costs, hopes = costs + repeats, hopes + repeats
        out_of_reach = sizes > self.costs.reach(length)
        out_of_reach[0] = False
        cautious = costs[0] + state.pause.caution * (costs - costs[0])
        cautious[out_of_reach] = hopes[out_of_reach] = np.inf
        guessed = np.flatnonzero(hopes < costs)
        trial = (
            self._trial(guessed, chances(*scored), costs, hopes, cautious) if len(guessed) else 0
        )
        if trial:  # no other size is allowed
            cautious[:] = np.inf
            cautious[trial] = 0.0
        kept, parents = cut(*scored, cautious, self.rate)
        self._trying = trial > 0
        self._ask = max(2 * len(kept) + SPARE, self._ask // 2)
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
        cautious: Costs,
    ) -> int:
        """Return how many nodes to verify to learn what that costs; 0 where it is not worth it.

        A size with a `guessed` cost is tried if it would be the best at its least possible cost,
        and if the allowance covers its loss at its likely cost.
        """
        earned = np.concatenate([[0.0], np.cumsum(-np.sort(-chance))])
        best = max(float(np.max(earned - self.rate * (cautious - cautious[0]))), 0.0)
        hoped = earned[guessed] - self.rate * (hopes[guessed] - costs[0])
        lost = best - (earned[guessed] - self.rate * (costs[guessed] - costs[0]))
        worth = (hoped > best + LEAST_HOPE) & (lost < self._state.allowance)
        if not worth.any():
            return 0
        at = int(np.flatnonzero(worth)[np.argmax(hoped[worth])])
        self._state.allowance -= max(float(lost[at]), 0.0)
        return int(guessed[at])

    def _repeats(self, alone: Costs, chance: npt.NDArray[np.float32], replayed: int) -> Costs:
        """Return the cost of replay in the next pass, for 0, 1, ... draft nodes, float64[n + 1]: a
        model with recurrent layers repeats what a draft brought by the probability that the draft
        was not right to its end. Of rows, only one can be."""
        likeliest = -np.sort(-chance)
        fails = 1 - likeliest if not self._rows else np.ones_like(likeliest)
        repeated = np.minimum(replayed + 1 + np.cumsum(likeliest), self.costs.most)
        again = np.interp(repeated, np.arange(len(alone)), alone) - alone[0]
        return np.concatenate([[0.0], fails * again])

    def learn(self, written: Sequence[int], passing: float, drafting: float = 0.0) -> None:
        """Learn from the pass: `written` are the accepted tokens and the model's own; it took
        `passing` seconds, and drafting, if there was any, `drafting`."""
        more = self._cost - 1
        self.costs.learn(self._size, self._length, passing)
        if self._drafts:
            drafter = self._drafter_time(drafting)
            more += drafter
            gained = len(written) - 1
            spent = max(more, LEAST_SPENT) if self._size else more
            if not self._trying or gained > spent:  # a trial's loss is not the drafter's
                self._state.pause.judge(gained, spent, drafter)
        allowance = self._state.allowance + GROWTH
        self._state.allowance = min(allowance, MOST_ALLOWANCE)
        self._tokens = MEMORY * self._tokens + len(written)
        self._time = MEMORY * self._time + 1 + more
        tree, tokens = self._whole, np.array(written, np.int32)
        if len(tree):
            self._run = update_record(
                tree.token_ids,
                tree.parents,
                tree.scores,
                tokens,
                self._state.record,
                FADE,
                self._run,
            )

    def _drafter_time(self, seconds: float) -> float:
        """Return the drafter's usual time, in passes. Its first drafts, which may wait for disk or
        a compiler, do not count."""
        self._drafting.append(seconds)
        unit = self.costs.unit(self._length)
        usual = sorted([0.0, 0.0, *self._drafting])
        return usual[len(usual) // 2] / unit if unit else 0.0


def _state_of(drafter: object) -> DrafterState:
    """Return the state of a drafter; a new one if it is unhashable."""
    try:
        return _STATES.setdefault(drafter, DrafterState())
    except TypeError:  # not hashable, or without weak references
        return DrafterState()


@cache
def prepare() -> None:
    """Load the kernels that the first draft would wait for."""
    parents, tokens = np.array([-1, 0], np.int32), np.array([1, 2], np.int32)
    scores, record = np.array([0.5, 0.2], np.float32), DrafterState().record
    cut(parents, scores, record, CALIBRATED, 0, np.linspace(1.0, 2.0, 3), 1.5)
    chances(parents, scores, record, CALIBRATED, 0)
    update_record(tokens, parents, scores, tokens, record, FADE, 0)
