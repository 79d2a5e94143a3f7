"""The folder of the kernels' machine code.

Loading machine code runs it, so nobody but the user and root may have write access to the folder
and those above it (`basics.cache`). numba's own cache does not check this, and a stranger's
.numba_config.yaml in the working folder can move it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from functools import cache
from pathlib import Path

from ngramkit.basics.cache import only_owner_writes, private_folder

CACHE_VARIABLE = "NUMBA_CACHE_DIR"
KERNELS = Path(__file__).parent
CODE_SUFFIX = ".nbc"
MAX_CODE_FILES = 2048  # files; a version compiles about 150
NOTICE = 25  # between INFO and WARNING: the command line shows it, programs do not
logger = logging.getLogger("ngramkit")
logging.addLevelName(NOTICE, "NOTICE")


@cache
def announce_compiling() -> None:
    logger.log(NOTICE, "compiling kernels (once: later runs find them)")


@cache
def machine_code_folder() -> Path | None:
    """Return the folder for machine code, or None if there is no private one."""
    named, own = os.environ.get(CACHE_VARIABLE), private_folder("kernels")
    if named:
        place = Path(named).absolute()
        if is_usable(place):
            return place
        logger.warning(
            "cannot use %s=%s: it is not writable, or others can write to it or above it",
            CACHE_VARIABLE,
            place,
        )
    if own is not None and is_usable(own):
        return own
    temporary = Path(tempfile.gettempdir(), f"ngramkit-kernels-{os.getuid()}")
    if not is_usable(temporary):
        return None
    logger.warning(
        "compiled kernels are kept in %s for now (%s chooses a folder)", temporary, CACHE_VARIABLE
    )
    return temporary


def is_usable(place: Path) -> bool:
    """Return whether a folder is private, and writable or already filled."""
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if next(place.glob(f"*{file_ending()}"), None) is None:
            with tempfile.TemporaryFile(dir=place):
                pass
    except OSError:
        return False
    return only_owner_writes(place)


def file_ending(suffix: str = CODE_SUFFIX) -> str:
    return f"-{source_digest()[:16]}{suffix}"


def delete_oldest(place: Path) -> None:
    files = list(place.glob(f"*{CODE_SUFFIX}"))
    if len(files) > MAX_CODE_FILES:
        files.sort(key=lambda path: path.stat().st_mtime_ns)
        for path in files[:-MAX_CODE_FILES]:
            path.unlink(missing_ok=True)


@cache
def source_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(KERNELS.rglob("*.py")):
        digest.update(path.relative_to(KERNELS).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
