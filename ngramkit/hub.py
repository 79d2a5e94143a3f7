"""Artifacts on the Hugging Face Hub: fetched and proven whole before they are opened.

An artifact is a dataset repository with an artifact folder's files at its root. `fetch` leaves it
in the Hub's own cache. Every file's sha256 is compared with the manifest of the same commit; a
commit that was proven once is not read again while its files keep size and time. What copies it out
is ngramkit.hub_pull, what uploads ngramkit.hub_push, what lists them ngramkit.hub_search.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngramkit.errors import ArtifactError, UsageError
from ngramkit.formats.container import sha256_of
from ngramkit.formats.locks import locked
from ngramkit.formats.manifest import NAME, Manifest, read_manifest
from ngramkit.formats.outputs import CARD, RECIPE
from ngramkit.formats.writer import write_text
from ngramkit.hub_errors import hub_errors
from ngramkit.progress import SILENT, Reporter

SCHEME = re.compile(r"hf:/{1,2}")  # a pathlib.Path drops the second slash
TAG = "ngramkit"


@dataclass(frozen=True)
class Fetched:
    """An artifact's folder on this machine, and the commit of the Hub that it is."""

    path: Path
    commit: str | None = None  # None for a folder that never was on the Hub


@dataclass(frozen=True)
class Source:
    """`USER/NAME[@REVISION]`; the revision is a branch, tag or commit."""

    repository: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> Source:
        """With or without hf://. Raises UsageError where it names no repository."""
        name, _, revision = SCHEME.sub("", text, count=1).partition("@")
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            raise UsageError(
                f"{text!r} names no repository of the Hub", "write USER/NAME or USER/NAME@REVISION"
            )
        return cls(name, revision or None)

    def __str__(self) -> str:
        return self.repository + (f"@{self.revision}" if self.revision else "")


def quiet() -> None:
    """Silences the client's bars and its report of every try; a Reporter and errors tell enough."""
    from huggingface_hub.utils.logging import set_verbosity_error
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    set_verbosity_error()  # type: ignore[no-untyped-call]


def is_remote(source: str | Path) -> bool:
    return SCHEME.match(str(source)) is not None


def fetch(source: str | Path, *, reporter: Reporter = SILENT) -> Fetched:
    """An artifact's folder: `source` itself, or for hf://USER/NAME[@REV] one in the Hub's cache.

    Raises NetworkError where the Hub refuses or is out of reach and nothing is in the cache,
    ArtifactError where the repository holds no artifact, a newer one or a damaged one.
    """
    if not is_remote(source):
        return Fetched(Path(source))
    wanted = Source.parse(str(source))
    quiet()
    with hub_errors(wanted.repository):
        folder, manifest = manifest_of(wanted)
        _download(wanted.repository, folder.name, manifest, reporter)
        _prove(wanted.repository, folder, manifest, reporter)
    return Fetched(folder, folder.name)


def manifest_of(source: Source) -> tuple[Path, Manifest]:
    """The folder of the commit that the revision names, in the cache, with only its manifest.

    Without an answer of the Hub: of the commit that it named last time.
    """
    from huggingface_hub.errors import RemoteEntryNotFoundError

    try:
        path = _file(source.repository, source.revision, NAME)
    except RemoteEntryNotFoundError as error:
        raise ArtifactError(
            f"{source.repository} holds no {NAME}, so it is not an ngramkit artifact",
            "check the name; `ngramkit search` lists artifacts",
        ) from error
    return path.parent, read_manifest(path.parent)


def _file(repository: str, revision: str | None, name: str) -> Path:
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(repository, name, repo_type="dataset", revision=revision))


def _download(repository: str, commit: str, manifest: Manifest, reporter: Reporter) -> None:
    from huggingface_hub.errors import EntryNotFoundError, RemoteEntryNotFoundError

    reporter.stage(f"fetching {repository}", manifest.bytes, "bytes")
    for name, record in manifest.files.items():
        try:
            _file(repository, commit, name)
        except RemoteEntryNotFoundError as error:
            raise ArtifactError(
                f"{repository} lists {name} but does not hold it",
                "tell its owner, or give an earlier @REVISION",
            ) from error
        reporter.advance(record.bytes)
    for name in (CARD, RECIPE):  # not needed, so neither is the Hub for them
        with suppress(EntryNotFoundError):
            _file(repository, commit, name)


def _prove(repository: str, folder: Path, manifest: Manifest, reporter: Reporter) -> None:
    """Compares every sha256 with the manifest's; a file that differs leaves the cache."""
    proof = _proof_path(folder)
    state = {name: _state(folder / name) for name in manifest.files}
    if _read_proof(proof) == state:
        return
    reporter.stage(f"verifying {repository}", manifest.bytes, "bytes")
    for name, record in manifest.files.items():
        path = (folder / name).resolve()
        if path.stat().st_size != record.bytes or sha256_of(path) != record.sha256:
            path.unlink()
            (folder / name).unlink(missing_ok=True)
            raise ArtifactError(
                f"{name} of {repository} is not what its manifest says (sha256 differs)",
                "run the same command again; if it stays so, the repository is damaged",
            )
        reporter.advance(record.bytes)
    proof.parent.mkdir(parents=True, exist_ok=True)
    with locked(proof.with_name(proof.name + ".lock")):  # two may prove it at the same time
        write_text(proof, json.dumps(state))


def _read_proof(path: Path) -> Any:
    """None where there is none, or none that can be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def _proof_path(folder: Path) -> Path:
    """Beside the cache of repositories, keyed by repository and commit."""
    from huggingface_hub import constants

    return Path(constants.HF_HOME) / "ngramkit" / f"{folder.parents[1].name}-{folder.name}.json"


def _state(path: Path) -> list[int]:
    stat = path.resolve().stat()
    return [stat.st_size, stat.st_mtime_ns]
