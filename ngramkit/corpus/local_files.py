"""Local files as a corpus: a file, a folder or a glob."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import IO, Any, Self

from ngramkit.basics.errors import ArtifactError, InputError
from ngramkit.basics.machine import expand_home
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.untrusted import file_identity, open_stream
from ngramkit.corpus import unpacking
from ngramkit.corpus.files import (
    ABOUT,
    HIDDEN,
    OTHER_KINDS,
    TABLES,
    UNREADABLE,
    FileSource,
    describes_dataset,
    has_readable_suffix,
    is_hidden,
    note_left_out,
    reader_suffix,
    require_columns,
    require_readable_suffix,
    walk_files,
)
from ngramkit.corpus.parquet_tables import count_documents, split_row_groups
from ngramkit.corpus.rows import ReaderOptions
from ngramkit.formats.manifest import MANIFEST_FILE, read_manifest
from ngramkit.formats.outputs import PROGRESS
from ngramkit.formats.safetensors import sha256_of
from ngramkit.remote.urls import has_magic, path_label

LINKS, SPECIAL = "links that do not lead to a file", "pipes, sockets or devices"


@dataclass(frozen=True)
class LocalSource(FileSource):
    """Local files; relative `names` let a folder move."""

    inspected = None

    names: Sequence[str]
    paths: Sequence[Path]
    facts: Mapping[str, Any] = field(default_factory=dict)  # additions to the record
    folder: Path | None = None  # that holds `paths`, if the user named a folder
    _digests: dict[int, str] = field(  # by a hash of the files' identities
        default_factory=dict, init=False, compare=False, repr=False
    )

    @property
    def places(self) -> Sequence[Path]:
        return self.paths if self.folder is None else [self.folder]

    @property
    def parts(self) -> int:
        return len(self.paths)

    def path(self, part: int) -> Path:
        return self.paths[part]

    @contextmanager
    def stream(self, part: int) -> Iterator[IO[bytes]]:
        path = self.paths[part]
        try:
            with open_stream(path) as raw:
                yield raw
        except unpacking.ERRORS as error:
            raise unpacking.damaged_file(str(path), error) from error
        except FileNotFoundError as error:
            raise InputError(f"cannot read {path}: it was removed", "Check the path.") from error

    @cached_property
    def sizes(self) -> list[int]:
        return [path.stat().st_size if path.exists() else 0 for path in self.paths]

    def choose(self, parts: Sequence[int]) -> Self:
        names, paths = [self.names[i] for i in parts], [self.paths[i] for i in parts]
        return replace(self, names=names, paths=paths)

    def anywhere(self) -> Self:
        return replace(self, paths=[path.absolute() for path in self.paths], folder=None)

    def pieces(self) -> list[LocalSource]:
        [path] = self.paths
        groups = split_row_groups(path) if path.suffix.lower() == ".parquet" else []
        return [replace(self, groups=stretch) for stretch in groups] or [self]

    def count(self) -> int | None:
        [path] = self.paths
        if path.suffix.lower() != ".parquet":
            return None
        groups = None if self.groups is None else range(*self.groups)
        return count_documents(path, self.reading.column, groups)

    @property
    def digest(self) -> str:
        """The sha256 of names and contents, as they are now."""
        state = hash(tuple(file_identity(path.stat()) for path in self.paths))
        if state not in self._digests:
            digest = hashlib.sha256()
            for name, path in zip(self.names, self.paths, strict=True):
                digest.update(f"{name}\0{sha256_of(path)}\n".encode())
            self._digests[state] = digest.hexdigest()
        return self._digests[state]

    def record(self) -> dict[str, Any]:
        files = {"files": len(self.paths), "sha256": self.digest}
        return {**self.facts, **files, **self.reading.record()}


def local_source(pattern: str, reading: ReaderOptions, reporter: Reporter = SILENT) -> LocalSource:
    """Return a file, a folder's readable files, or a glob as a sorted source.

    Raises InputError if nothing matches or a kind is unsupported, UsageError for a wrong column.
    """
    path = expand_home(pattern)
    left_out: Counter[str] = Counter()
    if path.is_dir():
        paths = sorted(_readable_files_in(path, left_out))
    elif path.exists():
        paths = [path] if path.is_file() else []
    else:
        paths = sorted(_glob_files(path, left_out))
    note_left_out(pattern, left_out, reporter)
    if not paths:
        if path.is_dir():
            raise InputError(f"cannot read {pattern}: the folder holds no file", "Check the path.")
        raise InputError(
            f"cannot read {pattern}: no file matches", "Check the path, and quote a glob."
        )
    for file in paths:
        require_readable_suffix(file, str(file))
    require_columns(paths, reading, pattern)
    common = os.path.commonpath([file.absolute().parent for file in paths])
    names = [_as_text(Path(os.path.relpath(file.absolute(), common)).as_posix()) for file in paths]
    name = _as_text(path_label(path.absolute().parts[1:]))  # without this machine's folders
    folder = path if path.is_dir() else None
    return LocalSource(name, names, paths, folder=folder, reading=reading)


def _glob_files(path: Path, left_out: Counter[str]) -> Iterator[Path]:
    """Yield a glob's files; hidden ones only if the glob names a hidden part."""
    root = Path(path.anchor or ".")  # pathlib rejects absolute globs
    below = path.relative_to(path.anchor)
    fixed = len(list(takewhile(lambda part: not has_magic(part), below.parts)))
    names_hidden = is_hidden(Path(*below.parts[fixed:]))
    # Before Python 3.13, pathlib finds only folders for a last ** and rejects it in names.
    parts = [part if part == "**" else re.sub(r"\*+", "*", part) for part in below.parts]
    if parts[-1:] == ["**"]:
        parts.append("*")

    def is_left_out(match: Path) -> bool:
        return not names_hidden and is_hidden(Path(*match.relative_to(root).parts[fixed:]))

    searched = {root.joinpath(*parts[:fixed])}  # pathlib is silent about those that it cannot read
    for end in range(fixed + 1, len(parts)):
        searched.update(root.glob(str(Path(*parts[:end]))))
    unreadable = {
        path
        for path in searched
        if _shows(Path.is_dir, path) and not os.access(path, os.R_OK | os.X_OK)
    }
    left_out[UNREADABLE] += sum(not is_left_out(folder) for folder in unreadable)
    for match in root.glob(str(Path(*parts))):
        if _shows(Path.is_dir, match):
            continue
        if is_left_out(match):
            left_out[HIDDEN] += 1
        elif _shows(Path.is_file, match):
            yield match
        elif match.parent not in unreadable:
            left_out[LINKS if match.is_symlink() else SPECIAL] += 1


def _shows(test: Callable[[Path], bool], path: Path) -> bool:
    """Return a test's result; False in a folder that can be listed but not entered."""
    try:
        return test(path)
    except PermissionError:
        return False


def _readable_files_in(folder: Path, left_out: Counter[str]) -> list[Path]:
    """Return readable files outside artifacts and builds."""
    errors: list[OSError] = []
    below = list(walk_files(folder, errors.append))
    unreadable = (Path(str(error.filename)).relative_to(folder) for error in errors)
    left_out[UNREADABLE] = sum(not is_hidden(path) for path in unreadable)
    built = {path.parent for path in below if _shows_a_build(path)}
    files = []
    for path in below:
        if not built.isdisjoint(path.parents):
            continue
        if is_hidden(path.relative_to(folder)):
            left_out[HIDDEN] += has_readable_suffix(path)
        elif not path.is_file():
            left_out[LINKS if path.is_symlink() else SPECIAL] += 1
        elif has_readable_suffix(path):
            files.append(path)
        else:
            left_out[OTHER_KINDS] += 1
    has_tables = any(reader_suffix(path) in TABLES for path in files)
    texts = [path for path in files if not (has_tables and describes_dataset(path))]
    left_out[ABOUT] += len(files) - len(texts)
    return texts


def _shows_a_build(path: Path) -> bool:
    """Return whether a file is the manifest of an artifact or the progress of a build."""
    if path.name != MANIFEST_FILE:
        return path.name == PROGRESS and path.parent.name.endswith(".partial")
    try:
        read_manifest(path.parent)
    except (ArtifactError, OSError):
        return False
    return True


def _as_text(path: str) -> str:
    """Return a path as UTF-8 in any locale."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
