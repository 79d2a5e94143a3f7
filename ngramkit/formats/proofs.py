"""Proofs that this machine has checked every value of an artifact, so that it is done once.

A proof is an empty file in the user's private cache. One is named by a manifest's checksum and the
version of the checks: the values of the listed bytes are valid. Another is also named by the
identities (device, inode, size, times) of a copy's files: they hold the listed bytes. Without a
cache folder everything is checked at every opening.
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

CHECKS = 1  # raised when an artifact that passed might now fail
PROOFS = TextCache("proofs", 8192)
# A file that is rewritten within a tick of the file system's clock keeps its identity.
TICK_NS = 20_000_000

LOG = logging.getLogger("ngramkit")


def are_values_proven(checksum: str) -> bool:
    """Return whether the values that the manifest lists were checked."""
    return PROOFS.get(_name(checksum)) is not None


def is_copy_proven(checksum: str, files: Mapping[str, Identity]) -> bool:
    """Return whether `files` were found to hold the bytes that the manifest lists."""
    return PROOFS.get(_name(checksum, files)) is not None


def write_proof(checksum: str, files: Mapping[str, Identity]) -> None:
    """Write proofs of the bytes and values of a copy of these `files`."""
    names = [_name(checksum)]
    if all(time.time_ns() - file[-1] >= TICK_NS for file in files.values()):
        names.append(_name(checksum, files))
    if not all(PROOFS.put(name, "") for name in names):
        _warn_once()


def vouch(folder: Path, manifest: Manifest) -> None:
    """Write a proof of files that this process made itself."""
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
    LOG.warning("cannot use the cache folder: artifacts are checked whenever they are opened")
