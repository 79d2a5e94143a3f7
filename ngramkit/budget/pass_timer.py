"""The durations of an engine's passes, by the calls of its drafter."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

Clock = Callable[[], float]  # seconds


class TimedPass(NamedTuple):
    requests: int
    drafted: int  # tokens that it verified
    seconds: float


class PassTimer:
    """Times a pass from the end of a call to the begin of the next one.

    Only passes in which every row continues count: in others a prompt was read, or the engine
    waited for requests.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rows: dict[Hashable, tuple[int, int]] = {}  # their tokens, and those of their drafts
        self._began = self._ended = 0.0

    def begin(self, sizes: Mapping[Hashable, int]) -> TimedPass | None:
        """Begin a call; return the pass before it, None if it does not count.

        `sizes`: the tokens of each row of the pass; 0 for a row that wrote nothing.
        """
        self._began, drafted = self._clock(), 0
        for name, size in sizes.items():
            before, draft = self._rows.get(name, (size, 0))
            if not 0 < size - before <= draft + 1:
                return None
            drafted += draft
        seconds = self._began - self._ended  # 0 if the clock is too coarse
        return TimedPass(len(sizes), drafted, seconds) if sizes and seconds > 0 else None

    def end(self, sizes: Mapping[Hashable, int], drafts: Sequence[int]) -> float:
        """End a call that drafted so many tokens for each row; return its seconds."""
        self._rows = {
            name: (size, draft) for (name, size), draft in zip(sizes.items(), drafts, strict=True)
        }
        self._ended = self._clock()
        return self._ended - self._began
