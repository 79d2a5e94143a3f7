"""The whole check of an artifact: every file's size and checksum, every invariant of its kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ngramkit.errors import ArtifactError
from ngramkit.formats.artifact import require
from ngramkit.formats.container import sha256_of
from ngramkit.formats.kinds import open_artifact


def verify_artifact(path: str | Path) -> Iterator[str]:
    """Yields one line for everything that holds: sizes, checksums, then the kind's invariants.

    Raises ArtifactError at the first breach.
    """
    artifact = open_artifact(path)
    for name, record in sorted(artifact.manifest.files.items()):
        file = artifact.path / name
        if not file.is_file():
            raise ArtifactError(f"{file} is missing", "build or pull the artifact again")
        size = file.stat().st_size
        require(size == record.bytes, file, f"{size:,} bytes where {record.bytes:,} are listed")
        yield f"{name}: size"
        require(sha256_of(file) == record.sha256, file, "its checksum is not the listed one")
        yield f"{name}: checksum"
    yield from artifact.check()
