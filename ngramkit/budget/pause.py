"""Pauses of a drafter whose drafts do not pay: passes without a draft follow.

What drafts have earned, less their cost, is a credit in tokens, and so is what they have earned,
less the time of drafting alone: a draft that promises too little is not verified, and then only
having asked for it costs anything. A drafter that has used up either pauses, for as long as its
loss is large, and then drafts once; pauses double while that fails, and the drafts have to promise
more than they cost. So a drafter that never helps costs little, and one that has helped is not
stopped by a few bad drafts.
"""

from __future__ import annotations

FIRST_LOSS = 2.5  # tokens that verified drafts may cost before any has earned one
MOST_CREDIT = 8.0  # tokens; what is earned beyond is not saved
FIRST_ASKED, MOST_ASKED = 0.35, 0.8  # the same, of drafting alone
TRIAL_SHARE = 0.025  # of the time, that the first failing trials may cost
LONGEST = 512  # passes of a pause
DOUBLED = 2  # times that failed trials double the pause
CAUTION = 0.27  # what a draft must promise more, after each of two failed trials


class Pause:
    """The pauses of one drafter. A token is worth at least a pass without a draft."""

    def __init__(self) -> None:
        self._credit, self._asked = FIRST_LOSS, FIRST_ASKED
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
        self._asked = min(self._asked + gained - drafting, MOST_ASKED)
        if min(self._credit, self._asked) < 0:
            pause = max(-self._credit, drafting) / TRIAL_SHARE * 2 ** min(self._failed, DOUBLED)
            self._wait = int(min(pause, LONGEST))
            self._credit, self._asked = max(self._credit, 0.0), max(self._asked, 0.0)
            self._failed += 1
        elif self._credit >= FIRST_LOSS:
            self._failed = 0


class CountedPause:
    """The rule for one request of an engine, by counts of tokens alone and never by time, so that
    every rank of a tensor-parallel engine decides alike.

    A drafted token costs `cost` passes, an accepted one saves a pass. Once NEEDED tokens were
    drafted and have cost LOSS passes more than they saved, drafting pauses; after pauses that
    double, a draft of PROBED tokens decides anew.
    """

    NEEDED, PROBED = 24, 6  # drafted tokens
    SHORTEST, LONGEST = 8, 512  # steps of a pause
    LOSS = 1.0  # passes; a smaller one is chance
    FADE = 0.95  # of what was saved and spent, with each draft

    __slots__ = ("_drafted", "_needed", "_pause", "_saved", "_spent", "_wait")

    def __init__(self) -> None:
        self._saved = self._spent = 0.0  # passes
        self._drafted, self._needed = 0, self.NEEDED
        self._wait, self._pause = 0, self.SHORTEST

    def opens(self) -> bool:
        """Return whether to draft in this step; call once a step."""
        if self._wait > 0:
            self._wait -= 1
            return False
        return True

    def judge(self, drafted: int, accepted: int, cost: float) -> None:
        """Learn how many tokens of a draft were accepted."""
        if drafted == 0:
            return
        self._saved = self.FADE * self._saved + accepted
        self._spent = self.FADE * self._spent + cost * drafted
        self._drafted += drafted
        if self._drafted < self._needed:
            return
        if self._saved + self.LOSS < self._spent:
            self._wait, self._pause = self._pause, min(2 * self._pause, self.LONGEST)
            self._saved = self._spent = 0.0
            self._drafted, self._needed = 0, self.PROBED
        else:
            self._pause, self._needed = self.SHORTEST, self.NEEDED
