"""GGUF files by name, and their conversion to cached model folders.

Tokenizers have their own folders, so that they do not wait for weights.
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
from ngramkit.formats.replacing import hold_lock
from ngramkit.gguf.header import read_header

HUB = re.compile(r"hf:([\w.-]+/[\w.-]+?)(?:@([\w./-]+))?:([^:]+\.gguf)", re.IGNORECASE)
CONVERSION_VERSION = 2  # a new one recreates all folders
MAX_UNUSED_SECONDS = 60 * 24 * 3600  # then a folder is deleted


def find_gguf(model: ModelRef) -> Path:
    """Return a GGUF model's file, downloaded if needed.

    Raises UsageError for an hf: name without a file, InputError for a missing file, NetworkError
    without a network.
    """
    name, revision = model.id, model.revision
    if not name.lower().startswith("hf:"):
        return Path(model.source)
    match = HUB.fullmatch(name)
    if match is None:
        raise UsageError(f"model must be hf:OWNER/NAME:FILE.gguf, got {name}", option="model")
    repository, at, file = match.groups()
    if revision not in (None, at) and at is not None:
        raise UsageError(f"model must have one revision, got {at} and {revision}", option="model")
    from huggingface_hub import hf_hub_download

    with hub_errors(repository, "model"):
        return Path(hf_hub_download(repository, file, revision=at or revision))


def tokenizer_folder(path: Path) -> Path:
    """Return the folder of a GGUF file's tokenizer.

    Raises InputError if the file is damaged, has no tokenizer, or cannot be cached.
    """
    from ngramkit.gguf.tokenizer import write_tokenizer  # slow import

    return model_part(path, "tokenizer", lambda folder: write_tokenizer(read_header(path), folder))


def model_part(path: Path, what: str, write: Callable[[Path], None]) -> Path:
    """Return a GGUF file's folder for `what`, filled by `write` if new."""
    root = private_folder("gguf")
    if root is None or not os.access(root, os.W_OK):
        raise InputError(
            f"cannot convert {path}: there is no writable cache folder",
            "Set XDG_CACHE_HOME to a folder of your own.",
        )
    folder = root / f"{_folder_name(path)}.{what}"
    if not folder.is_dir():
        with hold_lock(root / f"{folder.name}.lock"):
            if not folder.is_dir():
                _delete_unused(root, folder.name)
                _make_folder(folder, write)
    with suppress(OSError):
        os.utime(folder)
    return folder


def _folder_name(path: Path) -> str:
    place = path.resolve()
    state = place.stat()
    identity = f"{CONVERSION_VERSION}|{place}|{state.st_size}|{state.st_mtime_ns}"
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem)[:60]
    return f"{readable}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def _make_folder(folder: Path, write: Callable[[Path], None]) -> None:
    new = Path(tempfile.mkdtemp(prefix=f"{folder.name}.partial-", dir=folder.parent))
    try:
        write(new)
        for file in new.iterdir():
            with file.open("rb") as written:
                os.fsync(written.fileno())
        new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _delete_unused(root: Path, name: str) -> None:
    """Delete partial copies and unused folders."""
    with suppress(OSError):
        for folder in root.iterdir():
            partial = folder.name.startswith(f"{name}.partial-")
            if folder.is_dir() and (
                partial or time.time() - folder.stat().st_mtime > MAX_UNUSED_SECONDS
            ):
                shutil.rmtree(folder, ignore_errors=True)
