"""Proofs that this machine has checked an artifact, every value of it, so that it is done once.

A proof is an empty file in the user's own cache, never inside an artifact. One is named by the
checksum of a manifest, which lists every file's sha256, and the version of the checks: values of
these bytes hold, wherever they lie. Another is named by the identities (device, inode, size, times)
of a copy's files, too: its bytes were found to be the listed ones. Without a cache folder,
everything is checked each time.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from ngramkit.basics.cache import TextCache
from ngramkit.basics.untrusted import Identity, identity
from ngramkit.formats.manifest import Manifest

CHECKS = 1  # goes up when an artifact that passed before might not pass now
PROOFS = TextCache("proofs", 8192)
# A file that is written again within a tick of the file system's clock looks the same.
TICK_NS = 20_000_000

LOG = logging.getLogger("ngramkit")


def are_values_proven(checksum: str) -> bool:
    """Return whether the values that the manifest with this checksum lists were checked."""
    return PROOFS.get(_name(checksum)) is not None


def is_copy_proven(checksum: str, files: Mapping[str, Identity]) -> bool:
    """Return whether `files` were found to be what the manifest with this checksum lists."""
    return PROOFS.get(_name(checksum, files)) is not None


def write_proof(checksum: str, files: Mapping[str, Identity]) -> None:
    """Write proofs that a copy of these `files` was found whole, bytes and values."""
    names = [_name(checksum)]
    if all(time.time_ns() - file[-1] >= TICK_NS for file in files.values()):
        names.append(_name(checksum, files))
    if not all(PROOFS.put(name, "") for name in names):
        _warn_once()


def vouch(folder: Path, manifest: Manifest) -> None:
    """Write a proof of files that this process has written from arrays that it made."""
    with suppress(OSError):
        write_proof(
            manifest.checksum,
            {name: identity((folder / name).stat()) for name in manifest.files},
        )


def _name(checksum: str, files: Mapping[str, Identity] | None = None) -> str:
    if files is not None:
        checksum += "-" + hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()
    return f"{checksum}-{CHECKS}"


@cache
def _warn_once() -> None:
    LOG.warning(
        "the cache folder cannot be used, so artifacts are checked each time they are opened"
    )
