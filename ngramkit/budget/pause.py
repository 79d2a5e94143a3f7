"""Pauses of a drafter whose drafts do not pay: passes without a draft follow.

What drafts have earned, less their cost, is a credit in tokens. A drafter that has used it up
pauses, for as long as its loss is large, and then drafts once; pauses double while that fails, and
the drafts have to promise more than they cost. So a drafter that never helps costs little, and one
that has helped is not stopped by a few bad drafts.
"""

from __future__ import annotations

FIRST_LOSS = 1.0  # tokens that a drafter may cost before it has earned any
MOST_CREDIT = 4.0  # tokens; what is earned beyond is not saved
TRIAL_SHARE = 0.03  # of the time, that the first failing trials may cost
LONGEST = 512  # passes of a pause
DOUBLED = 2  # times that failed trials double the pause
CAUTION = 0.25  # what a draft must promise more, after each of two failed trials


class Pause:
    """The pauses of one drafter. A token is worth at least a pass without a draft."""

    def __init__(self) -> None:
        self._credit = FIRST_LOSS
        self._wait = self._failed = 0

    def begin(self) -> None:
        """End the pause for a new request: drafts may pay there."""
        self._wait = 0

    def opens(self) -> bool:
        """Return whether to draft before this pass; to be called once for each."""
        if self._wait > 0:
            self._wait -= 1
            return False
        return True

    @property
    def caution(self) -> float:
        """Return the factor by which a draft must promise more than it costs."""
        return 1 + CAUTION * min(self._failed, 2)

    def judge(self, gained: float, spent: float, drafting: float) -> None:
        """Credit a pass with a draft: the tokens gained and spent; of the latter, the drafter
        itself spent `drafting`."""
        self._credit = min(self._credit + gained - spent, MOST_CREDIT)
        if self._credit < 0:
            pause = max(-self._credit, drafting) / TRIAL_SHARE * 2 ** min(self._failed, DOUBLED)
            self._wait, self._credit = int(min(pause, LONGEST)), 0.0
            self._failed += 1
        elif self._credit >= FIRST_LOSS:
            self._failed = 0
