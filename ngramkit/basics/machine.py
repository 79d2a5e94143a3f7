"""This machine: cores, memory, sizes, threads, processes and locks."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from weakref import WeakSet

from ngramkit.basics.errors import UsageError

MEMINFO = Path("/proc/meminfo")
STAT = Path("/proc/stat")
CGROUP, GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


def expand_home(path: str | Path) -> Path:
    """Expand a leading ~ or ~USER; one without a folder stays, as in a shell."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 (Path.expanduser raises)


def free_memory() -> int:
    """Return the bytes that a process can use without swapping."""
    try:
        match = re.search(r"^MemAvailable:\s*(\d+) kB", MEMINFO.read_text(), re.MULTILINE)
    except OSError:
        match = None
    if match:
        return min([int(match[1]) << 10, *_memory_left_by_groups()])
    # Not Linux: only the total is known.
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _memory_left_by_groups() -> Iterator[int]:
    """Yield the bytes that each control group with a limit leaves: a container's, a job's."""
    listed = CGROUP.read_text() if CGROUP.is_file() else ""
    own = re.search(r"^0::/(.*)", listed, re.MULTILINE)
    group = GROUPS / (own[1] if own else "")
    for folder in (group, *group.parents):
        with suppress(OSError, ValueError):  # no such file, or "max"
            limit, used = (int((folder / f"memory.{n}").read_text()) for n in ("max", "current"))
            cached = re.search(r"^inactive_file (\d+)", (folder / "memory.stat").read_text(), re.M)
            yield max(limit - used + int(cached[1] if cached else 0), 0)


def cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


class OtherPrograms:
    """The load of other programs on this process's cores since construction."""

    BUSY = 0.15  # share of the cores; timings are unreliable above it

    def __init__(self) -> None:
        self._began = self._now()

    @property
    def cores(self) -> float | None:
        """The average number of cores that they use; None if unknown or in the first 0.1 s."""
        wall, busy, own = (now - then for now, then in zip(self._now(), self._began, strict=True))
        if wall < 0.1 or not busy:
            return None
        return max(busy - own, 0.0) / wall

    @staticmethod
    def _now() -> tuple[float, float, float]:
        """Return seconds: wall clock, all programs on these cores, this process."""
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
    if others is None or others <= OtherPrograms.BUSY * cores():
        return ""
    return f"the machine was busy: other programs used {others:.1f} of {cores()} cores"


def parse_size(text: str) -> int:
    """Parse bytes: "4G" and "4GiB" are 4 * 2**30. Raises UsageError unless the size is positive."""
    match = SIZE.fullmatch(text.strip())
    largest = 1 << 60
    size = min(float(match[1]) * UNITS[match[2].lower()], largest + 1) if match else 0
    if not 1 <= size <= largest:
        raise UsageError(
            f"a size must be a number of bytes, got {text!r}", "Write it like 4G, 512M or 1000000."
        )
    return int(size)


def require_package(name: str, what: str, install: str = "") -> None:
    if find_spec(name) is None:
        raise UsageError(
            f"cannot {what}: the package {name} is missing", f"Run: pip install {install or name}"
        )


def version_of(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version  # slow to import

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def start_python(code: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start a Python process that runs `code` with this process's packages; `options` are Popen's.

    It imports nothing from the working folder, which may be untrusted (-P, PYTHONSAFEPATH).
    """
    root = str(Path(__file__).parents[1])
    path = os.pathsep.join(dict.fromkeys([*filter(None, sys.path), root]))
    environment = {**os.environ, **options.pop("env", {})}
    environment |= {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-P", "-c", code, *arguments]
    return subprocess.Popen(command, env=environment, text=True, **options)


class Lock:
    """A reentrant thread lock that is free in a forked child, where its holder does not exist.

    The guarded data must be consistent at any moment, since a fork may happen then.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_LOCKS: WeakSet[Lock] = WeakSet()


def _free_locks() -> None:
    for each in list(_LOCKS):
        each._lock = threading.RLock()


os.register_at_fork(after_in_child=_free_locks)
