"""Files, folders and globs as a corpus: .txt .md .py .jsonl .json .parquet .arrow, also .gz, .zst.

A text file is one document; a table has one document per row, read from its text column. The
files' names and contents are pinned by a digest, so a changed file is noticed. Knows nothing of
the Hub.
"""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any, cast

from ngramkit.corpus import compressed
from ngramkit.corpus.bounded import MAX_DOCUMENT
from ngramkit.corpus.document import Row
from ngramkit.corpus.readers import READERS
from ngramkit.errors import ArtifactError, InputError
from ngramkit.formats.container import sha256_of
from ngramkit.formats.manifest import NAME, read_manifest
from ngramkit.formats.outputs import PROGRESS

SUFFIXES = frozenset(READERS)


@dataclass(frozen=True)
class LocalSource:
    """`names` are what the record says of `paths`: relative, so that a folder can move."""

    id: str
    names: Sequence[str]
    paths: Sequence[Path]
    column: str | None = None
    join_turns: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)  # more for the record
    folder: Path | None = None  # of which `paths` are all that can be read
    max_document: int = MAX_DOCUMENT  # bytes

    @property
    def places(self) -> Sequence[Path]:
        return self.paths if self.folder is None else [self.folder]

    @property
    def parts(self) -> int:
        return len(self.paths)

    @cached_property
    def digest(self) -> str:
        """sha256 over every file's name and content."""
        digest = hashlib.sha256()
        for name, path in zip(self.names, self.paths, strict=True):
            digest.update(f"{name}\0{sha256_of(path)}\n".encode())
        return digest.hexdigest()

    def record(self) -> dict[str, Any]:
        said: dict[str, Any] = {**self.facts, "files": len(self.paths), "sha256": self.digest}
        if self.column is not None:
            said["column"] = self.column
        if self.join_turns:
            said["join_turns"] = True
        return said

    def rows(self, part: int) -> Iterator[Row]:
        path = self.paths[part]
        with opened(path) as file:
            read = READERS[kind_of(path)]
            yield from read(path, file, self.column, self.join_turns, self.max_document)


def kind_of(path: Path) -> str:
    """The suffix that decides the reader, below .gz or .zst.

    >>> kind_of(Path("chats.jsonl.zst"))
    '.jsonl'
    """
    suffixes = path.suffixes
    if suffixes and suffixes[-1].lower() in compressed.SUFFIXES:
        suffixes.pop()
    return suffixes[-1].lower() if suffixes else ""


def local_source(
    pattern: str,
    *,
    column: str | None = None,
    join_turns: bool = False,
    max_document: int = MAX_DOCUMENT,
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
    return LocalSource(
        label, names, paths, column, join_turns, folder=whole, max_document=max_document
    )


def _matches(pattern: str) -> list[Path]:
    path = Path(pattern).expanduser()
    if path.is_dir():
        return _some(sorted(_below(path)), pattern)
    matches = [path] if path.exists() else _globbed(path)
    files = _some(sorted(p for p in matches if p.is_file()), pattern)
    for file in files:
        if kind_of(file) not in SUFFIXES:
            raise InputError(
                f"{file} is of no kind that can be read",
                f"kinds: {' '.join(sorted(SUFFIXES))}; or these with .gz or .zst behind",
            )
    return files


def _below(folder: Path) -> Iterator[Path]:
    """Every file that can be read; not those of artifacts, which may be written there, too."""
    built = {place.parent for place in folder.rglob(NAME) if _is_artifact(place.parent)}
    built |= {place.parent for place in folder.rglob(f"*.partial/{PROGRESS}")}
    for path in folder.rglob("*"):
        if kind_of(path) in SUFFIXES and path.is_file() and built.isdisjoint(path.parents):
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


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The file's bytes, decompressed; what needs to seek in them is unpacked to a temporary file.

    Raises InputError where it cannot be read or its compression is damaged.
    """
    try:
        with path.open("rb") as raw:
            plain = compressed.decompressed(path.suffix.lower(), raw)
            if plain is not raw and kind_of(path) in (".parquet", ".arrow"):
                with tempfile.TemporaryFile() as unpacked:
                    shutil.copyfileobj(plain, unpacked)
                    unpacked.seek(0)
                    yield cast("IO[bytes]", unpacked)
            else:
                yield plain
    except compressed.ERRORS as error:
        raise InputError(f"{path} is damaged: {error}", "fetch the file again") from error
    except FileNotFoundError as error:
        raise InputError(f"{path} is gone", "check the path") from error
