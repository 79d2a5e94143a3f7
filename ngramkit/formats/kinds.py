"""The class of each kind of artifact, and the opening of any."""

from __future__ import annotations

from pathlib import Path

from ngramkit.errors import ArtifactError
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.frozen_table import FrozenTable
from ngramkit.formats.history import History
from ngramkit.formats.manifest import read_manifest
from ngramkit.formats.model_bigram import ModelBigram
from ngramkit.formats.model_unigram import ModelUnigram
from ngramkit.formats.tokens import TokenStore
from ngramkit.progress import SILENT, Reporter

CLASSES: dict[str, type[Artifact]] = {
    kind.kind: kind
    for kind in (TokenStore, Datastore, FrozenTable, History, ModelBigram, ModelUnigram)
}


def open_artifact(path: str | Path, *, reporter: Reporter = SILENT) -> Artifact:
    """Open the artifact at `path`, of the class of its manifest's kind; arrays stay on disk.

    Raises ArtifactError where there is none, its kind is unknown, or it is not whole: one that this
    machine has not seen before is checked value by value, see ngramkit.formats.artifact.
    """
    return kind_of(Path(path), read_manifest(Path(path)).kind).open(path, reporter=reporter)


def kind_of(path: Path | str, kind: str) -> type[Artifact]:
    """Return the class of a kind. Raises ArtifactError, naming `path`, where there is none."""
    if kind not in CLASSES:
        raise ArtifactError(
            f"{path} is a {kind!r:.40}, which this ngramkit does not know",
            "upgrade: pip install -U ngramkit",
        )
    return CLASSES[kind]
