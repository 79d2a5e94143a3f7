"""Off by itself: a request whose drafts do not pay is not drafted for, but for probes.

Counts steps and tokens, never time, so that every rank of a tensor-parallel engine decides alike.
"""

from __future__ import annotations

ENOUGH = 24  # drafted tokens before a request is judged
PROBED = 6  # drafted tokens that a probe is judged by
FIRST_PAUSE, LONGEST_PAUSE = 8, 512  # steps
FADE = 0.95  # of what was earned and spent, with each judged draft


class Gate:
    """Of one request. A drafted token costs `least` of a pass, an accepted one saves a pass."""

    __slots__ = ("_drafted", "_earned", "_needed", "_pause", "_spent", "_wait")

    def __init__(self) -> None:
        self._earned = self._spent = 0.0
        self._drafted, self._needed = 0, ENOUGH
        self._wait, self._pause = 0, FIRST_PAUSE

    def opens(self) -> bool:
        """Whether to draft in this step; asked once a step."""
        if self._wait > 0:
            self._wait -= 1
            return False
        return True

    def judge(self, drafted: int, accepted: int, least: float) -> None:
        """What became of a draft. Closes where drafts have cost more than they saved."""
        if drafted == 0:
            return
        self._earned = FADE * self._earned + accepted
        self._spent = FADE * self._spent + least * drafted
        self._drafted += drafted
        if self._drafted < self._needed:
            return
        if self._earned < self._spent:
            self._wait, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
            self._earned = self._spent = 0.0
            self._drafted, self._needed = 0, PROBED
        else:
            self._pause, self._needed = FIRST_PAUSE, ENOUGH
