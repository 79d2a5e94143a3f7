"""Files that somebody else may have put there: only plain ones are opened, and never waited for."""

from __future__ import annotations

import os
import stat
from io import FileIO
from pathlib import Path

from ngramkit.errors import ArtifactError, InputError

# Which file it is and when it was last written: two that are equal hold the same bytes.
Identity = tuple[int, int, int, int, int]


def identity(found: os.stat_result) -> Identity:
    """Device, inode, size in bytes, times of the last write and change in ns."""
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def open_plain(
    path: Path, *, error: type[InputError] = ArtifactError, hint: str = "check the path"
) -> FileIO:
    """`path` opened for reading, unbuffered, links followed.

    Raises FileNotFoundError where there is none, else `error`: a folder, a pipe, a device.
    """
    try:
        # Non-blocking: opening a pipe would wait for somebody to write into it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as failure:
        why = getattr(failure, "strerror", None) or failure
        if isinstance(failure, NotADirectoryError):
            hint = f"name a folder: {path.parent} is none"
        raise error(f"{path} cannot be read: {why}", hint) from failure
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise error(f"{path} is not a plain file", hint)
    return FileIO(descriptor, "rb")


def read_plain(
    path: Path,
    most: int,
    *,
    error: type[InputError] = ArtifactError,
    hint: str = "check the path",
) -> bytes:
    """The bytes of a plain file of at most `most`; raises as `open_plain`, `error` if longer."""
    with open_plain(path, error=error, hint=hint) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise error(f"{path} has {size:,} bytes, more than {most:,}", hint)
        return file.read(size)  # `most` would be set aside in memory first
