"""Which class opens which kind of artifact."""

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

KINDS: dict[str, type[Artifact]] = {
    kind.kind: kind
    for kind in (TokenStore, Datastore, FrozenTable, History, ModelBigram, ModelUnigram)
}


def open_artifact(path: str | Path, *, reporter: Reporter = SILENT) -> Artifact:
    """The artifact at `path`, of the class that its manifest's kind says; arrays stay on disk.

    Raises ArtifactError where there is none, its kind is unknown here, or it is not whole: what
    this machine has not seen before is checked value by value, see ngramkit.formats.artifact.
    """
    return kind_of(Path(path), read_manifest(Path(path)).kind).open(path, reporter=reporter)


def kind_of(path: Path | str, kind: str) -> type[Artifact]:
    """Raises ArtifactError, naming `path`, where no class opens that kind."""
    if kind not in KINDS:
        raise ArtifactError(
            f"{path} is a {kind!r:.40}, which this ngramkit does not know",
            "upgrade: pip install -U ngramkit",
        )
    return KINDS[kind]
