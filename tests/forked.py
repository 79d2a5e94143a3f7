"""A forked child, whose work the parent waits for only so long."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable

PATIENCE = 120.0  # seconds after which a child hangs


def in_child(work: Callable[[], None]) -> str:
    """Run `work` in a forked child: "done", "failed" (its traceback is on stderr) or "hung"."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return "done" if status == 0 else "failed"
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hung"
