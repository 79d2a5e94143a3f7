"""The folder for the machine code of kernels.

It lies in NUMBA_CACHE_DIR, the user's cache folder or a temporary one. Machine code is run as it is
read, so a folder is used only if nobody but the user and root can write to it or to any folder
above it (`basics.cache`). A .numba_config.yaml in the working folder, which numba would read,
decides nothing here: that may be a stranger's folder.

In it each version of the kernels' sources has its own folder, named by their digest. Those that
have not been used for long are deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import tempfile
import time
from functools import cache
from pathlib import Path

from ngramkit.basics.cache import is_private, private_folder

VARIABLE = "NUMBA_CACHE_DIR"
KERNELS = Path(__file__).parent
SUFFIX = ".nbc"
DIGEST = re.compile(r"[0-9a-f]{16}")
DAY = 24 * 3600.0
KEPT_DAYS = 30  # unused
KEPT_FOLDERS = 3  # beside our own, of those that were not used today
NOTICE = 25  # between INFO and WARNING: said by the command line, silent in programs
logger = logging.getLogger("ngramkit")
logging.addLevelName(NOTICE, "NOTICE")


@cache
def announce_compiling() -> None:
    """Say that kernels are compiled, once per process, whoever compiles them."""
    logger.log(NOTICE, "compiling kernels (once: later runs find them)")


@cache
def folder() -> Path | None:
    """Return the folder for the machine code of these sources, chosen once per process; None where
    nothing can be kept."""
    name = source_digest()[:16]
    root = choose_folder(name)
    if root is None:
        return None
    place = root / name
    with contextlib.suppress(OSError):
        place.mkdir(mode=0o700, exist_ok=True)
        os.utime(place)  # used today
        delete_old(place)
    return place if os.access(place, os.R_OK | os.X_OK) and is_private(place) else None


def choose_folder(name: str) -> Path | None:
    """Return the first private folder that holds `name`, or in which it can be made; None where
    there is none. Log where it is not NUMBA_CACHE_DIR, or lasts only until the next boot."""
    named, own = os.environ.get(VARIABLE), private_folder("kernels")
    if named:
        place = Path(named).absolute()
        if _serves(place, name):
            return place
        logger.warning(
            "%s=%s is not used: it cannot be written, or others can write to it or above it",
            VARIABLE,
            place,
        )
    if own is not None and _serves(own, name):
        return own
    temporary = Path(tempfile.gettempdir(), f"ngramkit-kernels-{os.getuid()}")
    if not _serves(temporary, name):
        return None
    logger.warning(
        "compiled kernels are kept in %s for now (%s chooses a folder)", temporary, VARIABLE
    )
    return temporary


def _serves(place: Path, name: str) -> bool:
    """Return whether a folder is private, and holds `name` (in a read-only image) or takes
    files."""
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (place / name).is_dir():
            with tempfile.TemporaryFile(dir=place):
                pass
    except OSError:
        return False
    return is_private(place)


def delete_old(own: Path) -> None:
    """Delete machine code of other sources beside `own` that was last used long ago: all of it
    after KEPT_DAYS, after a day all but the KEPT_FOLDERS used last. Nothing else is touched, and a
    process that still runs from it compiles again what it has not loaded yet."""
    others = [p for p in own.parent.iterdir() if DIGEST.fullmatch(p.name) and p != own]
    used = sorted(((p.lstat().st_mtime, p) for p in others if _is_folder(p)), reverse=True)
    now = time.time()
    for rank, (last, place) in enumerate(used):
        if now - last > (DAY if rank >= KEPT_FOLDERS else KEPT_DAYS * DAY):
            for path in place.iterdir():
                if SUFFIX in path.name or path.suffix in (".done", ".nbi"):
                    path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # something else is in it, or came meanwhile
                place.rmdir()


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


@cache
def source_digest() -> str:
    """Return a sha256 of all kernels' names and sources."""
    digest = hashlib.sha256()
    for path in sorted(KERNELS.rglob("*.py")):
        digest.update(path.relative_to(KERNELS).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
