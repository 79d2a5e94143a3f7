"""Where compiled kernels are kept: NUMBA_CACHE_DIR or the user's cache, if they can be written.

A read-only image, or another user's home: then a folder of this user's alone under the system's
temporary one, which lasts as long as that does. Compiled code is run as it is, so a folder that
somebody else could have made there is not used.
"""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

from numba import config as _config

from ngramkit.caches import private_folder

config: Any = _config  # numba's settings, which it makes at run time
logger = logging.getLogger("ngramkit")


def prepare() -> None:
    """Called before the first kernel is asked for; machine_code looks where this points."""
    if any(map(writable, places())):
        return
    config.CACHE_DIR = str(own_temporary())
    logger.warning(
        "compiled kernels cannot be kept where they belong; they are in %s for now "
        "(NUMBA_CACHE_DIR chooses a folder)",
        config.CACHE_DIR,
    )


def places() -> list[Path]:
    """The folder that machine_code keeps kernels in, where there can be one."""
    if config.CACHE_DIR:
        return [Path(config.CACHE_DIR)]
    own = private_folder("kernels")
    return [] if own is None else [own]


def writable(folder: Path) -> bool:
    """Whether files can be made in it, or it itself where it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def own_temporary() -> Path:
    """One folder per user; a new one where that name is somebody else's."""
    if hasattr(os, "getuid"):
        folder = Path(tempfile.gettempdir(), f"ngramkit-kernels-{os.getuid()}")
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
            private = stat.S_IMODE(found.st_mode) & 0o077 == 0
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and private:
                return folder
        except OSError:
            pass
    return Path(tempfile.mkdtemp(prefix="ngramkit-kernels-"))
