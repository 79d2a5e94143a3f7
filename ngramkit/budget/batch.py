"""The controller of a serving engine: how many drafted tokens of all requests a pass verifies.

Unless it learns from measured passes it uses no clock, so every rank of a tensor-parallel engine
decides the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ngramkit.budget.costs import DECAY_PER_PASS, RECENT_PASSES, PassCosts, usual_seconds
from ngramkit.budget.pass_timer import TimedPass
from ngramkit.budget.pass_times import PassTimes
from ngramkit.budget.pause import TRIAL_SHARE, Pause
from ngramkit.kernels.acceptance_record import SCORE_WEIGHT

Scores = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
MAX_DRAFTED = 1 << 12  # tokens of a pass that trials try
# Times what other sizes predict: a size's first pass that takes longer does not count.
SLOW_FIRST_PASS = 4.0


class BatchBudget:
    """Verifies the likeliest drafted tokens, as many as write the most tokens in a pass's time.

    `cost`: of passes by their tokens; or of a drafted token in passes, then each token whose score
    is not below it is verified. With `corrects` scores are corrected by their acceptance. With
    `learns` measured passes correct the passes' times.
    """

    def __init__(
        self, cost: PassTimes | float, *, corrects: bool = True, learns: bool = False
    ) -> None:
        self.cost, self._corrects = cost, corrects
        self.price = cost if isinstance(cost, int | float) else 0.0  # of a drafted token, in tokens
        self.lookup = 0.0  # the time of drafting for a request, in tokens
        # By numbers of requests, which may cost differently.
        self._measured = (
            PassCosts(np.ones(MAX_DRAFTED + 1), trusts_neighbours=False) if learns else None
        )
        self._begun = {0}  # sizes of timed passes
        self._places = np.zeros(1)  # log2(n + 1) of numbers of drafted tokens
        self._drafting: deque[float] = deque(maxlen=RECENT_PASSES)  # seconds
        self.account = Pause()  # of all requests, in passes without drafts
        self._since_trial = 0  # passes
        self._largest = 0  # number of drafted tokens of a pass, by formula
        self._expected = self._accepted = 0.0  # sum of verified scores; accepted tokens
        self._requests, self._context = 0, 0.0
        self._plain = 1.0  # the formula's time of this pass without drafts
        self._times: Floats = np.ones(1)  # by drafted tokens, for this pass

    @property
    def learns(self) -> bool:
        return self._measured is not None

    @property
    def _correction(self) -> float:
        """Return the sum of verified scores over the number of accepted tokens."""
        if not self._corrects:
            return 1.0
        return (self._expected + SCORE_WEIGHT) / (self._accepted + SCORE_WEIGHT)

    def least_score_to_draft(
        self, lengths: Sequence[int], context: float = 0.0, requests: int | None = None
    ) -> float:
        """Return the least score worth drafting; call once a pass.

        `lengths`: maximum tokens of each request's chain; `context`: their mean length in tokens;
        `requests`: those of the pass, by default those with a length above 0. Observations fade, so
        that scores which never paid are tried again.
        """
        self._expected *= DECAY_PER_PASS
        self._accepted *= DECAY_PER_PASS
        if isinstance(self.cost, int | float):
            return self.cost * self._correction
        drafting = sum(length > 0 for length in lengths)
        self._requests = drafting if requests is None else max(requests, drafting)
        self._context = context
        if not drafting:
            return 0.0
        self._times = self._relative_times(sum(lengths))
        # The best pass writes at least a token per request and plain pass's time; so a token whose
        # probability is below the least time that one can take is not in it.
        least = self._requests * float(np.diff(self._times).min()) * self._correction
        return max(least, 0.0)

    def _relative_times(self, most: int) -> Floats:
        """Return the times of passes with 0 to `most` drafted tokens, in passes without drafts."""
        times = self._times_by_formula(np.arange(most + 1.0), self._requests)
        self._plain = float(times[0])
        times /= self._plain
        if self._measured is not None:
            if len(self._places) <= most:
                self._places = np.log2(np.arange(2 * most + 2) + 1.0)
            times *= self._measured.factors(self._places[: most + 1], self._requests)
        return times

    def _times_by_formula(self, drafted: Floats, requests: int) -> Floats:
        assert not isinstance(self.cost, int | float)
        return self.cost.times(requests + drafted, requests, self._context)

    def cut_chains(self, chains: Sequence[Scores]) -> list[int]:
        """Return how many tokens of each chain to verify; `chains`: their scores, float32[n].

        Scores do not rise along a chain, so the likeliest tokens of all are beginnings of chains.
        """
        if isinstance(self.cost, int | float) or not any(map(len, chains)):
            return [len(chain) for chain in chains]
        scores = np.concatenate(chains)
        likeliest = np.argsort(-scores, kind="stable")  # so that equal scores of a chain keep order
        earned = np.concatenate([[0.0], np.cumsum(scores[likeliest], dtype=np.float64)])
        earned /= self._correction
        count = self._count_to_verify(earned, self._times[: len(earned)])
        if count:
            self.price = self._requests * float(self._times[count] - 1) / count
        owners = np.repeat(np.arange(len(chains)), [len(chain) for chain in chains])
        kept = np.bincount(owners[likeliest[:count]], minlength=len(chains))
        return list(map(int, kept))

    def _count_to_verify(self, earned: Floats, times: Floats) -> int:
        """Return how many tokens to verify.

        `earned`: the accepted tokens to expect of the 0, 1, ... n likeliest, float64[n + 1].
        """
        rates = (1 + earned / self._requests) / times
        if self._measured is None:
            return self._best_within_reach(rates)
        reach = self._measured.reach(self._requests)  # 0 before a pass without drafts
        if reach:
            reach = max(reach, self._requests)  # a token for each costs what one token does
        best = int(np.argmax(rates[: reach + 1]))
        rate, sizes = float(rates[best]), np.arange(len(times))
        self._since_trial += 1
        trial = self._measured.trial(
            self._requests,
            sizes,
            np.where(sizes > reach, -np.inf, earned / self._requests - rate * (times - 1)),
            times,
            rate,
            max(self.account.credit, TRIAL_SHARE * self._since_trial),
            reach,
        )
        if trial is None:
            return best
        self._since_trial = 0
        return trial

    def _best_within_reach(self, rates: Floats) -> int:
        """Return the size of the best rate among those up to twice the largest pass so far.

        A token for each request is always allowed. Scores that are wrong cost little until they are
        corrected.
        """
        reach = max(2 * self._largest, self._requests) if self._corrects else len(rates)
        best = int(np.argmax(rates[: reach + 1]))
        self._largest = max(self._largest, best)
        return best

    def learn(self, timed: TimedPass) -> None:
        """Learn the time of the last pass."""
        if self._measured is not None:
            drafted, requests = timed.drafted, timed.requests
            expected = float(self._times_by_formula(np.array([float(drafted)]), requests)[0])
            # By powers of two: the formula is right within these.
            size = 1 << drafted.bit_length() >> 1
            seconds, unit = timed.seconds / expected, self._measured.unit(requests)
            if size not in self._begun:
                self._begun.add(size)
                near = float(self._measured.factors(np.log2([size + 1.0]), requests)[0])
                # Kernels may compile in this pass, whose time would keep the size from drafts long.
                if unit and seconds > SLOW_FIRST_PASS * unit * near:
                    return
            self._measured.learn(size, requests, seconds)

    def learn_drafting(self, seconds: float, rows: int) -> None:
        """Learn the time of drafting for `rows` requests of a pass."""
        if self._measured is not None and rows:
            self._drafting.append(seconds / rows)
            unit = self._measured.unit(self._requests) * self._plain
            lost = self._requests * usual_seconds(self._drafting)
            self.lookup = lost / unit if unit else 0.0

    def observe(self, chains: Sequence[Scores], accepted: Sequence[int]) -> None:
        """Learn from verified chains' scores, float32[n], and numbers of accepted tokens."""
        self._expected += sum(float(chain.sum()) for chain in chains if len(chain))
        self._accepted += sum(accepted)
