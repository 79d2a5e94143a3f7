"""The length of an engine's chain: what a drafted token costs, and from which score on it pays.

TokenCost says what a drafted token costs, where an engine verifies the tokens of all its requests
in one pass.

A pass of T tokens is taken to last (1 + T / FREE) times as long as reading the weights alone. Of n
requests that verify v tokens each and write w, one more token makes the pass longer by a share of
1 / (FREE + n v), in which n w tokens would have been written: so it costs n w / (FREE + n v) of a
token, and pays where it is accepted with that probability. A lone request's tokens are nearly free;
where many run, a token has to be nearly sure. ScoreThreshold learns which scores have that
probability.

Both count tokens and no time, so every rank of a tensor-parallel engine decides alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

# Tokens whose arithmetic takes as long as reading the weights. By the data sheets of an A100, H100
# and L4 that is 153, 295 and 400 in bfloat16, and no engine reaches them.
FREE = 128
# The same on CPU cores, whose arithmetic is dear: a pass over 16 rows of SmolLM2-135M takes 1.67
# times one over a row on a core of an AMD EPYC (docs/benchmarks.md).
FREE_ON_CPU = 24
# Of a request and pass, before any was seen: tokens verified, and written.
VERIFIED, WRITTEN = 4.0, 2.0
FADE = 0.98  # of what was seen, with each pass

LEVELS = 16  # of scores, equally wide
# Expected tokens that scores count as right by, in each level, before anything was observed.
BELIEF = 4.0
FADE_OF_LEVELS = 0.998  # of what was observed, with each chain
# Every so many steps the threshold is lower, by this factor: so tokens below it are observed too.
PROBE, PROBED = 64, 0.7
LOWEST = 0.005  # the threshold is never below


class TokenCost:
    """The counts of tokens verified and written by an engine's requests."""

    def __init__(self, free: float = FREE) -> None:
        self.free = free
        self._rows, self._verified, self._written = 1.0, VERIFIED, WRITTEN

    def observe(self, rows: int, verified: int, written: int) -> None:
        """Count a pass of `rows` requests, over `verified` tokens, which wrote `written`."""
        self._rows = FADE * self._rows + rows
        self._verified = FADE * self._verified + verified
        self._written = FADE * self._written + written

    def at(self, rows: int) -> float:
        """Return what a drafted token costs in a pass of `rows` requests: the probability of being
        accepted from which on it pays."""
        verified, written = (count / self._rows for count in (self._verified, self._written))
        return rows * written / (self.free + rows * verified)


class ScoreThreshold:
    """The score below which a drafted token is not worth verifying, learnt from acceptance.

    Used where nobody has said how likely a drafted token must be accepted (min_probability).
    """

    def __init__(self) -> None:
        self._expected = np.zeros(LEVELS)  # sum of scores
        self._accepted = np.zeros(LEVELS)  # number of these tokens that were accepted
        self._steps = 0

    def observe(self, chains: Sequence[npt.NDArray[np.float32]], accepted: Sequence[int]) -> None:
        """Record a step: of the chain with the scores chains[i], float32[n], the first accepted[i]
        tokens were accepted, the others not."""
        # Most chains of a large batch are empty.
        pairs = [pair for pair in zip(chains, accepted, strict=True) if len(pair[0])]
        if not pairs:
            return
        scores = np.concatenate([chain for chain, _ in pairs])
        levels = np.minimum((scores * LEVELS).astype(np.int64), LEVELS - 1)
        right = [i < count for chain, count in pairs for i in range(len(chain))]
        fade = FADE_OF_LEVELS ** len(pairs)
        self._expected = fade * self._expected + np.bincount(levels, scores, LEVELS)
        self._accepted = fade * self._accepted + np.bincount(levels, right, LEVELS)

    def step(self, cost: float) -> float:
        """Return this step's threshold, for tokens that cost `cost` passes. Call once a step."""
        self._steps += 1
        return PROBED * cost if self._steps % PROBE == 0 else self.learnt(cost)

    def learnt(self, cost: float) -> float:
        """Return the lowest score from which on tokens are accepted with probability `cost`."""
        every = (self._accepted.sum() + BELIEF) / (self._expected.sum() + BELIEF)
        worth: list[float] = (
            (self._accepted + BELIEF * every) / (self._expected + BELIEF)
        ).tolist()
        for level in range(LEVELS - 1, -1, -1):
            needed = cost / max(worth[level], 1e-9)  # score, by this level's acceptance
            if needed >= (level + 1) / LEVELS:
                return max((level + 1) / LEVELS, LOWEST)
            if needed > level / LEVELS:
                return max(needed, LOWEST)
        return LOWEST
