"""The whole check of an artifact, whatever is known of it: every byte, every value, the card."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ngramkit.formats.checks import check_whole
from ngramkit.formats.kinds import kind_of
from ngramkit.formats.manifest import read_manifest


def verify_artifact(path: str | Path) -> Iterator[str]:
    """Yields one line for everything that holds: sizes, checksums, then the kind's invariants.

    Raises ArtifactError at the first breach.
    """
    path = Path(path)
    manifest = read_manifest(path)
    artifact = kind_of(path, manifest.kind).unchecked(path, manifest)
    yield "manifest"
    yield from check_whole(artifact)
