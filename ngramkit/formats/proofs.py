"""Proofs that this machine has checked an artifact, so that it is done once.

A proof is an empty file in the user's private cache. Its name holds a manifest's checksum (the
values are valid) or also the identities of a copy's files (they hold the listed bytes).
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
from ngramkit.basics.untrusted import Identity, file_identity
from ngramkit.formats.manifest import Manifest

CHECKS_VERSION = 1  # version of the checks: raise it when an artifact that passed might now fail
PROOFS = TextCache("proofs", 8192)
# A file that is rewritten within a tick of the file system's clock keeps its identity.
TICK_NS = 20_000_000

LOG = logging.getLogger("ngramkit")


def is_proven(checksum: str, files: Mapping[str, Identity] | None = None) -> bool:
    """Return whether an artifact's values, or a copy's files, were checked before."""
    return PROOFS.get(_name_by_checksums_and_version(checksum, files)) is not None


def write_proof(checksum: str, files: Mapping[str, Identity]) -> None:
    names = [_name_by_checksums_and_version(checksum)]
    if all(time.time_ns() - file[-1] >= TICK_NS for file in files.values()):
        names.append(_name_by_checksums_and_version(checksum, files))
    if not all(PROOFS.put(name, "") for name in names):
        _warn_once()


def write_proof_of_own_files(folder: Path, manifest: Manifest) -> None:
    """Write a proof of files that this process made itself."""
    with suppress(OSError):
        write_proof(
            manifest.checksum,
            {name: file_identity((folder / name).stat()) for name in manifest.files},
        )


def _name_by_checksums_and_version(
    checksum: str, files: Mapping[str, Identity] | None = None
) -> str:
    if files is not None:
        checksum += "-" + hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()
    return f"{checksum}-{CHECKS_VERSION}"


@cache
def _warn_once() -> None:
    LOG.warning("cannot use the cache folder: artifacts are checked whenever they are opened")
