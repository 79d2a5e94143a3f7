"""The controller: cut each draft where one more node costs more time than it saves.

Time is worth the tokens that the run has written in it so far, or those that passes without drafts
write if these are more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, wraps
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ngramkit.budget.costs import (
    DECAY_PER_PASS,
    MAX_NODES,
    RECENT_PASSES,
    Costs,
    PassCosts,
    usual_seconds,
)
from ngramkit.budget.pause import Pause
from ngramkit.drafters.base import DraftTree
from ngramkit.kernels.acceptance_record import (
    RUN_CLASSES,
    SHARE_CLASSES,
    chances,
    expected_tokens,
    update_record,
)

TRUST_IN_PROBABILITIES = np.ones(RUN_CLASSES, np.float32)
# A share of matches is not a probability: a single match gives 1.0. Acceptance of such shares by
# the tokens drafted correctly before them: Vicuna 7B's answers to MT-Bench, continuations from a
# datastore of 10 million tokens of chat and from the context.
TRUST_IN_MATCH_SHARES = np.array([0.4, 0.5, 0.6, 0.65, 0.7, 0.8], np.float32)


@dataclass(eq=False)
class DrafterState:
    record: npt.NDArray[np.float32] = field(
        default_factory=lambda: np.zeros((SHARE_CLASSES, RUN_CLASSES, 2), np.float32)
    )
    pause: Pause = field(default_factory=Pause)


_STATES: WeakKeyDictionary[object, DrafterState] = WeakKeyDictionary()
Method = TypeVar("Method", bound=Callable[..., Any])


def _one_at_a_time(method: Method) -> Method:
    """Let one thread at a time use the costs, which a model's requests share."""

    @wraps(method)
    def locked(self: AutoBudget, *args: Any) -> Any:
        with self.costs.lock:
            return method(self, *args)

    return locked  # type: ignore[return-value]


class AutoBudget:
    """The controller of one request.

    Before each pass: if it `opens`, the drafter drafts `ask` nodes; its tree, or an empty one, is
    `cut`. After the pass: `learn`. With `rows` a draft's paths are verified as rows of a batch.
    """

    def __init__(self, costs: PassCosts, drafter: object, *, rows: bool = False) -> None:
        self.costs, self._rows = costs, rows
        shares = bool(getattr(drafter, "scores_are_shares", False))
        self._trust = TRUST_IN_MATCH_SHARES if shares else TRUST_IN_PROBABILITIES
        self._state = _state_of(drafter)
        self._state.pause.begin()
        self._drafting = costs.drafting.setdefault(
            type(drafter).__name__, deque(maxlen=RECENT_PASSES)
        )
        self._run = 0  # consecutive tokens that drafts had right
        self._tokens, self._time = 1.0, 1.0
        self._kept = MAX_NODES  # nodes kept lately
        # For the current pass:
        self._drafts = False
        self._whole, self._length, self._size, self._cost = DraftTree.empty(), 0, 0, 1.0
        self.declined = False  # a draft was cut to nothing, or paused

    @property
    def rate(self) -> float:
        """Return the value of a pass without a draft, in tokens."""
        return max(self._tokens / self._time, 1.0)

    def opens(self) -> bool:
        """Return whether to draft before this pass; call once for each."""
        self._drafts = self._state.pause.opens()
        return self._drafts

    @_one_at_a_time
    def nodes_to_draft(self, budget: int, length: int) -> int:
        """Return the nodes to draft: twice those kept lately, and more that cost under 0.1 pass."""
        costs = self.costs.at(length)
        wanted = min(2 * self._kept + 8, self.costs.most)
        level = int(np.flatnonzero(costs <= costs[wanted] + 0.1)[-1])
        return min(budget, max(wanted, level), self.costs.reach(length) + 8)

    def price(self, length: int) -> float:
        """Return the lowest cost per node over all sizes, at most 1.

        A token that is less probable than this never pays.
        """
        costs = self.costs.at(length)[1:]
        return min(float(np.min((costs - 1) / np.arange(1, len(costs) + 1))), 1.0)

    @_one_at_a_time
    def cut(self, tree: DraftTree, length: int, replayed: int | None = None) -> DraftTree:
        """Return the part of the tree that is worth verifying after `length` tokens.

        A chain's pass repeats `replayed` tokens before it; None: passes repeat none.
        """
        self._whole, self._length = tree, length
        most = self.costs.most
        if len(tree) == 0:
            self._size, self._cost, self.declined = replayed or 0, 1.0, not self._drafts
            if replayed:
                self._cost = float(self.costs.at(length)[min(replayed, most)])
            return tree
        alone = self.costs.at(length)
        scored = tree.parents, tree.scores, self._state.record, self._trust, self._run
        chance = chances(*scored)
        order = np.argsort(-chance, kind="stable")
        likeliest = chance[order]
        sizes = (replayed or 0) + np.arange(len(tree) + 1)
        if self._rows:
            sizes = expected_tokens(tree.parents, order, replayed or 0)
        sizes = np.minimum(sizes, most)
        costs = alone[sizes]
        if replayed is not None:
            costs = costs + self._cost_of_replay(alone, likeliest, replayed)
        credit, reach = self._state.pause.credit, self.costs.reach(length)
        costs[1:][sizes[1:] > reach] = np.inf
        earned = np.concatenate([[0.0], np.cumsum(likeliest)])
        values = earned - self.rate * (costs - costs[0])
        count = self.costs.trial(length, sizes, values, alone, self.rate, credit, reach)
        if count is None:
            count = int(np.argmax(values))
        self._kept = max(count, self._kept // 2)
        self._size = int(sizes[count])
        self._cost, self.declined = float(alone[self._size]), count == 0
        # Chances fall along paths, so the parents of the likeliest nodes are among them.
        return tree if count == len(tree) else tree.subtree(np.sort(order[:count]))

    def _cost_of_replay(
        self, alone: Costs, likeliest: npt.NDArray[np.float32], replayed: int
    ) -> Costs:
        """Return the next pass's cost of replay for 0, 1, ... draft nodes, float64[n + 1].

        Models with recurrent layers repeat accepted tokens unless the whole draft was accepted.
        """
        fails = 1 - likeliest if not self._rows else np.ones_like(likeliest)
        repeated = np.minimum(replayed + 1 + np.cumsum(likeliest), self.costs.most)
        again = np.interp(repeated, np.arange(len(alone)), alone) - alone[0]
        return np.concatenate([[0.0], fails * again])

    @_one_at_a_time
    def learn(self, written: Sequence[int], passing: float, drafting: float = 0.0) -> None:
        """Learn from a pass that wrote `written`; times in seconds."""
        self.costs.learn(self._size, self._length, passing)
        if self._size:
            self._cost = float(self.costs.at(self._length)[min(self._size, self.costs.most)])
        more = self._cost - 1
        if self._drafts:
            more += self._drafter_time(drafting)
            self._state.pause.judge(len(written) - 1, more)
        self._tokens = DECAY_PER_PASS * self._tokens + len(written)
        self._time = DECAY_PER_PASS * self._time + 1 + more
        tree, tokens = self._whole, np.array(written, np.int32)
        if len(tree):
            self._run = update_record(
                tree.token_ids,
                tree.parents,
                tree.scores,
                tokens,
                self._state.record,
                DECAY_PER_PASS,
                self._run,
            )

    def _drafter_time(self, seconds: float) -> float:
        """Return the usual time of a draft in passes."""
        self._drafting.append(seconds)
        unit = self.costs.unit(self._length)
        return usual_seconds(self._drafting) / unit if unit else 0.0


def _state_of(drafter: object) -> DrafterState:
    try:
        return _STATES.setdefault(drafter, DrafterState())
    except TypeError:  # not hashable, or without weak references
        return DrafterState()


@cache
def compile_kernels() -> None:
    parents, tokens = np.array([-1, 0], np.int32), np.array([1, 2], np.int32)
    scores, record = np.array([0.5, 0.2], np.float32), DrafterState().record
    chances(parents, scores, record, TRUST_IN_PROBABILITIES, 0)
    update_record(tokens, parents, scores, tokens, record, DECAY_PER_PASS, 0)
