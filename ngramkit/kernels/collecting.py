"""The garbage collector rests while numba compiles: to look through all that numba makes, again and
again, takes a quarter of the time, and next to nothing of it is garbage."""

from __future__ import annotations

import gc
from typing import Any

from numba.core import event


class Rest(event.Listener):
    """From the first function that is begun to the last that is done: callers wait for callees."""

    def __init__(self) -> None:
        self._open = 0
        self._resting = False

    def on_start(self, event: Any) -> None:
        self._open += 1
        if self._open == 1 and gc.isenabled():
            self._resting = True
            gc.disable()

    def on_end(self, event: Any) -> None:
        self._open -= 1
        if self._open == 0 and self._resting:
            self._resting = False
            gc.enable()


def listen() -> None:
    """From now on, in this process."""
    event.register("numba:compile", Rest())
