"""The user's caches: private folders of small files by key.

    tokenizers              ngramkit.corpus.tokenizer
    gguf                    ngramkit.gguf.model_folders
    proofs                  ngramkit.formats.proofs
    kernels                 ngramkit.kernels.code_folder
    probes, packing, costs  ngramkit.decode
    staged                  ngramkit.remote.url_cache
    questions               ngramkit.evaluate.question_sets

They may be deleted at any time.
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
    """Texts by key, a file name. The oldest are deleted beyond the bounds."""

    name: str  # folder name
    most: int  # maximum number of texts
    most_bytes: int | None = None  # maximum size of all texts

    def get(self, key: str) -> str | None:
        folder = private_folder(self.name)
        if folder is None:
            return None
        try:
            return (folder / key).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    def put(self, key: str, text: str) -> bool:
        """Store the text atomically; return False if that fails."""
        folder = private_folder(self.name)
        if folder is None:
            return False
        temporary = folder / f"{key}.{os.getpid()}-{threading.get_ident()}.tmp"
        try:
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(folder / key)
            delete_oldest_beyond(folder, self.most, self.most_bytes)
        except OSError as error:
            LOG.debug("%s: %s", folder / key, error)
            with suppress(OSError):
                temporary.unlink()
            return False
        return True


def delete_oldest_beyond(folder: Path, most: int, most_bytes: int | None = None) -> None:
    with suppress(OSError):  # another process may delete them too
        names = os.listdir(folder)  # noqa: PTH208 -- pathlib takes three times as long
        if len(names) <= most and most_bytes is None:
            return
        states = [(path.stat(), path) for path in (folder / name for name in names)]
        states.sort(key=lambda each: each[0].st_mtime_ns)
        total = sum(state.st_size for state, _ in states)
        for left, (state, path) in zip(range(len(states), 0, -1), states, strict=True):
            if left <= most and (most_bytes is None or total <= most_bytes):
                return
            path.unlink()
            total -= state.st_size


def cache_folder(name: str) -> Path:
    return user_cache_path("ngramkit", appauthor=False) / name


def private_folder(name: str) -> Path | None:
    """Create and return a cache's folder; None if it is not private (`only_owner_writes`)."""
    folder = cache_folder(name)
    if not folder.is_absolute():  # the home folder is unknown
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
    if folder.is_dir():
        return
    _make_private(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


def only_owner_writes(path: Path) -> bool:
    """Return whether only the user and root can change the absolute `path`.

    The user or root must own every folder and link on the way, and no folder may be writable by
    others, except sticky ones such as /tmp. The user's own group counts as the user.
    """
    try:
        path.stat()  # raises for dangling and circular links
        return all(map(_is_private_step, (path, *path.parents)))
    except OSError:
        return False


_is_private_once = lru_cache(only_owner_writes)  # called at every opening of an artifact


def _is_private_step(place: Path) -> bool:
    state = place.lstat()
    if state.st_uid not in {0, os.geteuid()}:
        return False
    if stat.S_ISLNK(state.st_mode):
        return only_owner_writes(place.parent / place.readlink())
    return not _others_write(state)


def _others_write(state: os.stat_result) -> bool:
    if state.st_mode & stat.S_ISVTX and stat.S_ISDIR(state.st_mode):
        return False
    by_group = state.st_mode & stat.S_IWGRP and not _is_own_group(state.st_gid)
    return bool(state.st_mode & stat.S_IWOTH or by_group)


def _is_own_group(group: int) -> bool:
    import grp
    import pwd

    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
        entry = grp.getgrgid(group)
    except KeyError:
        return False
    return entry.gr_name == name and set(entry.gr_mem) <= {name}
