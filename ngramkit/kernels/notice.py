"""One line in the log when kernels are compiled, which takes seconds; none when disk has them."""

from __future__ import annotations

import logging
from typing import Any

from numba.core import event

NOTICE = 25  # between INFO and WARNING: said by the command line, silent in programs
logging.addLevelName(NOTICE, "NOTICE")
SAID = "compiling kernels (once per installation)"


class Once(event.Listener):
    """Hears of every function that numba compiles, cached ones excepted."""

    said = False

    def on_start(self, event: Any) -> None:
        if not self.said:
            self.said = True
            logging.getLogger("ngramkit").log(NOTICE, SAID)

    def on_end(self, event: Any) -> None:
        pass


def listen() -> None:
    """From now on, in this process."""
    event.register("numba:compile", Once())
