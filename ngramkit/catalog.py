"""The artifacts of a folder: listed by `list_`, deleted by `rm`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ngramkit.basics.errors import ArtifactError, UsageError, given_paths
from ngramkit.basics.results import Result, Rows
from ngramkit.basics.terminal_text import counted
from ngramkit.formats.history import History
from ngramkit.formats.manifest import MANIFEST_FILE, read_manifest
from ngramkit.formats.outputs import (
    ARTIFACTS,
    AUTOMATIC,
    CODE,
    PARTIAL,
    PROGRESS,
    Found,
    artifacts_in,
    entries_with_our_names,
    require_written_by_us,
)
from ngramkit.formats.replacing import delete_artifact, discard_unfinished

UNFINISHED = "unfinished"


@dataclass(frozen=True, kw_only=True)
class ListedArtifact(Result):
    """An artifact, an unfinished build, or a folder with a damaged manifest (`problem`)."""

    name: str  # below the folder
    kind: str = ""  # "" if damaged
    tokenizer: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)  # documents, tokens, rows, ...
    bytes: int  # on the disk
    modified: str  # ISO 8601, UTC
    problem: str = ""
    private: bool = False  # made of private texts


@dataclass(frozen=True)
class Removed(Result):
    path: Path
    kind: str
    bytes: int


def list_(folder: str | Path = ARTIFACTS) -> Rows[ListedArtifact]:
    """Return the artifacts and unfinished builds of `folder` and its automatic/, by name."""
    above = Path(folder)
    places = [above, above / AUTOMATIC.name]
    listed = [
        *(_list_artifact(found, above) for place in places for found in artifacts_in(place)),
        *(
            _list_folder(path, above, PROGRESS, kind=UNFINISHED)
            for place in places
            for path in place.glob(f"*{PARTIAL}")
            if (path / PROGRESS).is_file()
        ),
    ]
    return Rows(sorted(listed, key=lambda each: each.name))


def rm(names: str | Path | Sequence[str | Path], folder: str | Path = ARTIFACTS) -> Rows[Removed]:
    """Delete artifacts, unfinished builds and exports for transformers in `folder`.

    Nothing is deleted unless all can be. Raises UsageError for a link, a path outside `folder`,
    files that ngramkit did not write and a history, which cannot be built again; ArtifactError for
    a missing or damaged artifact.
    """
    removable = removable_in(names, folder)
    for each in removable:
        if each.kind == UNFINISHED:
            discard_unfinished(each.path.with_suffix(""))
        else:
            delete_artifact(each.path)
    return Rows(removable)


def removable_in(
    names: str | Path | Sequence[str | Path], folder: str | Path = ARTIFACTS
) -> list[Removed]:
    """Return what `rm` would delete. Raises as `rm`."""
    given = given_paths("names", names)
    if not given:
        raise UsageError("names must name at least one artifact, got none", "Name one.")
    return [_require_removable(path, Path(folder)) for path in dict.fromkeys(given)]


def _require_removable(name: Path, folder: Path) -> Removed:
    path = folder / name if os.path.lexists(folder / name) else name
    if not os.path.lexists(path):
        raise ArtifactError(
            f"no such artifact in {folder}: {name}", "Run `ngramkit list` to see the names."
        )
    if path.parent.resolve() not in (folder.resolve(), (folder / AUTOMATIC.name).resolve()):
        raise UsageError(f"cannot delete {name}: it is outside {folder}", "Delete it yourself.")
    if path.suffix == PARTIAL and (path / PROGRESS).is_file():
        return Removed(path, UNFINISHED, _bytes_of_files(entries_with_our_names(path)))
    if path.is_symlink() or not path.is_dir():
        raise UsageError(
            f"cannot delete {path}: it is not an artifact's folder", "Delete it yourself."
        )
    if (path / CODE[0]).is_file():
        return Removed(path, "transformers", _bytes_of_files(require_written_by_us(path)))
    kind = read_manifest(path).kind
    if kind == History.kind:
        raise _history_error(path)
    return Removed(path, kind, _bytes_of_files(require_written_by_us(path)))


def _history_error(path: Path) -> UsageError:
    requests = History.open(path).log.read().requests
    lost = counted(sum(len(each.tokens) for each in requests), "token")
    return UsageError(
        f"cannot delete {path}: a history ({counted(len(requests), 'request')}, {lost}) cannot be "
        "built again",
        "Delete the folder yourself, or run `ngramkit history forget`.",
    )


def _list_artifact(found: Found, above: Path) -> ListedArtifact:
    manifest = found.manifest
    if manifest is None:
        return _list_folder(found.path, above, MANIFEST_FILE, problem=found.problem)
    return _list_folder(
        found.path,
        above,
        MANIFEST_FILE,
        kind=manifest.kind,
        tokenizer=manifest.tokenizer.id,
        counts=manifest.counts,
        private=manifest.private,
    )


def _list_folder(path: Path, above: Path, dated: str, **facts: Any) -> ListedArtifact:
    """Return a folder whose file `dated` has its date."""
    modified = datetime.fromtimestamp((path / dated).stat().st_mtime, UTC)
    return ListedArtifact(
        name=path.relative_to(above).as_posix(),
        bytes=_bytes_of_files(path.iterdir()),
        modified=modified.isoformat(timespec="seconds"),
        **facts,
    )


def _bytes_of_files(files: Iterable[Path]) -> int:
    return sum(file.lstat().st_size for file in files if file.is_file())
