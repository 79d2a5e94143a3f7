"""The decorators of kernels.

    entry                a kernel that Python calls
    part                 a function that only kernels call
    allocating_entry, allocating_part    the same, where they make arrays
    optional_part        a part that is left out where its first argument is `packed.Absent`

With a numba that it was tested with, `kernels.parts` compiles them, three and a half times sooner
than numba's own way; with any other, numba's `njit(cache=True)` does, which computes the same.
"""

from __future__ import annotations

import gc
import logging
import os
import re
from typing import Any

import numba
from numba.extending import overload

from ngramkit.kernels.code_folder import NOTICE, announce_compiling, folder

TESTED = (0, 62), (0, 68)  # versions of numba, both included
logger = logging.getLogger("ngramkit")


def is_tested(version: str) -> bool:
    """Return whether `kernels.parts` knows the insides of that version of numba.

    >>> is_tested("0.65.0"), is_tested("0.99.1"), is_tested("1.0")
    (True, False, False)
    """
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is not None and TESTED[0] <= (int(numbers[1]), int(numbers[2])) <= TESTED[1]


class _Plain:
    """numba's own decorators, for a version that was not tested."""

    def __init__(self) -> None:
        place = folder()
        if place is not None:
            config: Any = numba.config  # whose settings are made at run time
            config.CACHE_DIR = str(place)
        njit: Any = numba.njit
        self.part = self.entry = njit(cache=place is not None, nogil=True)
        self.allocating_part = self.allocating_entry = self.part

    def optional_part(self, function: Any) -> Any:
        compiled = self.part(function)

        def stand_in(*arguments: Any) -> None: ...

        @overload(stand_in)
        def choose(*arguments):  # numba compares it with what it returns, annotations too
            if getattr(arguments[0], "absent", False):
                return lambda *arguments: None
            return lambda *arguments: compiled(*arguments)

        return stand_in

    def compiled(self) -> list[str]:
        return []  # numba does not tell


def _decorators() -> Any:
    """Return the module or object whose attributes are the decorators for this numba."""
    if is_tested(numba.__version__):
        from ngramkit.kernels import parts

        return parts
    logger.log(
        NOTICE,
        "numba %s is none that ngramkit was tested with (%s to %s): kernels take longer to compile",
        numba.__version__,
        *(".".join(map(str, version)) for version in TESTED),
    )
    return _Plain()


def _watch_compiler() -> None:
    """Say that kernels are compiled, keep the garbage collector from running meanwhile, and
    let no process fork during it. Do nothing with a numba that has no such events or lock."""
    try:
        from numba.core import event
        from numba.core.compiler_lock import global_compiler_lock as lock
    except ImportError:
        return

    class Watcher(event.Listener):
        paused = False
        depth = 0  # functions being compiled: callers wait for what they call

        def on_start(self, event: Any) -> None:
            announce_compiling()
            self.depth += 1
            if self.depth == 1 and gc.isenabled():
                self.paused = True
                gc.disable()  # to look through all that numba makes takes a quarter of the time

        def on_end(self, event: Any) -> None:
            self.depth -= 1
            if self.depth == 0 and self.paused:
                self.paused = False
                gc.enable()

    event.register("numba:compile", Watcher())
    # Else numba's lock could stay locked in the child for ever.
    os.register_at_fork(
        before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
    )


_watch_compiler()
_chosen = _decorators()
compiled = _chosen.compiled  # () -> the names of kernels that this process has compiled and kept
entry, part = _chosen.entry, _chosen.part
allocating_entry, allocating_part = _chosen.allocating_entry, _chosen.allocating_part
optional_part = _chosen.optional_part
