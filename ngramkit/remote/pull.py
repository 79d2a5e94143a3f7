"""Artifacts on the Hugging Face Hub: fetched and proven whole before they are opened.

An artifact is a dataset repository with an artifact folder's files at its root. `fetch` leaves it
in the Hub's own cache. Its author is not trusted: every file's sha256 is compared with the manifest
of the same commit, and every value is checked, once (see ngramkit.formats.artifact). What copies it
out is ngramkit.remote.pull, what uploads ngramkit.remote.push, what lists them
ngramkit.remote.search.
"""

from __future__ import annotations

import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ngramkit.errors import ArtifactError, UsageError, hub_errors
from ngramkit.formats.container import WrongFileError, sha256_of
from ngramkit.formats.kinds import open_artifact
from ngramkit.formats.manifest import NAME, Manifest, read_manifest
from ngramkit.formats.outputs import CARD, RECIPE
from ngramkit.formats.replacing import Replacement, exists, tidy
from ngramkit.progress import SILENT, Reporter

SCHEME = re.compile(r"hf:/{1,2}")  # a pathlib.Path drops the second slash
TAG = "ngramkit"


@dataclass(frozen=True)
class Fetched:
    """An artifact's folder on this machine, and the commit of the Hub that it is; of another URL,
    its manifest's checksum."""

    path: Path
    commit: str | None = None  # None for a folder that was here all the time


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
        _prove(wanted.repository, folder, reporter)
    reporter.fetched(f"hf://{wanted}", folder.name)
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


def _prove(repository: str, folder: Path, reporter: Reporter) -> None:
    """Checks every byte and every value, unless this machine knows them; a file that is not the
    listed one leaves the cache."""
    try:
        open_artifact(folder, reporter=reporter)
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


# An artifact on the Hub to a folder: all of it, proven, in place of what was there; or nothing.


def pull(source: str, out: Path, *, reporter: Reporter = SILENT, force: bool = False) -> Fetched:
    """Copies a fetched artifact to `out`; nothing is done where exactly that is there already.

    Raises UsageError where `out` holds something else and `force` is off, or something that is not
    ours, else as `fetch`.
    """
    wanted = Source.parse(source)
    if out.exists() and not force:
        return _pulled_before(wanted, out, reporter)
    with Replacement(out, force=force) as new:
        new.empty()
        fetched = fetch(f"hf://{wanted}", reporter=reporter)
        for name in _names(fetched.path):
            shutil.copyfile((fetched.path / name).resolve(), new.partial / name)
        new.put_in_place()
    return Fetched(out, fetched.commit)


def _pulled_before(wanted: Source, out: Path, reporter: Reporter) -> Fetched:
    """Raises UsageError unless `out` holds the very bytes of what is `wanted`."""
    try:
        here = read_manifest(out)
    except ArtifactError as error:
        raise exists(out) from error
    quiet()
    with hub_errors(wanted.repository):
        there = manifest_of(wanted)[1]
    if here != there:
        raise exists(out)
    fetched = fetch(f"hf://{wanted}", reporter=reporter)
    for name in _names(fetched.path):
        if not (out / name).is_file() or sha256_of(out / name) != sha256_of(fetched.path / name):
            raise exists(out)
    tidy(out)
    reporter.note(f"{out} is up to date")
    return Fetched(out, fetched.commit)


def _names(folder: Path) -> list[str]:
    """The files of a fetched artifact, the manifest and what there is of card and recipe."""
    return [
        *read_manifest(folder).files,
        NAME,
        *(n for n in (CARD, RECIPE) if (folder / n).exists()),
    ]
