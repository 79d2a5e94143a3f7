"""Whether a drafter is asked at all: where its drafts do not pay, passes without follow.

What drafts have brought, less what they have cost, is kept as a credit, in tokens. A drafter that
has used it up is tried again, a draft at a time, after pauses that are as long as what it lost is
dear and double while tries fail; its drafts have to promise more than they cost. So one that never
helps costs little, and one that has earned its keep is not stopped by a few bad drafts.
"""

from __future__ import annotations

FIRST_LOSS = 1.0  # tokens that a drafter may cost before it has brought any
MOST_CREDIT = 4.0  # what is earned beyond is not kept for bad times
TRYING = 0.03  # share of the time that the first tries which fail may cost
LONGEST = 512  # passes of a pause
DOUBLED = 2  # times that failed tries double the pause
WARY = 0.25  # with each of two failed tries, a draft must promise so much more


class Asking:
    """Of one drafter. A token is worth a pass without drafts at least."""

    def __init__(self) -> None:
        self._credit = FIRST_LOSS
        self._wait = self._failed = 0

    def begin(self) -> None:
        """Another text: drafts that did not pay may do now."""
        self._wait = 0

    def opens(self) -> bool:
        """Whether to ask before this pass; to be called once for each."""
        if self._wait > 0:
            self._wait -= 1
            return False
        return True

    @property
    def wariness(self) -> float:
        """What a draft is counted to cost, times what it does."""
        return 1 + WARY * min(self._failed, 2)

    def judge(self, gained: float, spent: float, drafting: float) -> None:
        """What became of a pass before which the drafter was asked, in tokens; of what was spent,
        `drafting` was the drafter's own."""
        self._credit = min(self._credit + gained - spent, MOST_CREDIT)
        if self._credit < 0:
            pause = max(-self._credit, drafting) / TRYING * 2 ** min(self._failed, DOUBLED)
            self._wait, self._credit = int(min(pause, LONGEST)), 0.0
            self._failed += 1
        elif self._credit >= FIRST_LOSS:
            self._failed = 0
