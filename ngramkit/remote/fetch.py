"""Artifacts by folder, hf://USER/NAME[@REVISION] or URL.

Remote artifacts are downloaded and verified before they are opened: from the Hub into the Hub's
cache, from other URLs into ours (`remote.url_cache`).
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ngramkit.basics.errors import ArtifactError, UsageError, hub_errors
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.formats import opening
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.history import History
from ngramkit.formats.manifest import MANIFEST_FILE, Manifest, read_manifest
from ngramkit.formats.outputs import ARTIFACTS, CARD, RECIPE, short_name
from ngramkit.formats.replacing import PRIVATE
from ngramkit.formats.safetensors import WrongFileError
from ngramkit.remote.urls import as_path, as_url, url_label

logger = logging.getLogger(__name__)
SCHEME = re.compile(r"hf:/{1,2}")  # pathlib.Path drops the second slash


@dataclass(frozen=True)
class Fetched:
    path: Path
    origin: str | None = None  # its name on the Hub or its URL, without secrets


@dataclass(frozen=True)
class HubName:
    repository: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> HubName:
        name, at, revision = SCHEME.sub("", text, count=1).partition("@")
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", name) or (at and not revision):
            raise UsageError(
                f"a Hub repository must be USER/NAME, got {text!r}",
                "Write USER/NAME or USER/NAME@REVISION.",
            )
        return cls(name, revision or None)

    @classmethod
    def to_push(cls, text: str) -> str:
        """Return the repository. Raises UsageError for an invalid name, or one with a revision."""
        name = cls.parse(text)
        if name.revision is not None:
            raise UsageError(
                f"a repository to push to must be USER/NAME, got {text!r}",
                "Write USER/NAME, and name a branch by revision.",
                option="revision",
            )
        return name.repository

    def __str__(self) -> str:
        return self.repository + (f"@{self.revision}" if self.revision else "")


def silence_client() -> None:
    """Silence the Hub client, except for one warning when it retries."""
    from huggingface_hub.utils.logging import set_verbosity_error
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    set_verbosity_error()  # type: ignore[no-untyped-call]
    client = logging.getLogger("huggingface_hub.utils._http")
    client.setLevel(logging.WARNING)
    client.addFilter(_RETRIES)
    _RETRIES.warned = False


class _Retries(logging.Filter):
    """Replace the client's retry messages by one warning."""

    warned = False

    def filter(self, record: logging.LogRecord) -> bool:
        if not self.warned and record.getMessage().startswith("Retrying in"):
            self.warned = True
            logger.warning("the Hub does not answer yet; retrying for half a minute")
        return record.levelno >= logging.ERROR


_RETRIES = _Retries()


def is_hub_name(source: str | Path) -> bool:
    return SCHEME.match(str(source)) is not None


def fetch(source: str | Path, *, reporter: Reporter = SILENT) -> Fetched:
    """Return the local folder.

    Raises as `fetch_from_hub` and `remote.url_cache.stage_artifact`.
    """
    if not isinstance(source, str | Path):
        raise UsageError(
            f"an artifact must be a folder, a URL or hf://USER/NAME, got {source!r:.60}",
            "Give its path.",
        )
    url = as_url(source)
    if url is not None:
        from ngramkit.remote.url_cache import stage_artifact  # slow import

        return Fetched(stage_artifact(url, reporter=reporter), url_label(url))
    if is_hub_name(source):
        name = HubName.parse(str(source))
        return Fetched(fetch_from_hub(name, reporter=reporter), f"hf://{name}")
    return Fetched(as_path(source))


def fetch_artifact(source: str | Path | Artifact, *, reporter: Reporter = SILENT) -> Artifact:
    """Open an artifact, downloaded if remote.

    Raises as `fetch` and `open_artifact_folder`.
    """
    if isinstance(source, Artifact):
        return source
    fetched = fetch(source, reporter=reporter)
    artifact = opening.open_artifact_folder(fetched.path)
    artifact.origin = fetched.origin
    return artifact


def default_output(source: str | Path | Artifact) -> Path:
    """Return the path for default output names: the folder, or artifacts/NAME if remote."""
    if isinstance(source, Artifact):
        source = source.origin or source.path
    url = as_url(source)
    if url is not None:
        return ARTIFACTS / short_name(url)
    if is_hub_name(source):
        return ARTIFACTS / HubName.parse(str(source)).repository.partition("/")[2]
    path = as_path(source)
    return path if path.name not in ("", "..") else path.resolve()  # such as the working folder


# The Hub.


def fetch_from_hub(name: HubName, *, reporter: Reporter = SILENT) -> Path:
    """Download and verify an artifact; return its folder in the Hub's cache.

    Raises NetworkError if the Hub refuses, or is unreachable and nothing is cached; ArtifactError
    for a missing, damaged or newer artifact, or a history.
    """
    folder, manifest = fetch_manifest(name)
    if manifest.kind == History.kind:  # user text: other users may read the Hub's cache
        raise ArtifactError(
            f"{name.repository} is a history, which must be copied to a folder of your own",
            f"Run: ngramkit pull {name}",
        )
    if manifest.private:  # the repository's folder: other users may read the cache
        with suppress(OSError):
            folder.parents[1].chmod(PRIVATE)
    with hub_errors(name.repository):
        _download_listed(name.repository, folder.name, manifest, reporter)
        _open_or_delete_wrong_file(name.repository, folder, reporter)
    reporter.fetched(f"hf://{name}", folder.name)
    return folder


def fetch_manifest(name: HubName) -> tuple[Path, Manifest]:
    """Return the commit's folder in the Hub's cache, and the manifest.

    Uses the last known commit if the Hub does not answer. Raises as `fetch_from_hub`.
    """
    from huggingface_hub.errors import RemoteEntryNotFoundError

    silence_client()
    with hub_errors(name.repository):
        try:
            path = _download_file(name.repository, name.revision, MANIFEST_FILE)
        except RemoteEntryNotFoundError as error:
            raise ArtifactError(
                f"cannot use {name.repository}: it has no {MANIFEST_FILE}, so it is not an "
                "ngramkit artifact",
                "Check the name; `ngramkit search` lists artifacts.",
            ) from error
    return path.parent, read_manifest(path.parent)


def _download_file(repository: str, revision: str | None, name: str) -> Path:
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(repository, name, repo_type="dataset", revision=revision))


def _download_listed(repository: str, commit: str, manifest: Manifest, reporter: Reporter) -> None:
    from huggingface_hub.errors import EntryNotFoundError, RemoteEntryNotFoundError

    reporter.stage(f"fetching {repository}", manifest.bytes, "bytes")
    for name, record in manifest.files.items():
        try:
            _download_file(repository, commit, name)
        except RemoteEntryNotFoundError as error:
            raise ArtifactError(
                f"cannot download {repository}: it lists {name} but does not hold it",
                "Report it to its owner, or give an earlier @REVISION.",
            ) from error
        reporter.advance(record.bytes)
    for name in (CARD, RECIPE):  # optional
        with suppress(EntryNotFoundError):
            _download_file(repository, commit, name)


def _open_or_delete_wrong_file(repository: str, folder: Path, reporter: Reporter) -> None:
    """Verify all bytes and values once per machine. Deletes a file with a wrong checksum."""
    try:
        opening.open_artifact_folder(folder, reporter=reporter)
    except WrongFileError as error:
        error.file.resolve().unlink(missing_ok=True)
        error.file.unlink(missing_ok=True)
        raise ArtifactError(
            f"cannot use {error.file.name} of {repository}: it differs from its manifest (sha256)",
            "Run the same command again; if it fails again, the repository is damaged.",
        ) from error
    except ArtifactError as error:
        raise ArtifactError(
            f"cannot use the artifact in {repository}: {error}",
            "Report it to its owner, or give an earlier @REVISION.",
        ) from error
