"""Two names change what they stand for in one step, where the system can; what follows a crash.

Linux has renameat2(RENAME_EXCHANGE), macOS renamex_np(RENAME_SWAP); some file systems refuse both.
There, the old one steps aside as NAME.replaced.partial for the moment between two renames, and
`mend` puts it back if that moment was a process's last. Knows nothing of what the names stand for.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

RENAME_EXCHANGE = 2  # linux/fs.h
RENAME_SWAP = 2  # macOS, sys/stdio.h
AT_FDCWD = -100
REFUSALS = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM}


def exchange(one: Path, other: Path) -> bool:
    """Whether each name now stands for what the other did; False where the system has no such step.

    At no moment does either stand for nothing. Both must exist, on one file system.
    """
    swap = _system_call()
    if swap is None:
        return False
    import ctypes

    if swap(os.fsencode(one), os.fsencode(other)) == 0:
        return True
    code = ctypes.get_errno()
    if code in REFUSALS:
        return False
    raise OSError(code, os.strerror(code), str(one), None, str(other))


def _system_call() -> Any:
    """f(path, path) -> 0 or -1; None where the C library has none."""
    import ctypes

    if sys.platform == "win32":
        return None
    library = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin":
        swap = getattr(library, "renamex_np", None)
        return swap and (lambda one, other: swap(one, other, RENAME_SWAP))
    swap = getattr(library, "renameat2", None)
    return swap and (lambda one, other: swap(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE))


def put_over(new: Path, path: Path) -> Path | None:
    """`path` stands for what `new` did. Returns where the old one is now; None where was none."""
    if not path.exists():
        new.rename(path)
        return None
    if exchange(new, path):
        return new
    aside = stepped_aside(path)
    path.rename(aside)
    new.rename(path)
    return aside


def stepped_aside(path: Path) -> Path:
    return path.parent / f"{path.name}.replaced.partial"


def mend(path: Path) -> bool:
    """Puts back what stood at `path` where a replacement was cut off between its two renames.

    Whoever calls it holds the lock of `path`, or nobody replaces it.
    """
    if path.exists() or not stepped_aside(path).exists():
        return False
    with suppress(FileNotFoundError):
        stepped_aside(path).rename(path)
        sync_folder(path.parent)
    return path.exists()


def sync_folder(path: Path) -> None:
    """The names in it are on the disk when this returns; files have a way of their own."""
    if sys.platform == "win32":  # it opens no folders, and writes names itself
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
