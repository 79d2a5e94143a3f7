"""Files, folders and globs as a corpus: .txt .md .py .jsonl .json .parquet .arrow, also .gz, .zst.

A text file is one document; a table has one document per row, read from its text column. The
files' names and contents are pinned by a digest, so a changed file is noticed. Knows nothing of
the Hub.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ngramkit.corpus import compressed, row_groups
from ngramkit.corpus.document import Row
from ngramkit.corpus.files import FileOptions, is_read, require_read
from ngramkit.errors import ArtifactError, InputError
from ngramkit.formats.container import sha256_of
from ngramkit.formats.manifest import NAME, read_manifest
from ngramkit.formats.outputs import PROGRESS


@dataclass(frozen=True)
class LocalSource(FileOptions):
    """`names` are what the record says of `paths`: relative, so that a folder can move."""

    id: str
    names: Sequence[str]
    paths: Sequence[Path]
    facts: Mapping[str, Any] = field(default_factory=dict)  # more for the record
    folder: Path | None = None  # of which `paths` are all that can be read

    @property
    def places(self) -> Sequence[Path]:
        return self.paths if self.folder is None else [self.folder]

    @property
    def parts(self) -> int:
        return len(self.paths)

    def only(self, part: int) -> LocalSource:
        """One of its files, wherever it is read from."""
        path = self.paths[part].absolute()
        return replace(self, names=[self.names[part]], paths=[path], folder=None)

    def stretches(self) -> list[LocalSource]:
        """A source of one file as several, where it is a large one of row groups."""
        [path] = self.paths
        groups = row_groups.stretches(path) if path.suffix.lower() == ".parquet" else []
        return [replace(self, groups=each) for each in groups] or [self]

    def counted(self) -> int | None:
        """The documents of a source of one file, where no row need be read for that."""
        [path] = self.paths
        if path.suffix.lower() != ".parquet":
            return None
        groups = None if self.groups is None else range(*self.groups)
        return row_groups.documents(path, self.column, groups)

    @cached_property
    def digest(self) -> str:
        """sha256 over every file's name and content."""
        digest = hashlib.sha256()
        for name, path in zip(self.names, self.paths, strict=True):
            digest.update(f"{name}\0{sha256_of(path)}\n".encode())
        return digest.hexdigest()

    def record(self) -> dict[str, Any]:
        files = {"files": len(self.paths), "sha256": self.digest}
        return {**self.facts, **files, **self.said()}

    def rows(self, part: int) -> Iterator[Row]:
        """Raises InputError where a file cannot be read or its compression is damaged."""
        path = self.paths[part]
        try:
            with path.open("rb") as raw:
                yield from self.read(path, raw, path.stat().st_size)
        except compressed.ERRORS as error:
            raise InputError(f"{path} is damaged: {error}", "fetch the file again") from error
        except FileNotFoundError as error:
            raise InputError(f"{path} is gone", "check the path") from error


def local_source(
    pattern: str,
    *,
    column: str | None = None,
    join_turns: bool = False,
) -> LocalSource:
    """A file, a folder (all readable files below it) or a glob; in sorted order.

    Raises InputError where nothing matches, or a file is of a kind that is not read.
    """
    paths = _matches(pattern)
    common = os.path.commonpath([path.absolute().parent for path in paths])
    names = [_named(Path(os.path.relpath(path.absolute(), common)).as_posix()) for path in paths]
    folder = Path(pattern).expanduser()
    whole = folder if folder.is_dir() else None
    label = _label(pattern)
    return LocalSource(label, names, paths, folder=whole, column=column, join_turns=join_turns)


def _matches(pattern: str) -> list[Path]:
    path = Path(pattern).expanduser()
    if path.is_dir():
        return _some(sorted(_below(path)), pattern)
    matches = [path] if path.exists() else _globbed(path)
    files = _some(sorted(p for p in matches if p.is_file()), pattern)
    for file in files:
        require_read(file, str(file))
    return files


def _below(folder: Path) -> Iterator[Path]:
    """Every file that can be read; not those of artifacts, which may be written there, too."""
    built = {place.parent for place in folder.rglob(NAME) if _is_artifact(place.parent)}
    built |= {place.parent for place in folder.rglob(f"*.partial/{PROGRESS}")}
    for path in folder.rglob("*"):
        if is_read(path) and path.is_file() and built.isdisjoint(path.parents):
            yield path


def _is_artifact(folder: Path) -> bool:
    try:
        read_manifest(folder)
    except (ArtifactError, OSError):
        return False
    return True


def _globbed(path: Path) -> Iterable[Path]:
    root = Path(path.anchor or ".")
    return root.glob(str(path.relative_to(path.anchor)))


def _some(paths: list[Path], pattern: str) -> list[Path]:
    if not paths:
        raise InputError(f"no file matches {pattern}", "check the path, and quote a glob")
    return paths


def _label(pattern: str) -> str:
    """What it is called: where it lies, beyond a glob's own folder, is nobody else's business.

    >>> _label("/home/me/chats/*.jsonl"), _label("/home/me/notes.txt")
    ('chats/*.jsonl', 'notes.txt')
    """
    parts = Path(pattern).expanduser().absolute().parts
    wild = next((i for i, part in enumerate(parts) if glob.has_magic(part)), None)
    return _named("/".join(parts[-1:] if wild is None else parts[max(wild - 1, 1) :]))


def _named(path: str) -> str:
    """As text, whatever the locale: file names are bytes, in UTF-8 as a rule."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
