"""Proofs that this machine has checked an artifact, every value of it, so that it is done once.

A proof is a small file in the user's own cache, never inside an artifact. Its name is the checksum
of a manifest (which lists every file's sha256) and the version of the checks, so it holds for
bytes, wherever they lie. Its content is the identities (device, inode, size, times) of the copies
whose bytes were found to be the listed ones. Without a cache folder, everything is checked each
time.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from ngramkit.basics.cache import TextCache
from ngramkit.basics.errors import InputError
from ngramkit.basics.untrusted import Identity, identity, parse_json
from ngramkit.formats.manifest import Manifest

CHECKS = 1  # goes up when an artifact that passed before might not pass now
COPIES = 8  # of one artifact, whose identities a proof holds
PROOFS = TextCache("proofs", 4096)
# A file that is written again within a tick of the file system's clock looks the same.
TICK_NS = 20_000_000

LOG = logging.getLogger("ngramkit")


def recall_proof(checksum: str) -> list[Any] | None:
    """Return the copies of the manifest with this checksum that are known to be whole, as JSON.

    None where its values were never checked by these checks.
    """
    text = PROOFS.get(_name(checksum))
    if text is None:
        return None
    try:
        body = parse_json(text, "a proof")
    except InputError:
        return None
    copies = body.get("copies") if isinstance(body, dict) else None
    return copies if isinstance(copies, list) else None


def write_proof(checksum: str, files: Mapping[str, Identity]) -> None:
    """Write a proof that a copy of these `files` was found whole, bytes and values."""
    copies, copy = recall_proof(checksum) or [], as_copy(files)
    if all(time.time_ns() - file[-1] >= TICK_NS for file in files.values()):
        copies = [*[other for other in copies if other != copy][-COPIES + 1 :], copy]
    if not PROOFS.put(_name(checksum), json.dumps({"copies": copies})):
        _warn_once()


def vouch(folder: Path, manifest: Manifest) -> None:
    """Write a proof of files that this process has written from arrays that it made."""
    with suppress(OSError):
        write_proof(
            manifest.checksum,
            {name: identity((folder / name).stat()) for name in manifest.files},
        )


def _name(checksum: str) -> str:
    return f"{checksum}-{CHECKS}.json"


def as_copy(files: Mapping[str, Identity]) -> dict[str, list[int]]:
    """Return the identities as they are read back from JSON."""
    return {name: list(file) for name, file in files.items()}


@cache
def _warn_once() -> None:
    LOG.warning(
        "the cache folder cannot be used, so artifacts are checked each time they are opened"
    )
