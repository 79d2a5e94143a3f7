"""An artifact by whatever it is called: a folder, hf://USER/NAME[@REVISION], or a URL.

An artifact that is not on this machine is fetched and proven whole before it is opened: from the
Hub into the Hub's own cache, from other URLs into ours (ngramkit.remote.file_cache).

On the Hub an artifact is a dataset repository with an artifact folder's files at its root. Its
author is not trusted: every file's sha256 is compared with the manifest of the same commit, and
every value is checked, once (see ngramkit.formats.artifact).
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
from ngramkit.formats.manifest import NAME, Manifest, read_manifest
from ngramkit.formats.outputs import ARTIFACTS, CARD, RECIPE, short_name
from ngramkit.formats.safetensors import WrongFileError
from ngramkit.remote.urls import as_path, as_url, url_label

logger = logging.getLogger(__name__)
SCHEME = re.compile(r"hf:/{1,2}")  # a pathlib.Path drops the second slash


@dataclass(frozen=True)
class Fetched:
    """An artifact's folder on this machine, and its version where it was fetched."""

    path: Path
    commit: str | None = None  # of the Hub; for another URL the manifest's checksum


@dataclass(frozen=True)
class HubName:
    """`USER/NAME[@REVISION]`; the revision is a branch, tag or commit."""

    repository: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> HubName:
        """Read the name, with or without hf://. Raises UsageError where it names no repository."""
        name, at, revision = SCHEME.sub("", text, count=1).partition("@")
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", name) or (at and not revision):
            raise UsageError(
                f"{text!r} names no repository of the Hub", "write USER/NAME or USER/NAME@REVISION"
            )
        return cls(name, revision or None)

    def __str__(self) -> str:
        return self.repository + (f"@{self.revision}" if self.revision else "")


def silence_client() -> None:
    """Switch off the Hub client's bars and messages: a Reporter shows progress. That it asks
    again, for half a minute where there is no network, is said once."""
    from huggingface_hub.utils.logging import set_verbosity_error
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    set_verbosity_error()  # type: ignore[no-untyped-call]
    client = logging.getLogger("huggingface_hub.utils._http")
    client.setLevel(logging.WARNING)
    client.addFilter(_RETRIES)
    _RETRIES.said = False


class _Retries(logging.Filter):
    """A filter that drops the client's messages, and says in its own words that it tries again."""

    said = False

    def filter(self, record: logging.LogRecord) -> bool:
        if not self.said and record.getMessage().startswith("Retrying in"):
            self.said = True
            logger.warning("the Hub does not answer yet, it is asked again for half a minute")
        return record.levelno >= logging.ERROR


_RETRIES = _Retries()


def is_hub_name(source: str | Path) -> bool:
    """Return whether `source` is hf://USER/NAME."""
    return SCHEME.match(str(source)) is not None


def fetch(source: str | Path, *, reporter: Reporter = SILENT) -> Fetched:
    """Return the artifact's folder: `source` itself, or one in the Hub's cache or in ours.

    Raises as `fetch_from_hub` and `ngramkit.remote.file_cache.stage`.
    """
    if not isinstance(source, str | Path):
        raise UsageError(f"{source!r:.60} is no artifact", "give a folder, a URL or hf://USER/NAME")
    url = as_url(source)
    if url is not None:
        from ngramkit.remote.file_cache import stage  # its own imports cost a local start a tenth

        folder, manifest = stage(url, reporter=reporter)
        return Fetched(folder, manifest.checksum)
    if is_hub_name(source):
        return fetch_from_hub(HubName.parse(str(source)), reporter=reporter)
    return Fetched(as_path(source))


def open_fetched(source: str | Path | Artifact, *, reporter: Reporter = SILENT) -> Artifact:
    """Open an artifact, fetched first where it is remote; return one that is open as it is.

    Raises as `fetch` and `opening.open_folder`.
    """
    if isinstance(source, Artifact):
        return source
    artifact, url = opening.open_folder(fetch(source, reporter=reporter).path), as_url(source)
    if url is not None:
        artifact.origin = url_label(url)  # without what is secret of it
    elif is_hub_name(source):
        artifact.origin = str(source)
    return artifact


def default_output(source: str | Path | Artifact) -> Path:
    """Return the path after which a result made of an artifact is named by default.

    That is the artifact's own folder; of one that was fetched, its name in artifacts/.
    """
    if isinstance(source, Artifact):
        if source.origin is None:
            return source.path
        source = source.origin
    url = as_url(source)
    if url is not None:
        return ARTIFACTS / short_name(url)
    if is_hub_name(source):
        return ARTIFACTS / HubName.parse(str(source)).repository.partition("/")[2]
    return as_path(source)


# The Hub.


def fetch_from_hub(name: HubName, *, reporter: Reporter = SILENT) -> Fetched:
    """Fetch an artifact and prove it whole; return its folder in the Hub's cache.

    Raises NetworkError where the Hub refuses or is out of reach and nothing is in the cache,
    ArtifactError where the repository holds no artifact, a newer one or a damaged one.
    """
    folder, manifest = fetch_manifest(name)
    if manifest.kind == History.kind:  # somebody's text: the Hub's cache is open to others
        raise ArtifactError(
            f"{name.repository} is a history, which is drafted from in a folder of your own",
            f"run: ngramkit pull {name}",
        )
    with hub_errors(name.repository):
        _download(name.repository, folder.name, manifest, reporter)
        _prove(name.repository, folder, reporter)
    reporter.fetched(f"hf://{name}", folder.name)
    return Fetched(folder, folder.name)


def fetch_manifest(name: HubName) -> tuple[Path, Manifest]:
    """Return the folder in the Hub's cache of the commit that the revision names, and its manifest,
    the only file fetched so far.

    Where the Hub does not answer, it is the commit that the revision named last time. Raises as
    `fetch_from_hub`.
    """
    from huggingface_hub.errors import RemoteEntryNotFoundError

    silence_client()
    with hub_errors(name.repository):
        try:
            path = _file(name.repository, name.revision, NAME)
        except RemoteEntryNotFoundError as error:
            raise ArtifactError(
                f"{name.repository} holds no {NAME}, so it is not an ngramkit artifact",
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


def _prove(repository: str, folder: Path, reporter: Reporter) -> None:
    """Check every byte and every value, unless this was done before on this machine.

    A file that is not the listed one is deleted from the cache. Raises ArtifactError.
    """
    try:
        opening.open_folder(folder, reporter=reporter)
    except WrongFileError as error:
        error.file.resolve().unlink(missing_ok=True)
        error.file.unlink(missing_ok=True)
        raise ArtifactError(
            f"{error.file.name} of {repository} is not what its manifest says (sha256 differs)",
            "run the same command again; if it stays so, the repository is damaged",
        ) from error
    except ArtifactError as error:
        raise ArtifactError(
            f"{repository} holds no artifact that can be used: {error}",
            "do not use it; tell its owner, or give an earlier @REVISION",
        ) from error
