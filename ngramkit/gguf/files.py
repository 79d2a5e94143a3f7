"""A GGUF file by its name, and as a model's folder.

A name is a path, a file of a Hub repository, or a short name that a package brings. The folder is
made once and kept in the user's cache: the tokenizer's files and the whole model with its weights
are separate folders, so that a command that needs only the tokenizer never waits for the weights. A
folder appears whole or not at all, and is made again where the file has changed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ngramkit.basics.cache import private_folder
from ngramkit.basics.errors import InputError, UsageError, hub_errors
from ngramkit.basics.models import ModelRef
from ngramkit.formats.replacing import locked
from ngramkit.gguf.header import read_header

HUB = re.compile(r"hf:([\w.-]+/[\w.-]+?)(?:@([\w./-]+))?:([^:]+\.gguf)", re.IGNORECASE)
VERSION = 2  # of the conversion; a new one makes all folders again
UNUSED = 60 * 24 * 3600  # seconds after which an unused folder is deleted


def find_gguf(model: ModelRef) -> Path | None:
    """Return a model's GGUF file, fetched if the Hub's cache lacks it; None for other models.

    Raises UsageError for an hf: name without a file, InputError if there is no such file,
    NetworkError without a network.
    """
    if not model.is_gguf:
        return None
    name, revision = model.id, model.revision
    if not name.lower().startswith("hf:"):
        return Path(model.source)
    match = HUB.fullmatch(name)
    if match is None:
        raise UsageError(f"model must be hf:OWNER/NAME:FILE.gguf, got {name}", option="model")
    repository, at, file = match.groups()
    if revision not in (None, at) and at is not None:
        raise UsageError(
            f"model has two revisions, {at} and {revision}", "name one revision", option="model"
        )
    from huggingface_hub import hf_hub_download

    with hub_errors(repository, "model"):
        return Path(hf_hub_download(repository, file, revision=at or revision))


def tokenizer_folder(path: Path) -> Path:
    """Return the folder with the tokenizer's files of the GGUF file `path`.

    Raises InputError where the file is damaged or holds no tokenizer, or where there is no cache
    folder.
    """
    from ngramkit.gguf.tokenizer import write_tokenizer  # its imports take longer than most files

    return model_part(path, "tokenizer", lambda folder: write_tokenizer(read_header(path), folder))


def model_part(path: Path, what: str, write: Callable[[Path], None]) -> Path:
    """Return the folder of the GGUF file `path` for one purpose; `write` fills a new one."""
    root = private_folder("gguf")
    if root is None or not os.access(root, os.W_OK):
        raise InputError(
            f"{path} must be converted, and there is no cache folder to keep that in",
            "set XDG_CACHE_HOME to a folder of your own",
        )
    folder = root / f"{_folder_name(path)}.{what}"
    if not folder.is_dir():
        with locked(root / f"{folder.name}.lock"):
            if not folder.is_dir():
                _tidy(root, folder.name)
                _make(folder, write)
    with suppress(OSError):
        os.utime(folder)
    return folder


def _folder_name(path: Path) -> str:
    place = path.resolve()
    state = place.stat()
    identity = f"{VERSION}|{place}|{state.st_size}|{state.st_mtime_ns}"
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem)[:60]
    return f"{readable}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


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
    """Delete a killed process's partial copies of this folder, and folders unused for long."""
    with suppress(OSError):
        for folder in root.iterdir():
            partial = folder.name.startswith(f"{name}.partial-")
            if folder.is_dir() and (partial or time.time() - folder.stat().st_mtime > UNUSED):
                shutil.rmtree(folder, ignore_errors=True)
