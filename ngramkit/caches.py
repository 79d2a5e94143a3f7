"""Where ngramkit keeps what it can do without: in the user's cache folder, by the system's custom.

Nothing in it decides a result; all of it may be deleted at any time.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from platformdirs import user_cache_path


def cache_folder(name: str) -> Path:
    """The folder for one purpose, maybe not there yet: ~/.cache/ngramkit/NAME on Linux."""
    return user_cache_path("ngramkit", appauthor=False) / name


def private_folder(name: str) -> Path | None:
    """As cache_folder, made if need be; None where it cannot be, or others might write into it.

    Only the user whose folder it is may enter it, so what is found there is the user's own.
    """
    folder = cache_folder(name)
    if not folder.is_absolute():  # nobody's home is known
        return None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        stat = folder.lstat()
    except OSError:
        return None
    if hasattr(os, "geteuid") and (stat.st_uid != os.geteuid() or stat.st_mode & 0o077):
        return None
    return folder if folder.is_dir() and not folder.is_symlink() else None


def make_room(folder: Path, most: int) -> None:
    """Leaves the `most` files of the folder that were written last."""
    held = list(folder.iterdir())
    if len(held) <= most:
        return
    with suppress(OSError):  # another process may be doing the same
        for path in sorted(held, key=lambda path: path.stat().st_mtime_ns)[: len(held) - most]:
            path.unlink()
