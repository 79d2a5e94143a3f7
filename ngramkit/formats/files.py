"""Files that somebody else may have put there: only plain ones are opened, and never waited for;
what is written goes into no file that a link leads to."""

from __future__ import annotations

import errno
import io
import os
import stat
from io import FileIO
from pathlib import Path
from typing import IO

from ngramkit.errors import ArtifactError, InputError, reason
from ngramkit.visible import visible

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


def open_stream(path: Path, *, error: type[InputError], hint: str = "check the path") -> IO[bytes]:
    """As `open_plain`, with a buffer."""
    return io.BufferedReader(open_plain(path, error=error, hint=hint))


def read_given(path: Path, most: int, *, hint: str = "check the path") -> bytes:
    """Return all of what a user names as a text, at most `most` bytes: a pipe or a device, too.

    A pipe that nobody writes to is empty. Raises InputError where it cannot be read or is longer.
    """
    try:
        # Non-blocking: opening a pipe would wait for somebody to write into it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(descriptor, True)
        with os.fdopen(descriptor, "rb") as file:
            raw = file.read(most + 1)
    except (OSError, ValueError) as failure:
        raise InputError(f"{path} cannot be read: {reason(failure)}", hint) from failure
    if len(raw) > most:
        raise InputError(f"{path} has more than {most:,} bytes", hint)
    return raw


def not_linked(path: str, flags: int) -> int:
    """Open for `open(..., opener=not_linked)`: OSError where a link, a pipe or a device stands at
    `path`, which is not waited for."""
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe that nobody reads from
            raise _not_plain(path) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_plain(path)
    return descriptor


def _not_plain(path: str) -> OSError:
    return OSError(errno.EINVAL, "it is not a plain file", path)


def require_no_links(folder: Path) -> None:
    """Raise ArtifactError where something in the folder stands for a file of elsewhere."""
    for entry in folder.rglob("*"):
        if entry.is_symlink():
            raise ArtifactError(
                f"{entry} is a link to {visible(str(entry.readlink()), 200)}",
                "put the file itself there, if it belongs to the artifact",
            )


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
