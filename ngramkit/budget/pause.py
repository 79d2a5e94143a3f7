"""Pauses of a drafter whose drafts do not pay.

The account holds the tokens that drafts earned minus their cost. If it is overdrawn, drafting
pauses.
"""

from __future__ import annotations

INITIAL_CREDIT = 2.0  # tokens that drafts may lose before the first pause; a quarter of the limit
TRIAL_SHARE = 0.02  # share of the time that failing drafts and trials of sizes may cost


class Pause:
    """The account of one drafter, or of one request of an engine."""

    __slots__ = ("_wait", "credit")

    def __init__(self, credit: float = INITIAL_CREDIT) -> None:
        self.credit = min(credit, INITIAL_CREDIT)
        self._wait = 0

    def begin(self) -> None:
        """End the pause: drafts may pay in a new request."""
        self._wait = 0

    def opens(self) -> bool:
        """Return whether to draft before this pass; call once for each."""
        if self.lasts:
            self._wait -= 1
            return False
        return True

    @property
    def lasts(self) -> bool:
        """Whether `opens` will return False."""
        return self._wait > 0

    def judge(self, gained: float, spent: float) -> None:
        self.credit = min(self.credit + gained - spent, 4 * INITIAL_CREDIT)
        if self.credit < 0:
            self._wait = int(-self.credit / TRIAL_SHARE)
            self.credit = 0.0
