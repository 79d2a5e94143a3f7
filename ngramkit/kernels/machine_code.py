"""Machine code of kernels, kept between processes: a file for each kernel and its arguments' types.

A file is named by all that decides what is in it: the sources of all kernels, the versions of numba
and Python, the processor. So a kernel is compiled again when one that it calls has changed, an
image that is built anew finds what was compiled in it, and processes that compile at once lose
nothing of each other's: there is no index. Files are read as Python reads its own .pyc: whoever may
write into the folder may run code as its reader, so it is the user's own alone.

Other sources have other folders. Those that nobody has used for long are deleted; a process that
still runs from one compiles again what it has not loaded yet.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import re
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import numba
from llvmlite.binding import get_host_cpu_features, get_host_cpu_name
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps

from ngramkit.caches import private_folder

KERNELS = Path(__file__).parent
SUFFIX = ".nbc"
DONE = ".done"  # behind the name of a task of ngramkit.warm, all of whose kernels are there
DIGEST = re.compile(r"[0-9a-f]{16}")
DAY = 24 * 3600.0
KEPT_DAYS = 30  # unused
KEPT_FOLDERS = 3  # beside our own, of those that were not used today

PACKAGE = "ngramkit.kernels."
_VERSIONS = numba.__version__, sys.implementation.cache_tag
_compiled: list[str] = []  # kernels that this process has added to the folder


@cache
def folder() -> Path | None:
    """NUMBA_CACHE_DIR, else in the user's cache folder; None where nothing can be kept."""
    named = getattr(numba.config, "CACHE_DIR", "")
    place = Path(named) if named else private_folder("kernels")
    if place is None:
        return None
    place = place / source_digest()[:16]
    with contextlib.suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
        os.utime(place)  # used today
        delete_old(place)
    return place if os.access(place, os.R_OK | os.X_OK) else None


def delete_old(own: Path) -> None:
    """Deletes machine code of other sources beside `own` that was last used long ago: all of it
    after KEPT_DAYS, after a day all but the KEPT_FOLDERS used last. Nothing else is touched."""
    others = [p for p in own.parent.iterdir() if DIGEST.fullmatch(p.name) and p != own]
    used = sorted(((p.lstat().st_mtime, p) for p in others if _is_folder(p)), reverse=True)
    now = time.time()
    for rank, (last, folder) in enumerate(used):
        if now - last > (DAY if rank >= KEPT_FOLDERS else KEPT_DAYS * DAY):
            for path in folder.iterdir():
                if SUFFIX in path.name or path.suffix == DONE:
                    path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # something else is in it, or came meanwhile
                folder.rmdir()


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def compiled() -> list[str]:
    """Kernels that this process has compiled and kept, by module and name."""
    return sorted(_compiled)


def note_done(task: str) -> None:
    """All kernels of this task of ngramkit.warm are in the folder."""
    path = _done_path(task)
    with contextlib.suppress(OSError):
        if path is not None:
            path.touch()


def is_done(task: str) -> bool:
    path = _done_path(task)
    return path is not None and path.exists()


def _done_path(task: str) -> Path | None:
    place = folder()
    host = get_host_cpu_name(), str(get_host_cpu_features())
    return None if place is None else place / f"{task}-{_digest(repr((host, _VERSIONS)))}{DONE}"


@cache
def source_digest() -> str:
    """sha256 of every kernel's name and source."""
    digest = hashlib.sha256()
    for path in sorted(KERNELS.rglob("*.py")):
        digest.update(path.relative_to(KERNELS).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


class KeptCode(NullCache):
    """What numba asks for a kernel's code and gives it to, in place of its own cache."""

    def __init__(self, kernel: Any, options: str) -> None:
        self._name = f"{kernel.__module__}.{kernel.__qualname__}"
        self._options = options

    @property
    def cache_path(self) -> str | None:
        place = folder()
        return None if place is None else str(place)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """None where it was not kept, or cannot be read.

        numba fills its tables of what it can compile, and imports scipy and whatever extends it
        for that, when something is compiled: machine code needs its memory manager alone.
        """
        rtsys.initialize(target_context)
        path = self._path(sig, target_context.codegen())
        if path is None:
            return None
        try:
            kept = pickle.loads(path.read_bytes())
            return CompileResult._rebuild(target_context, *kept)
        except FileNotFoundError:
            return None
        except Exception:  # damaged: it is compiled and written again
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """A full disk or a folder that cannot be written costs the next process its time only."""
        path = self._path(sig, data.codegen)
        if path is None or data.lifted or data.library.has_dynamic_globals:
            return
        with contextlib.suppress(OSError):
            handle, part = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(dumps(data._reduce()))
                Path(part).replace(path)
                _compiled.append(self._name.removeprefix(PACKAGE))
            except BaseException:
                Path(part).unlink(missing_ok=True)
                raise

    def _path(self, sig: Any, codegen: Any) -> Path | None:
        place = folder()
        key = self._name, self._options, str(sig), codegen.magic_tuple(), _VERSIONS
        name = f"{self._name.removeprefix(PACKAGE)}-{_digest(repr(key))}{SUFFIX}"
        return None if place is None else place / name


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
