"""How many threads a build and an engine's drafters use; decode.pass_threads chooses for passes."""

from __future__ import annotations

from ngramkit.basics.errors import require_between
from ngramkit.basics.machine import cores

MAX_WORKERS = 1024  # more threads would only wait for each other
MAX_DRAFTING_THREADS = 4  # by default


def build_threads(workers: int | None) -> int:
    """Return `workers` (1 to MAX_WORKERS), or the number of cores for None."""
    if workers is None:
        return cores()
    require_between("workers", workers, 1, MAX_WORKERS)
    return workers


def drafting_threads(threads: int | None) -> int:
    """Return `threads` of an engine's drafters, or the default for None."""
    return threads or min(cores(), MAX_DRAFTING_THREADS)
