"""Where artifacts are when nobody says: their default folder, their names, the newest of a kind."""

from __future__ import annotations

import re
from pathlib import Path

from ngramkit.errors import ArtifactError
from ngramkit.formats.manifest import NAME, TokenizerRecord, read_manifest

ARTIFACTS = Path("artifacts")


def default_place(*parts: str) -> Path:
    """artifacts/PART-PART-...; what is odd in a file's name becomes a dash.

    ("data/*.jsonl", "demo", "tokens") -> artifacts/data-jsonl-demo-tokens
    """
    return ARTIFACTS / re.sub(r"[^A-Za-z0-9._]+\.?", "-", "-".join(parts)).strip("-.")


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
