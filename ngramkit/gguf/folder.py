"""A GGUF file as a model's folder, made once and kept in the user's cache.

The tokenizer's files and the whole model with its weights are kept apart: what needs only the
former never waits for the latter. A folder appears whole or not at all, and is made again where the
file has changed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from ngramkit.cache import private_folder
from ngramkit.errors import InputError
from ngramkit.formats.replacing import locked
from ngramkit.gguf.header import read_header
from ngramkit.gguf.tokenizer import write_tokenizer

VERSION = 1  # of the conversion: another one makes all folders again
UNUSED = 60 * 24 * 3600  # seconds after which a folder nobody used is deleted


def tokenizer_folder(path: Path) -> Path:
    """Where the tokenizer's files of the GGUF file `path` are. Raises InputError where it is
    damaged or holds none, or where there is no cache to keep them in."""
    return kept(path, "tokenizer", lambda folder: write_tokenizer(read_header(path), folder))


def kept(path: Path, what: str, write: Callable[[Path], None]) -> Path:
    """The folder of the file `path` for one purpose; `write` fills it where there is none yet."""
    root = private_folder("gguf")
    if root is None or not os.access(root, os.W_OK):
        raise InputError(
            f"{path} must be converted, and there is no cache folder to keep that in",
            "set XDG_CACHE_HOME to a folder of your own",
        )
    folder = root / f"{_name_of(path)}.{what}"
    if not folder.is_dir():
        with locked(root / f"{folder.name}.lock"):
            if not folder.is_dir():
                _tidy(root, folder.name)
                _make(folder, write)
    with suppress(OSError):
        os.utime(folder)
    return folder


def _name_of(path: Path) -> str:
    place = path.resolve()
    found = place.stat()
    known = f"{VERSION}|{place}|{found.st_size}|{found.st_mtime_ns}"
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem)[:60]
    return f"{readable}-{hashlib.sha256(known.encode()).hexdigest()[:16]}"


def _make(folder: Path, write: Callable[[Path], None]) -> None:
    new = Path(tempfile.mkdtemp(prefix=f"{folder.name}.partial-", dir=folder.parent))
    try:
        write(new)
        for file in new.iterdir():
            with file.open("rb") as written:
                os.fsync(written.fileno())
        new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _tidy(root: Path, name: str) -> None:
    """Deletes what killed processes left of this folder, and folders that nobody used for long."""
    for each in _old(root, name):
        shutil.rmtree(each, ignore_errors=True)


def _old(root: Path, name: str) -> Iterator[Path]:
    with suppress(OSError):
        for each in root.iterdir():
            left = each.name.startswith(f"{name}.partial-")
            if each.is_dir() and (left or time.time() - each.stat().st_mtime > UNUSED):
                yield each
