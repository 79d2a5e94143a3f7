"""Artifacts on the Hugging Face Hub: fetched, pulled to a folder, and searched for.

An artifact is a dataset repository with an artifact folder's files at its root. `fetch_from_hub`
leaves it in the Hub's own cache. Its author is not trusted: every file's sha256 is compared with
the manifest of the same commit, and every value is checked, once (see ngramkit.formats.artifact).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngramkit.errors import ArtifactError, UsageError, hub_errors
from ngramkit.formats.container import WrongFileError, sha256_of
from ngramkit.formats.kinds import open_artifact
from ngramkit.formats.manifest import NAME, Manifest, read_manifest
from ngramkit.formats.outputs import CARD, RECIPE
from ngramkit.formats.replacing import Replacement, exists, tidy
from ngramkit.progress import SILENT, Reporter
from ngramkit.results import Result

SCHEME = re.compile(r"hf:/{1,2}")  # a pathlib.Path drops the second slash
TAG = "ngramkit"
LONGEST = 200  # characters of a kind, an id or a fingerprint that a card may name
LARGEST = 1 << 63


@dataclass(frozen=True)
class Fetched:
    """An artifact's folder on this machine, and the commit of the Hub that it is; of another URL,
    its manifest's checksum."""

    path: Path
    commit: str | None = None  # None for a folder that was here all the time


@dataclass(frozen=True)
class HubName:
    """`USER/NAME[@REVISION]`; the revision is a branch, tag or commit."""

    repository: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> HubName:
        """Read the name, with or without hf://. Raises UsageError where it names no repository."""
        name, _, revision = SCHEME.sub("", text, count=1).partition("@")
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            raise UsageError(
                f"{text!r} names no repository of the Hub", "write USER/NAME or USER/NAME@REVISION"
            )
        return cls(name, revision or None)

    def __str__(self) -> str:
        return self.repository + (f"@{self.revision}" if self.revision else "")


def silence_client() -> None:
    """Switch off the Hub client's bars and its reports of retries: a Reporter shows progress."""
    from huggingface_hub.utils.logging import set_verbosity_error
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    set_verbosity_error()  # type: ignore[no-untyped-call]


def is_hub_name(source: str | Path) -> bool:
    """Return whether `source` is hf://USER/NAME."""
    return SCHEME.match(str(source)) is not None


def fetch_from_hub(name: HubName, *, reporter: Reporter = SILENT) -> Fetched:
    """Fetch an artifact and prove it whole; return its folder in the Hub's cache.

    Raises NetworkError where the Hub refuses or is out of reach and nothing is in the cache,
    ArtifactError where the repository holds no artifact, a newer one or a damaged one.
    """
    silence_client()
    with hub_errors(name.repository):
        folder, manifest = _manifest_of(name)
        _download(name.repository, folder.name, manifest, reporter)
        _prove(name.repository, folder, reporter)
    reporter.fetched(f"hf://{name}", folder.name)
    return Fetched(folder, folder.name)


def _manifest_of(name: HubName) -> tuple[Path, Manifest]:
    """Return the folder in the Hub's cache of the commit that the revision names, and its manifest,
    the only file fetched so far.

    Where the Hub does not answer, it is the commit that the revision named last time.
    """
    from huggingface_hub.errors import RemoteEntryNotFoundError

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


def pull(source: str, out: Path, *, reporter: Reporter = SILENT, force: bool = False) -> Fetched:
    """Copy an artifact of the Hub to the folder `out`, all of it or nothing.

    Nothing is done where `out` is exactly that already. Raises UsageError where `out` holds
    something else and `force` is off, or something that ngramkit did not write, else as
    `fetch_from_hub`.
    """
    name = HubName.parse(source)
    if out.exists() and not force:
        return _require_pulled(name, out, reporter)
    with Replacement(out, force=force) as new:
        new.empty()
        fetched = fetch_from_hub(name, reporter=reporter)
        for file in _file_names(fetched.path):
            shutil.copyfile((fetched.path / file).resolve(), new.partial / file)
        new.put_in_place()
    return Fetched(out, fetched.commit)


def _require_pulled(name: HubName, out: Path, reporter: Reporter) -> Fetched:
    """Raise UsageError unless `out` holds the very bytes of the artifact called `name`."""
    try:
        local = read_manifest(out)
    except ArtifactError as error:
        raise exists(out) from error
    silence_client()
    with hub_errors(name.repository):
        remote = _manifest_of(name)[1]
    if local != remote:
        raise exists(out)
    fetched = fetch_from_hub(name, reporter=reporter)
    for file in _file_names(fetched.path):
        if not (out / file).is_file() or sha256_of(out / file) != sha256_of(fetched.path / file):
            raise exists(out)
    tidy(out)
    reporter.note(f"{out} is up to date")
    return Fetched(out, fetched.commit)


def _file_names(folder: Path) -> list[str]:
    """Return the names of an artifact's files: manifest, card and recipe where they exist, too."""
    return [
        *read_manifest(folder).files,
        NAME,
        *(n for n in (CARD, RECIPE) if (folder / n).exists()),
    ]


@dataclass(frozen=True)
class Found(Result):
    """An artifact on the Hub as its card describes it; `problem` says why a card cannot be read."""

    id: str
    kind: str = ""
    tokenizer: str = ""
    fingerprint: str = ""
    vocabulary: int = 0
    bytes: int = 0
    revision: str = ""
    downloads: int = 0
    problem: str = ""


def search(
    tokenizers: Callable[[], set[str]] | None = None, kind: str | None = None
) -> Iterator[Found]:
    """Yield the artifacts on the Hub, by their tag.

    Cards are strangers' words: one that cannot be read gives an entry with a `problem`.
    `tokenizers` returns the fingerprints or names to look for, and is called once the Hub has
    answered. Raises NetworkError where the Hub does not answer.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils import build_hf_headers, paginate  # type: ignore[attr-defined]

    silence_client()
    wanted: set[str] | None = None
    query = {"filter": [TAG, kind] if kind else TAG, "expand": ["cardData", "downloads", "sha"]}
    with hub_errors("the Hub's list of artifacts", "list"):
        # As raw JSON: huggingface_hub's own classes take a card's keys for their parameters.
        for item in paginate(f"{constants.ENDPOINT}/api/datasets", query, build_hf_headers()):
            if tokenizers is not None and wanted is None:
                wanted = tokenizers()
            entry = read_card(item)
            if entry is None:
                continue
            if wanted is None or entry.problem or wanted & {entry.fingerprint, entry.tokenizer}:
                yield entry


def read_card(item: Any) -> Found | None:
    """Read one entry of the Hub's list; None where the card does not speak of ngramkit."""
    if not isinstance(item, Mapping) or not isinstance(item.get("id"), str):
        return Found("?", problem="an entry of the list that names no repository")
    card = item.get("cardData")
    facts = card.get(TAG) if isinstance(card, Mapping) else None
    if facts is None:
        return None
    try:
        return _parse_card(item, facts)
    except (TypeError, ValueError) as error:
        return Found(item["id"][:LONGEST], problem=f"its card cannot be read: {error}")


def _parse_card(item: Mapping[str, Any], facts: Any) -> Found:
    if not isinstance(facts, Mapping):
        raise TypeError(f"`{TAG}` is not a table")
    return Found(
        id=_text("id", item["id"]),
        kind=_text("kind", facts.get("kind")),
        tokenizer=_text("tokenizer", facts.get("tokenizer")),
        fingerprint=_text("fingerprint", facts.get("fingerprint", "")),
        vocabulary=_count("vocabulary", facts.get("vocabulary", 0)),
        bytes=_count("bytes", facts.get("bytes", 0)),
        revision=_text("sha", item.get("sha") or ""),
        downloads=_count("downloads", item.get("downloads") or 0),
    )


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > LONGEST or not value.isprintable():
        raise ValueError(f"its {name} is {repr(value)[:40]}")
    return value


def _count(name: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value < LARGEST:
        raise ValueError(f"its {name} is {repr(value)[:40]}")
    return value
