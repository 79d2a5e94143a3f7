"""Finds the artifact that was meant when none was named."""

from __future__ import annotations

from pathlib import Path

from ngramkit.errors import ArtifactError
from ngramkit.formats.manifest import NAME, TokenizerRecord, read_manifest

ARTIFACTS = Path("artifacts")


def newest(kind: str, tokenizer: TokenizerRecord, folder: Path = ARTIFACTS) -> Path | None:
    """The artifact of `kind` in `folder` that was finished last, of those with `tokenizer`'s ids.

    None where there is none. Folders that hold no readable manifest, and unfinished ones, do not
    count.
    """
    found = []
    for manifest_path in folder.glob(f"*/{NAME}"):
        path = manifest_path.parent
        if path.suffix == ".partial":
            continue
        try:
            manifest = read_manifest(path)
        except ArtifactError:
            continue
        if manifest.kind == kind and manifest.tokenizer.fingerprint == tokenizer.fingerprint:
            found.append((manifest_path.stat().st_mtime_ns, path))
    return max(found)[1] if found else None
