"""Where ngramkit keeps what it can do without: in the user's cache folder, by the system's custom.

Nothing in it decides a result; all of it may be deleted at any time.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from platformdirs import user_cache_path


def cache_folder(name: str) -> Path:
    """The folder for one purpose, maybe not there yet: ~/.cache/ngramkit/NAME on Linux."""
    return user_cache_path("ngramkit", appauthor=False) / name


def private_folder(name: str) -> Path | None:
    """Return the folder for one purpose, made if need be; None where it cannot be made or is not
    private (see `is_private`).

    Only the user may enter it, so what is found there is the user's own.
    """
    folder = cache_folder(name)
    if not folder.is_absolute():  # nobody's home is known
        return None
    try:
        _make_private(folder)
        found = folder.lstat()
    except OSError:
        return None
    if hasattr(os, "geteuid") and (found.st_uid != os.geteuid() or found.st_mode & 0o077):
        return None
    return folder if stat.S_ISDIR(found.st_mode) and _known_private(folder.parent) else None


@lru_cache
def _known_private(path: Path) -> bool:
    """As `is_private`, found out once per process: it is asked whenever an artifact is opened."""
    return is_private(path)


def _make_private(folder: Path) -> None:
    """Make the folder and those above it that are missing, whatever the umask, for the user
    alone."""
    if folder.is_dir():
        return
    _make_private(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


MOST_LINKS = 40  # followed on one path, as the kernel does


def is_private(path: Path) -> bool:
    """Return whether nobody but the user and root can change what stands at the absolute `path`.

    Every folder and every link on the way belongs to the user or root, and no folder may be written
    by others, unless its sticky bit keeps what is in it with its owners (as /tmp). A group of the
    user's own, as most systems give each user, counts as the user.
    """
    if not hasattr(os, "geteuid"):
        return True  # there are no such modes to read
    owners, links = {0, os.geteuid()}, 0
    place, ahead = Path(path.anchor), list(reversed(path.parts[1:]))
    try:
        while True:
            found = place.lstat()
            if found.st_uid not in owners:
                return False
            if stat.S_ISLNK(found.st_mode):
                links += 1
                target = place.readlink()
                ahead += reversed(target.parts[1:] if target.is_absolute() else target.parts)
                place = Path(target.anchor) if target.is_absolute() else place.parent
                if links > MOST_LINKS:
                    return False
            elif _others_write(found):
                return False
            if not ahead:
                return True
            step = ahead.pop()
            place = place.parent if step == ".." else place / step
    except OSError:
        return False


def _others_write(found: os.stat_result) -> bool:
    if found.st_mode & stat.S_ISVTX and stat.S_ISDIR(found.st_mode):
        return False
    by_group = found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid)
    return bool(found.st_mode & stat.S_IWOTH or by_group)


def _is_own_group(group: int) -> bool:
    """Return whether the group has the user's name and nobody else in it."""
    import grp
    import pwd

    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
        found = grp.getgrgid(group)
    except KeyError:
        return False
    return found.gr_name == name and set(found.gr_mem) <= {name}


def make_room(folder: Path, most: int) -> None:
    """Leaves the `most` files of the folder that were written last."""
    held = list(folder.iterdir())
    if len(held) <= most:
        return
    with suppress(OSError):  # another process may be doing the same
        for path in sorted(held, key=lambda path: path.stat().st_mtime_ns)[: len(held) - most]:
            path.unlink()
