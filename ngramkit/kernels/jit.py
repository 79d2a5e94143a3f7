"""Decorators for kernels.

    entry                a kernel that Python calls
    part                 a function that only kernels call
    allocating_entry, allocating_part    the same for functions that create arrays

Parts are not annotated: numba types them from their callers.

`kernels.compiler` compiles 3.5 times as fast as numba's `njit(cache=True)`, which untested versions
of numba use.
"""

from __future__ import annotations

import gc
import logging
import os
import re
from typing import Any

import numba

from ngramkit.kernels.code_folder import (
    NOTICE,
    announce_compiling,
    file_ending,
    machine_code_folder,
)

TESTED_NUMBA = (0, 62), (0, 68)  # first and last version of numba
logger = logging.getLogger("ngramkit")


def is_tested(version: str) -> bool:
    """Return whether `kernels.compiler` was tested with this version of numba.

    >>> is_tested("0.65.0"), is_tested("0.99.1"), is_tested("1.0")
    (True, False, False)
    """
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return (
        numbers is not None
        and TESTED_NUMBA[0] <= (int(numbers[1]), int(numbers[2])) <= TESTED_NUMBA[1]
    )


class _Plain:
    """numba's own decorators, for untested versions."""

    def __init__(self) -> None:
        place = machine_code_folder()
        if place is not None:
            config: Any = numba.config  # its settings are created at run time
            config.CACHE_DIR = str(place / f"numba{file_ending('')}")
        njit: Any = numba.njit
        self.part = self.entry = njit(cache=place is not None, nogil=True)
        self.allocating_part = self.allocating_entry = self.part

    def compiled(self) -> list[str]:
        return []  # unknown


def _decorators() -> Any:
    if is_tested(numba.__version__):
        from ngramkit.kernels import compiler

        return compiler
    logger.log(
        NOTICE,
        "numba %s was not tested with ngramkit (%s to %s were): kernels take longer to compile",
        numba.__version__,
        *(".".join(map(str, version)) for version in TESTED_NUMBA),
    )
    return _Plain()


def _watch_compiler() -> None:
    """Announce compiling, pause the garbage collector meanwhile, and delay forks until its end."""
    try:
        from numba.core import event
        from numba.core.compiler_lock import global_compiler_lock as lock
    except ImportError:
        return

    class Watcher(event.Listener):
        paused = False
        depth = 0  # nested functions being compiled

        def on_start(self, event: Any) -> None:
            announce_compiling()
            self.depth += 1
            if self.depth == 1 and gc.isenabled():
                self.paused = True
                gc.disable()  # collecting takes a quarter of the compile time

        def on_end(self, event: Any) -> None:
            self.depth -= 1
            if self.depth == 0 and self.paused:
                self.paused = False
                gc.enable()

    event.register("numba:compile", Watcher())
    # Otherwise numba's lock could remain locked in the child.
    os.register_at_fork(
        before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
    )


_watch_compiler()
_chosen = _decorators()
compiled = _chosen.compiled  # () -> the kernels that this process has compiled
entry, part = _chosen.entry, _chosen.part
allocating_entry, allocating_part = _chosen.allocating_entry, _chosen.allocating_part
