"""Opening and verifying artifacts of any kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ngramkit.basics.errors import ArtifactError
from ngramkit.basics.limits import LIMITS
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.untrusted import TRY_AGAIN, read_plain
from ngramkit.formats.artifact import Artifact, require, verify_checksums_and_values
from ngramkit.formats.card import card_pattern
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.frozen_table import FrozenTable
from ngramkit.formats.history import History
from ngramkit.formats.manifest import Manifest, read_manifest
from ngramkit.formats.model_bigram import ModelBigram
from ngramkit.formats.model_unigram import ModelUnigram
from ngramkit.formats.outputs import CARD
from ngramkit.formats.tokens import TokenStore

CLASS_OF_KIND: dict[str, type[Artifact]] = {
    kind.kind: kind
    for kind in (TokenStore, Datastore, FrozenTable, History, ModelBigram, ModelUnigram)
}
CHAPTER, ENTRIES = "\n\n## ", "Most frequent entries\n"


def open_artifact_folder(path: str | Path, *, reporter: Reporter = SILENT) -> Artifact:
    """Open the artifact as the class of its kind. Raises ArtifactError as `Artifact.open`."""
    path = Path(path)
    manifest = read_manifest(path)
    return kind_of(path, manifest.kind).open(path, manifest, reporter=reporter)


def kind_of(path: Path | str, kind: str) -> type[Artifact]:
    if kind not in CLASS_OF_KIND:
        raise ArtifactError(
            f"unknown kind {kind!r:.40} of {path}", "Upgrade: pip install -U ngramkit"
        )
    return CLASS_OF_KIND[kind]


def verify_artifact(path: str | Path) -> Iterator[str]:
    """Yield a line per valid part: sizes, checksums, the kind's invariants, the card.

    Proofs are ignored. Raises ArtifactError if anything is wrong.
    """
    path = Path(path)
    manifest = read_manifest(path)
    artifact = kind_of(path, manifest.kind)(path, manifest)
    artifact.require_files()
    yield "manifest"
    yield from verify_checksums_and_values(artifact)
    if _is_card_of_manifest(path, manifest):
        yield "card"


def _is_card_of_manifest(path: Path, manifest: Manifest) -> bool:
    """Return whether there is a card; raise ArtifactError if it is not the manifest's."""
    try:
        raw = read_plain(path / CARD, LIMITS.text_bytes, hint=TRY_AGAIN)
    except FileNotFoundError:
        return False
    chapters = raw.decode("utf-8", "replace").split(CHAPTER)
    text = CHAPTER.join(each for each in chapters if not each.startswith(ENTRIES)).rstrip("\n")
    same = card_pattern(manifest).fullmatch(text) is not None
    require(same, path / CARD, "it is not the card of this manifest: it was changed, or is older")
    return True
