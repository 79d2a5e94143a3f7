"""The whole check of an artifact, even if it was checked before: bytes, values, the card."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ngramkit.formats.artifact import check_whole, require
from ngramkit.formats.card import PLACEHOLDER, card
from ngramkit.formats.kinds import kind_of
from ngramkit.formats.manifest import Manifest, read_manifest
from ngramkit.formats.outputs import CARD
from ngramkit.untrusted import AGAIN, read_plain

MOST_CARD = 1 << 22  # bytes
CHAPTER, ENTRIES = "\n\n## ", "Most frequent entries\n"


def verify_artifact(path: str | Path) -> Iterator[str]:
    """Yield a line for everything that holds: sizes, checksums, then the kind's invariants.

    Raises ArtifactError at the first breach.
    """
    path = Path(path)
    manifest = read_manifest(path)
    artifact = kind_of(path, manifest.kind).unchecked(path, manifest)
    yield "manifest"
    yield from check_whole(artifact)
    if _card_holds(path, manifest):
        yield "card"


def _card_holds(path: Path, manifest: Manifest) -> bool:
    """Return whether there is a card. Raises ArtifactError where it is not the manifest's.

    Its table of frequent entries needs a tokenizer, and is left out; so is the repository's name.
    """
    try:
        raw = read_plain(path / CARD, MOST_CARD, hint=AGAIN)
    except FileNotFoundError:
        return False
    chapters = raw.decode("utf-8", "replace").split(CHAPTER)
    kept = [chapter for chapter in chapters if not chapter.startswith(ENTRIES)]
    found = CHAPTER.join(kept).rstrip("\n")
    same = any(_is_card(found, card(manifest, paths=paths)) for paths in (False, True))
    require(same, path / CARD, "it is not the card of this manifest; it was changed, or is older")
    return True


def _is_card(found: str, ours: str) -> bool:
    """Return whether they are the same but for the name of a repository."""
    pattern = re.escape(ours.rstrip("\n")).replace(re.escape(PLACEHOLDER), r"[\w.-]+/[\w.-]+")
    return re.fullmatch(pattern, found) is not None
