"""Torch thread counts for CPU passes: fewer while other programs are busy.

If another program occupies a core, a pass with two threads may take ten times as long as with one.
So a small product is timed now and then, and after slow passes, with all threads and with fewer.
Between requests torch has all of its threads. A count set by others becomes the maximum.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from math import inf

import torch

MIN_PAUSE, MAX_PAUSE = 1.0, 8.0  # seconds between trials; doubles while nothing changes
SLOW_PASS = 3.0  # times the usual pass; slower ones cause a trial after the least pause
DECAY_PER_PASS = 0.9  # decay per pass of the usual pass time
MAX_RATIO_TO_SWITCH = 0.8  # share of the used count's time that another count must stay below
MAX_SHARE_FOR_TRIALS = 0.02  # maximum share of the time for trials
ROUNDS, PRODUCTS = 2, 10  # the slowest round counts
ROWS, WIDTH, COLUMNS = 16, 512, 1024  # shape of the products; rows per thread


class PassThreads:
    """Torch's threads: `begin` and `end` a request, `adapt` before each pass."""

    def __init__(
        self,
        now: Callable[[], float] = time.perf_counter,
        trial: Callable[[int, int, float], float] | None = None,
    ) -> None:
        self._now, self._trial = now, trial or seconds_with_threads
        self._most = self._used = self._set = torch.get_num_threads()
        self._last, self._pause = -MIN_PAUSE, 0.0
        self._usual = 0.0  # seconds of a pass

    def begin(self) -> None:
        self._usual = 0.0
        self.adapt()
        self._set_threads(self._used)

    def adapt(self, passing: float = 0.0) -> None:
        """Choose again if it is time; the latest pass took `passing` seconds."""
        self._reset_if_changed_elsewhere()
        slow = passing > SLOW_PASS * self._usual > 0
        usual = DECAY_PER_PASS * self._usual + (1 - DECAY_PER_PASS) * passing
        self._usual = usual if self._usual else passing
        pause = min(MIN_PAUSE, self._pause) if slow else self._pause
        if self._most > 1 and self._now() >= self._last + pause:
            self._choose_fastest_count()

    def end(self) -> None:
        self._reset_if_changed_elsewhere()
        self._set_threads(self._most)

    def _reset_if_changed_elsewhere(self) -> None:
        if torch.get_num_threads() != self._set:
            self._most = self._used = self._set = torch.get_num_threads()
            self._usual = self._pause = 0.0

    def _set_threads(self, count: int) -> None:
        self._set = count
        torch.set_num_threads(count)

    def _choose_fastest_count(self) -> None:
        began, seconds, least = self._now(), {}, inf
        for count in sorted({self._most, self._most - 1, self._most // 2}):
            seconds[count] = self._trial(count, self._most, least / MAX_RATIO_TO_SWITCH)
            least = min(least, seconds[count])
        best = min(seconds, key=seconds.__getitem__)
        now = seconds.get(self._used, 0.0)
        changes = best != self._used and seconds[best] < MAX_RATIO_TO_SWITCH * now
        if changes:
            self._used, self._usual = best, 0.0
        longer = min(max(2 * self._pause, MIN_PAUSE), MAX_PAUSE)
        self._last = self._now()
        self._pause = max(
            MIN_PAUSE if changes else longer, (self._last - began) / MAX_SHARE_FOR_TRIALS
        )
        self._set_threads(self._used)


def seconds_with_threads(threads: int, most: int, limit: float) -> float:
    """Return the seconds of the slowest of ROUNDS rounds with `threads` threads.

    A round is work for `most` threads. Stops after `limit` seconds.
    """
    torch.set_num_threads(threads)
    rows, columns = torch.ones(ROWS * most, WIDTH), torch.ones(WIDTH, COLUMNS)
    longest = 0.0
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(PRODUCTS):
            torch.mm(rows, columns)
            longest = max(longest, time.perf_counter() - started)
            if longest > limit:
                return longest
    return longest


_CALLERS = threading.local()


def pass_threads() -> PassThreads:
    """Return the calling thread's: torch counts threads for each of Python's."""
    if not hasattr(_CALLERS, "own"):
        _CALLERS.own = PassThreads()
    own: PassThreads = _CALLERS.own
    return own
