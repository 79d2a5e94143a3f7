"""The folder of the kernels' machine code.

Loading machine code means running it, so a folder is used only if nobody but the user and root can
write to it or to any folder above it (`basics.cache`). numba's own cache checks neither, and a
.numba_config.yaml in the working folder, which may be a stranger's, can move it.

The folder is NUMBA_CACHE_DIR, the user's cache folder or a temporary one. File names hold the
digest of all kernels' sources, so versions share the folder; the oldest files are deleted.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from functools import cache
from pathlib import Path

from ngramkit.basics.cache import is_private, private_folder

VARIABLE = "NUMBA_CACHE_DIR"
KERNELS = Path(__file__).parent
SUFFIX = ".nbc"
MAX_FILES = 2048  # a version compiles some 150
NOTICE = 25  # between INFO and WARNING: the command line shows it, programs do not
logger = logging.getLogger("ngramkit")
logging.addLevelName(NOTICE, "NOTICE")


@cache
def announce_compiling() -> None:
    """Log once per process that kernels are compiled."""
    logger.log(NOTICE, "compiling kernels (once: later runs find them)")


@cache
def folder() -> Path | None:
    """Return the folder for machine code, or None if there is no private one.

    Log a warning if it is not the one that NUMBA_CACHE_DIR names, or is a temporary one.
    """
    named, own = os.environ.get(VARIABLE), private_folder("kernels")
    if named:
        place = Path(named).absolute()
        if serves(place):
            return place
        logger.warning(
            "cannot use %s=%s: it is not writable, or others can write to it or above it",
            VARIABLE,
            place,
        )
    if own is not None and serves(own):
        return own
    temporary = Path(tempfile.gettempdir(), f"ngramkit-kernels-{os.getuid()}")
    if not serves(temporary):
        return None
    logger.warning(
        "compiled kernels are kept in %s for now (%s chooses a folder)", temporary, VARIABLE
    )
    return temporary


def serves(place: Path) -> bool:
    """Return whether a folder is private and takes files, or holds these kernels already.

    The latter is a read-only folder, as in a container's image.
    """
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if next(place.glob(f"*{file_ending()}"), None) is None:
            with tempfile.TemporaryFile(dir=place):
                pass
    except OSError:
        return False
    return is_private(place)


def file_ending(suffix: str = SUFFIX) -> str:
    """Return the end of the names of all files that belong to these sources."""
    return f"-{source_digest()[:16]}{suffix}"


def delete_oldest(place: Path) -> None:
    """Delete the machine code that was written first, in excess of MAX_FILES files."""
    files = list(place.glob(f"*{SUFFIX}"))
    if len(files) > MAX_FILES:
        files.sort(key=lambda path: path.stat().st_mtime_ns)
        for path in files[:-MAX_FILES]:
            path.unlink(missing_ok=True)


@cache
def source_digest() -> str:
    """Return a sha256 of all kernels' names and sources."""
    digest = hashlib.sha256()
    for path in sorted(KERNELS.rglob("*.py")):
        digest.update(path.relative_to(KERNELS).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
