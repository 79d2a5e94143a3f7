"""What this machine has to spare: memory and cores. Sizes as people write them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ngramkit.errors import UsageError, require_between

MEMINFO = Path("/proc/meminfo")
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
MOST_WORKERS = 1024  # threads; more would only wait for each other
LARGEST = 1 << 60  # bytes
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
COUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([kmbt]?)", re.IGNORECASE)
MULTIPLES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}


def parse_count(text: str) -> int:
    """How many: "100B" is 10**11, "1.5m" 1.5 * 10**6, "4096" itself.

    Raises UsageError where `text` is no count, or zero.
    """
    match = COUNT.fullmatch(text.strip())
    count = min(float(match[1]) * MULTIPLES[match[2].lower()], LARGEST + 1) if match else 0
    if not 1 <= count <= LARGEST:
        raise UsageError(f"{text!r} is not a count", "write it like 100B, 40M or 1000000")
    return int(count)


def free_memory() -> int:
    """Bytes that a new process could use without swapping."""
    try:
        found = re.search(r"^MemAvailable:\s*(\d+) kB", MEMINFO.read_text(), re.MULTILINE)
    except OSError:
        found = None
    if found:
        return int(found[1]) << 10
    # Not Linux: the whole memory is known, what is free of it is not.
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def threads(workers: int | None) -> int:
    """`workers`, or as many as there are cores. Raises UsageError above MOST_WORKERS."""
    if workers is None:
        return cores()
    require_between("workers", workers, 1, MOST_WORKERS)
    return workers


def parse_size(text: str) -> int:
    """Bytes: "4G" and "4GiB" are 4 * 2**30, "1.5m" is 1.5 * 2**20, "4096" is itself.

    Raises UsageError where `text` is no size, or zero.
    """
    match = SIZE.fullmatch(text.strip())
    size = min(float(match[1]) * UNITS[match[2].lower()], LARGEST + 1) if match else 0
    if not 1 <= size <= LARGEST:
        raise UsageError(f"{text!r} is not a size", "write it like 4G, 512M or 1000000")
    return int(size)
