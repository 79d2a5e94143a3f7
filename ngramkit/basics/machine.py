"""This machine: cores, memory, sizes, threads, processes and locks."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import threading
import time
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from weakref import WeakSet

from ngramkit.basics.errors import UsageError, require_between

MEMINFO = Path("/proc/meminfo")
STAT = Path("/proc/stat")
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
MAX_WORKERS = 1024  # more threads would only wait for each other
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


def free_memory() -> int:
    """Return the bytes that a new process can use without swapping."""
    try:
        match = re.search(r"^MemAvailable:\s*(\d+) kB", MEMINFO.read_text(), re.MULTILINE)
    except OSError:
        match = None
    if match:
        return int(match[1]) << 10
    # Not Linux: only the total is known.
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def cores() -> int:
    """Return the number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def processor() -> str:
    """Return the processor's name, or its architecture if the name is unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


class OtherPrograms:
    """The load of other programs on this process's cores since the object was created."""

    BUSY = 0.15  # share of the cores from which timings are unreliable

    def __init__(self) -> None:
        self._began = self._now()

    @property
    def cores(self) -> float | None:
        """The number of cores that they use on average; None if unknown or after under 0.1 s."""
        wall, busy, own = (now - then for now, then in zip(self._now(), self._began, strict=True))
        if wall < 0.1 or not busy:
            return None
        return max(busy - own, 0.0) / wall

    @staticmethod
    def _now() -> tuple[float, float, float]:
        """Return seconds: of the clock, of all programs on these cores, of this process."""
        return time.monotonic(), _busy_seconds(), time.process_time()


def _busy_seconds() -> float:
    try:
        names = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        lines = [line.split() for line in STAT.read_text(encoding="utf-8").splitlines()]
        # user nice system idle iowait irq softirq steal
        ticks = [list(map(int, line[1:9])) for line in lines if line[0] in names]
    except (OSError, AttributeError, ValueError, IndexError):
        return 0.0
    return sum(sum(each) - sum(each[3:5]) for each in ticks) / os.sysconf("SC_CLK_TCK")


def busy_note(others: float | None) -> str:
    """Return a note if other programs were so busy that timings are unreliable, else ""."""
    if others is None or others <= OtherPrograms.BUSY * cores():
        return ""
    return f"the machine was busy: other programs used {others:.1f} of {cores()} cores"


def threads(workers: int | None) -> int:
    """Return the number of threads: `workers`, or the number of cores if it is None.

    Raises UsageError unless `workers` is 1 to MAX_WORKERS.
    """
    if workers is None:
        return cores()
    require_between("workers", workers, 1, MAX_WORKERS)
    return workers


def parse_size(text: str) -> int:
    """Parse bytes: "4G" and "4GiB" are 4 * 2**30, "1.5m" is 1.5 * 2**20, "4096" is itself.

    Raises UsageError if `text` is not a size, or zero.
    """
    match = SIZE.fullmatch(text.strip())
    largest = 1 << 60
    size = min(float(match[1]) * UNITS[match[2].lower()], largest + 1) if match else 0
    if not 1 <= size <= largest:
        raise UsageError(f"{text!r} is not a size", "write it like 4G, 512M or 1000000")
    return int(size)


def require_package(name: str, what: str, install: str = "") -> None:
    """Raise UsageError unless the package that `what` needs is installed.

    `install` is what to install if that is more than the package.
    """
    if find_spec(name) is None:
        raise UsageError(f"{what} needs {name}", f"pip install {install or name}")


def version_of(package: str) -> str | None:
    """Return the installed version of a package, or None."""
    from importlib.metadata import PackageNotFoundError, version  # slow to import

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def start_python(code: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start a Python process that runs `code` with `arguments` in sys.argv; `options` are Popen's.

    It finds this process's packages. It imports nothing from the working folder, which may be a
    stranger's: because of -P, and of PYTHONSAFEPATH for its children.
    """
    root = str(Path(__file__).parents[1])  # the folder that holds the package ngramkit
    path = os.pathsep.join(dict.fromkeys([*filter(None, sys.path), root]))
    environment = {**os.environ, **options.pop("env", {})}
    environment |= {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-P", "-c", code, *arguments]
    return subprocess.Popen(command, env=environment, text=True, **options)


class Lock:
    """A lock of threads that is free in a forked child, where its holder does not exist.

    The guarded data must be consistent at any moment, since a fork may happen in between.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_LOCKS: WeakSet[Lock] = WeakSet()


def _free_locks() -> None:
    for each in list(_LOCKS):
        each._lock = threading.Lock()


os.register_at_fork(after_in_child=_free_locks)
