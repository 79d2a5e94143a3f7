"""The cost of a drafted token, where an engine verifies the tokens of all its requests in one pass.

A pass of T tokens is taken to last (1 + T / FREE) times as long as reading the weights alone. Of n
requests that verify v tokens each and write w, one more token makes the pass longer by a share of
1 / (FREE + n v), in which n w tokens would have been written: so it costs n w / (FREE + n v) of a
token, and pays where it is accepted with that probability. A lone request's tokens are nearly free;
where many run, a token has to be nearly sure. Which scores have that probability is learnt by
`engines.score_threshold`.

Tokens are counted and no time, so every rank of a tensor-parallel engine decides alike.
"""

from __future__ import annotations

# Tokens whose arithmetic takes as long as reading the weights. By the data sheets of an A100, H100
# and L4 that is 153, 295 and 400 in bfloat16, and no engine reaches them.
FREE = 128
# The same on CPU cores, whose arithmetic is dear: a pass over 16 rows of SmolLM2-135M takes 1.67
# times one over a row on a core of an AMD EPYC (docs/benchmarks.md).
FREE_ON_CPU = 24
# Of a request and pass, before any was seen: tokens verified, and written.
VERIFIED, WRITTEN = 4.0, 2.0
FADE = 0.98  # of what was seen, with each pass


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
