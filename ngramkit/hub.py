"""Artifacts on the Hub: pull, push and search, with the tokenizers that they are for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.errors import NgramkitError
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.kinds import open_artifact
from ngramkit.formats.manifest import read_manifest
from ngramkit.formats.outputs import ARTIFACTS
from ngramkit.models import HUB_IDS
from ngramkit.progress import SILENT, Reporter
from ngramkit.remote.hub import Found, HubName, pull as download, search as list_artifacts
from ngramkit.remote.push import Pushed, push as upload
from ngramkit.results import Result, Rows


@dataclass(frozen=True)
class Pulled(Result):
    """A copy of an artifact on the Hub; `revision` is its commit."""

    path: Path
    repository: str
    revision: str | None
    kind: str
    bytes: int
    counts: Mapping[str, int]

    def open(self) -> Artifact:
        """Open the copy."""
        return open_artifact(self.path)


def pull(
    source: str,
    out: str | Path | None = None,
    *,
    reporter: Reporter = SILENT,
    force: bool = False,
) -> Pulled:
    """Download USER/NAME[@REVISION] to `out` (default: artifacts/NAME), proven before it is there.

    Raises as `ngramkit.remote.hub.pull`.
    """
    name = HubName.parse(source).repository
    target = Path(out) if out is not None else ARTIFACTS / name.partition("/")[2]
    done = download(source, target, reporter=reporter, force=force)
    manifest = read_manifest(done.path)
    return Pulled(
        done.path, name, done.commit, manifest.kind, manifest.bytes, dict(manifest.counts)
    )


def search(
    tokenizer: str | None = None, kind: str | None = None, *, reporter: Reporter = SILENT
) -> Rows[Found]:
    """Return the artifacts on the Hub: those for a model's tokenizer, or of a kind; by default all.

    `tokenizer` is a model (a short name, a Hub id, a folder): its tokenizer is loaded, and the
    fingerprints are compared; or it is a fingerprint. Where it cannot be loaded the names are
    compared, which `reporter` is told. Raises NetworkError where the Hub does not answer.
    """
    wanted = None if tokenizer is None else partial(_identities, tokenizer, reporter)
    return Rows(list_artifacts(wanted, kind))


def _identities(tokenizer: str, reporter: Reporter) -> set[str]:
    """Return the tokenizer's fingerprint; where it cannot be loaded, the names of the model."""
    if len(tokenizer) == 64 and set(tokenizer) <= set("0123456789abcdef"):
        return {tokenizer}
    try:
        return {load_tokenizer(tokenizer).record.fingerprint}
    except NgramkitError as error:
        reporter.note(f"names are compared, not tokenizers: {error}")
        return {tokenizer, HUB_IDS.get(tokenizer, tokenizer)}


def push(
    path: str | Path,
    repository: str,
    *,
    private: bool = False,
    revision: str | None = None,
    tag: str | None = None,
    create_pr: bool = False,
    reporter: Reporter = SILENT,
) -> Pushed:
    """Upload an artifact to the Hub, with a card; only what is not there yet.

    `private` counts where the repository is new; `revision` is a branch, made where it is new;
    `tag` names the commit; `create_pr` asks for a pull request. Raises NetworkError where nobody
    is logged in or the Hub refuses, ArtifactError where a file is not what the manifest says.
    """
    return upload(
        path,
        repository,
        private=private,
        revision=revision,
        tag=tag,
        create_pr=create_pr,
        decoder=_decoder,
        reporter=reporter,
    )


def _decoder(tokenizer: str) -> Callable[[list[int]], str]:
    """Return a function that decodes ids to text, or writes the ids without a tokenizer."""
    try:
        return load_tokenizer(tokenizer).decode
    except NgramkitError:
        return str
