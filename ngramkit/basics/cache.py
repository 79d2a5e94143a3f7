"""The user's caches: small texts by key, in private folders of the system's cache folder.

    tokenizers  as transformers loads them, and what tells them apart    ngramkit.corpus.tokenizer
    gguf        GGUF files as model folders                              ngramkit.gguf.files
    proofs      artifacts that were checked whole                        ngramkit.formats.artifact
    kernels     compiled code                                            ngramkit.kernels
    probes, packing, costs  what was measured of models                  ngramkit.decode
    staged      files of artifacts behind URLs                           ngramkit.remote.file_cache

All of it may be deleted at any time, and is then found out again.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from platformdirs import user_cache_path

LOG = logging.getLogger("ngramkit")


@dataclass(frozen=True)
class TextCache:
    """Texts under keys that are file names; of those, the last written within the bounds stay."""

    name: str  # of the folder
    most: int  # texts
    most_bytes: int | None = None  # of all texts; None: any

    def get(self, key: str) -> str | None:
        """Return the text, None where none is kept or it cannot be read."""
        folder = private_folder(self.name)
        if folder is None:
            return None
        try:
            return (folder / key).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    def put(self, key: str, text: str) -> bool:
        """Keep the text, whole or not at all; return False where there is no place for it."""
        folder = private_folder(self.name)
        if folder is None:
            return False
        temporary = folder / f"{key}.{os.getpid()}-{threading.get_ident()}.tmp"
        try:
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(folder / key)
            make_room(folder, self.most, self.most_bytes)
        except OSError as error:
            LOG.debug("%s: %s", folder / key, error)
            with suppress(OSError):
                temporary.unlink()
            return False
        return True


def make_room(folder: Path, most: int, most_bytes: int | None = None) -> None:
    """Delete the files of the folder that were written first, until at most `most` files of at most
    `most_bytes` together are left."""
    with suppress(OSError):  # another process may be doing the same
        paths = list(folder.iterdir())
        if len(paths) <= most and most_bytes is None:
            return
        states = [(path.stat(), path) for path in paths]
        states.sort(key=lambda each: each[0].st_mtime_ns)
        total = sum(state.st_size for state, _ in states)
        for left, (state, path) in zip(range(len(states), 0, -1), states, strict=True):
            if left <= most and (most_bytes is None or total <= most_bytes):
                return
            path.unlink()
            total -= state.st_size


def cache_folder(name: str) -> Path:
    """Return the folder for one purpose, ~/.cache/ngramkit/NAME on Linux; it may not exist yet."""
    return user_cache_path("ngramkit", appauthor=False) / name


def private_folder(name: str) -> Path | None:
    """Return the folder for one purpose, which only the user may enter.

    It is made if need be. None where it cannot be made or is not private, see `is_private`.
    """
    folder = cache_folder(name)
    if not folder.is_absolute():  # nobody's home is known
        return None
    try:
        _make_private(folder)
        state = folder.lstat()
    except OSError:
        return None
    if state.st_uid != os.geteuid() or state.st_mode & 0o077:
        return None
    return folder if stat.S_ISDIR(state.st_mode) and _is_private_once(folder.parent) else None


def _make_private(folder: Path) -> None:
    """Make the folder and those above it that are missing, whatever the umask, for the user
    alone."""
    if folder.is_dir():
        return
    _make_private(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


def is_private(path: Path) -> bool:
    """Return whether nobody but the user and root can change what stands at the absolute `path`.

    Every folder and every link on the way belongs to the user or root, and no folder may be written
    by others, unless its sticky bit keeps what is in it with its owners (as /tmp). A group of the
    user's own, as most systems give each user, counts as the user.
    """
    try:
        path.stat()  # links that lead nowhere, or to themselves, are told by the system
        return all(map(_is_private_step, (path, *path.parents)))
    except OSError:
        return False


_is_private_once = lru_cache(is_private)  # every artifact that is opened asks it


def _is_private_step(place: Path) -> bool:
    """Return whether nobody but the user and root can change this folder or this link, nor what it
    leads to."""
    state = place.lstat()
    if state.st_uid not in {0, os.geteuid()}:
        return False
    if stat.S_ISLNK(state.st_mode):
        return is_private(place.parent / place.readlink())
    return not _others_write(state)


def _others_write(state: os.stat_result) -> bool:
    if state.st_mode & stat.S_ISVTX and stat.S_ISDIR(state.st_mode):
        return False
    by_group = state.st_mode & stat.S_IWGRP and not _is_own_group(state.st_gid)
    return bool(state.st_mode & stat.S_IWOTH or by_group)


def _is_own_group(group: int) -> bool:
    """Return whether the group has the user's name and no other member."""
    import grp
    import pwd

    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
        entry = grp.getgrgid(group)
    except KeyError:
        return False
    return entry.gr_name == name and set(entry.gr_mem) <= {name}
