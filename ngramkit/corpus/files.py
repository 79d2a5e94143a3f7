"""One file of a corpus, wherever it lies: its kind by its name, its bytes unpacked, its rows.

Knows names and open bytes; not where files come from.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any, cast

from ngramkit.corpus import readers, unpacking
from ngramkit.corpus.document import Row
from ngramkit.corpus.readers import READERS, UNFOLDED, read_parquet
from ngramkit.corpus.unpacking import MAX_DOCUMENT
from ngramkit.errors import ArtifactError, InputError, reason, storage_errors
from ngramkit.formats.container import sha256_of
from ngramkit.formats.manifest import NAME, read_manifest
from ngramkit.formats.outputs import PROGRESS
from ngramkit.remote.urls import has_magic, label, open_storage, plain_path

SUFFIXES = frozenset(READERS)
SEEKING = (".parquet", ".arrow")


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """How files become rows: which column of a table, and whether a conversation is a document."""

    column: str | None = None
    join_turns: bool = False
    max_document: int = MAX_DOCUMENT  # bytes
    groups: tuple[int, int] | None = None  # of a parquet file: only the row groups [begin, end)

    def said(self) -> dict[str, Any]:
        """What a corpus's record tells of these: nothing where they are left alone."""
        column = {} if self.column is None else {"column": self.column}
        return {**column, "join_turns": True} if self.join_turns else column

    def read(self, path: Path, raw: IO[bytes], size: int) -> Iterator[Row]:
        """The rows of a file of `size` bytes that is opened as `raw`; errors name it by `path`."""
        kind, most = kind_of(path), self.max_document
        if kind == ".json":
            most = UNFOLDED * max(size, most)
        with unpacked(path, raw) as file:
            options = (path, file, self.column, self.join_turns, most)
            if self.groups is None:
                yield from READERS[kind](*options)
            else:
                yield from read_parquet(*options, range(*self.groups))


def kind_of(path: Path) -> str:
    """The suffix that decides the reader, below .gz or .zst.

    >>> kind_of(Path("chats.jsonl.zst"))
    '.jsonl'
    """
    suffixes = path.suffixes
    if suffixes and suffixes[-1].lower() in unpacking.SUFFIXES:
        suffixes.pop()
    return suffixes[-1].lower() if suffixes else ""


def is_read(path: Path) -> bool:
    return kind_of(path) in SUFFIXES


def require_read(path: Path, name: str) -> None:
    """Raises InputError, which calls it `name`, where nothing reads a file of that kind."""
    if not is_read(path):
        raise InputError(
            f"{name} is of no kind that can be read",
            f"kinds: {' '.join(sorted(SUFFIXES))}; or these with .gz or .zst behind",
        )


@contextmanager
def unpacked(path: Path, raw: IO[bytes]) -> Iterator[IO[bytes]]:
    """The plain bytes; what needs to seek and cannot is first copied to a temporary file."""
    plain = unpacking.decompressed(path.suffix.lower(), raw)
    if kind_of(path) in SEEKING and (plain is not raw or not raw.seekable()):
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(plain, copy)
            copy.seek(0)
            yield cast("IO[bytes]", copy)
    else:
        yield plain


# Files, folders and globs as a corpus: .txt .md .py .jsonl .json .parquet .arrow, also .gz, .zst.
#
# A text file is one document; a table has one document per row, read from its text column. The
# files' names and contents are pinned by a digest, so a changed file is noticed. Knows nothing of
# the Hub.


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
        groups = readers.stretches(path) if path.suffix.lower() == ".parquet" else []
        return [replace(self, groups=each) for each in groups] or [self]

    def counted(self) -> int | None:
        """The documents of a source of one file, where no row need be read for that."""
        [path] = self.paths
        if path.suffix.lower() != ".parquet":
            return None
        groups = None if self.groups is None else range(*self.groups)
        return readers.documents(path, self.column, groups)

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
        except unpacking.ERRORS as error:
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


# Files behind URLs as a corpus: s3://, gs://, hf://datasets/..., https:// and what fsspec opens.
#
# A URL is a file, a folder or a glob of the kinds that `local` reads. The record pins the listing:
# each file's name, its size, and the version that the storage gives (ETag, md5, time of change).
# Knows listings and rows; nothing of tokens or of which documents are kept.

# A listing's keys that change with a file's content, by storage.
VERSIONS = (
    "ETag", "etag", "md5Hash", "content_md5", "blob_id", "xet_hash", "LastModified", "mtime",
    "updated", "created",
)  # fmt: skip
ARRAYS = ".safetensors"


@dataclass(frozen=True)
class RemoteSource(FileOptions):
    """`files`: what the storage says of each, in the order of their names."""

    id: str
    storage: Any  # an fsspec file system
    files: Sequence[Mapping[str, Any]]

    @property
    def parts(self) -> int:
        return len(self.files)

    def only(self, part: int) -> RemoteSource:
        return replace(self, files=[self.files[part]])

    def record(self) -> dict[str, Any]:
        lines = [json.dumps(_pinned(file), sort_keys=True) for file in self.files]
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        return {"files": len(self.files), "listing": digest, **self.said()}

    def rows(self, part: int) -> Iterator[Row]:
        name, size = str(self.files[part]["name"]), self.files[part].get("size")
        path = plain_path(name)
        with _reading(str(path)), self.storage.open(name, "rb") as raw:
            yield from self.read(path, raw, size if isinstance(size, int) else 0)


def remote_source(url: str, *, column: str | None = None, join_turns: bool = False) -> RemoteSource:
    """Lists what `url` names; reads no file.

    Raises UsageError for a storage that is unknown or needs a package, InputError where nothing
    matches or a file is of a kind that is not read, NetworkError where the storage refuses.
    """
    storage, path = open_storage(url, "corpus")
    with _reading(label(url)):
        files = _listed(storage, path)
    if not files:
        raise InputError(f"no file matches {label(url)}", "check the URL, and quote a glob")
    for file in files:
        require_read(plain_path(str(file["name"])), label(str(file["name"])))
    return RemoteSource(label(url), storage, files, column=column, join_turns=join_turns)


def _listed(storage: Any, path: str) -> list[Mapping[str, Any]]:
    """A glob's files; a folder's, of the kinds that are read, but for those of artifacts; else the
    file itself."""
    if has_magic(path):
        found = storage.glob(path, detail=True).values()
    else:
        one = storage.info(path)
        if one["type"] != "directory":
            return [one]
        below = storage.find(path, detail=True)
        built = {name.rpartition("/")[0] for name in below if name.endswith(ARRAYS)}
        built = {folder for folder in built if f"{folder}/{NAME}" in below}
        found = [
            file
            for name, file in below.items()
            if is_read(plain_path(name)) and name.rpartition("/")[0] not in built
        ]
    files = [file for file in found if file.get("type") == "file"]
    return sorted(files, key=lambda file: str(file["name"]))


def _pinned(file: Mapping[str, Any]) -> dict[str, Any]:
    """A file's name, size and version. A signature in its URL is none of these."""
    said = {key: str(file[key]) for key in VERSIONS if file.get(key)}
    return {"name": str(plain_path(str(file["name"]))), "size": file.get("size"), **said}


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Errors of storages as ours."""
    with storage_errors(what):
        try:
            yield
        except unpacking.ERRORS as error:
            raise InputError(f"{what} is damaged: {reason(error)}", "fetch it again") from error


# The running interpreter's standard library as a corpus: always there, no download.
#
# Knows which files count and which are held out; knows nothing of tokens.

# Test suites are stripped from many Python packages, so they would make the corpus unstable.
TESTS = frozenset({"test", "tests", "idle_test"})
NOT_LIBRARY = frozenset({"site-packages", "dist-packages", "__pycache__"})
HELD_OUT_ONE_IN = 10
SPLITS = ("train", "held-out", "all")
DEFAULT_SPLIT = "train"


def stdlib_files(*, tests: bool = False) -> list[tuple[str, Path]]:
    """(name, path) of every source file, sorted by name; the name is relative, with `/`.

    >>> stdlib_files()[0][0]
    '__future__.py'
    """
    root = Path(sysconfig.get_path("stdlib"))
    skipped = NOT_LIBRARY if tests else NOT_LIBRARY | TESTS
    found = []
    for path in root.rglob("*.py"):
        relative = path.relative_to(root)
        # _sysconfigdata holds the build machine's paths, config-* its makefiles.
        if skipped.isdisjoint(relative.parts) and not relative.name.startswith("_sysconfigdata"):
            found.append((relative.as_posix(), path))
    return sorted(found)


def is_held_out(name: str) -> bool:
    """Whether the file belongs to the fixed tenth that the demo model never saw.

    Decided by the name alone, so it holds across interpreter versions.
    """
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:8], "little") % HELD_OUT_ONE_IN == 0


def stdlib_split(split: str = DEFAULT_SPLIT) -> list[tuple[str, Path]]:
    """`train`: without the held-out tenth. `held-out`: only that. `all`: both.

    Raises InputError at any other split.
    """
    if split not in SPLITS:
        raise InputError(f"python-stdlib has no split {split!r}", f"splits: {', '.join(SPLITS)}")
    wanted = {"train": (False,), "held-out": (True,), "all": (False, True)}[split]
    return [(name, path) for name, path in stdlib_files() if is_held_out(name) in wanted]
