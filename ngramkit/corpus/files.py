"""Files as a corpus: on this machine, behind URLs, and the interpreter's standard library.

    .txt .md .py            one document
    .jsonl .json            one document per record
    .csv .tsv               one document per row, read from the text column; the first one names
                            the columns
    .parquet .arrow         one document per row, likewise

All may be compressed (.gz, .zst). Local files are pinned by a digest of their names and contents,
so a changed file is noticed; files behind URLs by their listing: names, sizes, and the versions
that the storage gives (ETag, md5, time of change).
"""

from __future__ import annotations

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
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, cast

from ngramkit.corpus import readers, unpacking
from ngramkit.corpus.document import Row
from ngramkit.corpus.readers import READERS, UNFOLDED, Reading, read_parquet
from ngramkit.corpus.unpacking import MAX_DOCUMENT
from ngramkit.errors import ArtifactError, InputError, reason, storage_errors
from ngramkit.formats.container import sha256_of
from ngramkit.formats.manifest import NAME, read_manifest
from ngramkit.formats.outputs import PROGRESS
from ngramkit.remote.urls import has_magic, label, open_storage, path_label, plain_path

SUFFIXES = frozenset(READERS)
SEEKING = (".parquet", ".arrow")
ARRAYS = ".safetensors"
# A listing's keys that change with a file's content, by storage.
VERSIONS = (
    "ETag", "etag", "md5Hash", "content_md5", "blob_id", "xet_hash", "LastModified", "mtime",
    "updated", "created",
)  # fmt: skip
# Test suites are stripped from many Python packages, so they would make the corpus unstable.
TESTS = frozenset({"test", "tests", "idle_test"})
NOT_LIBRARY = frozenset({"site-packages", "dist-packages", "__pycache__"})
HELD_OUT_ONE_IN = 10
SPLITS = ("train", "held-out", "all")
DEFAULT_SPLIT = "train"


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """Options of how files become rows; `join_turns` makes a conversation one document, `skip_bad`
    goes on behind bad records."""

    column: str | None = None
    join_turns: bool = False
    skip_bad: bool = False
    max_document: int = MAX_DOCUMENT  # bytes
    groups: tuple[int, int] | None = None  # row groups [begin, end) of a parquet file
    reached: list[int] = field(default_factory=lambda: [0], compare=False, repr=False)  # bytes

    def option_record(self) -> dict[str, Any]:
        """Return JSON for a corpus's record: only the options that are set."""
        column = {} if self.column is None else {"column": self.column}
        switches = {"join_turns": self.join_turns, "skip_bad": self.skip_bad}
        return {**column, **{name: True for name, is_on in switches.items() if is_on}}

    def read(self, path: Path, raw: IO[bytes], size: int) -> Iterator[Row]:
        """Yield the rows of a file of `size` bytes that is open as `raw`; errors name `path`."""
        kind, most = kind_of(path), self.max_document
        if kind == ".json":
            most = UNFOLDED * max(size, most)
        with unpacked(path, raw) as file:
            reading = Reading(self.column, self.join_turns, self.skip_bad, most)
            if self.groups is None:
                yield from READERS[kind](path, file, reading)
            else:
                yield from read_parquet(path, file, reading, range(*self.groups))

    def watched(
        self, rows: Iterable[Row], raw: IO[bytes], path: Path, begin: int, size: int
    ) -> Iterator[Row]:
        """Yield the rows of a file, and keep in `reached` how far they are, where `begin` bytes are
        before the file and `size` in it."""
        in_all = None if self.groups else readers.rows_of(path, raw)
        tells = raw.seekable()
        for number, row in enumerate(rows, 1):
            at = size * number // in_all if in_all else raw.tell() if tells else 0
            self.reached[0] = begin + min(at, size)
            yield row
        self.reached[0] = begin + size


def kind_of(path: Path) -> str:
    """Return the suffix that decides the reader, without .gz or .zst.

    >>> kind_of(Path("chats.jsonl.zst"))
    '.jsonl'
    """
    suffixes = path.suffixes
    if suffixes and suffixes[-1].lower() in unpacking.SUFFIXES:
        suffixes.pop()
    return suffixes[-1].lower() if suffixes else ""


def is_read(path: Path) -> bool:
    """Return whether a reader exists for files of this name."""
    return kind_of(path) in SUFFIXES


def require_read(path: Path, name: str) -> None:
    """Raise InputError, which calls the file `name`, where no reader exists for it."""
    if not is_read(path):
        raise InputError(
            f"{name} is of no kind that can be read",
            f"kinds: {' '.join(sorted(SUFFIXES))}; or these with .gz or .zst behind",
        )


@contextmanager
def unpacked(path: Path, raw: IO[bytes]) -> Iterator[IO[bytes]]:
    """Yield the file of plain bytes; a table that cannot seek is copied to a temporary file."""
    plain = unpacking.decompress(path.suffix.lower(), raw)
    if kind_of(path) in SEEKING and (plain is not raw or not raw.seekable()):
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(plain, copy)
            copy.seek(0)
            yield cast("IO[bytes]", copy)
    else:
        yield plain


@dataclass(frozen=True)
class LocalSource(FileOptions):
    """Files of this machine; `names` are relative, so that a folder can move."""

    id: str
    names: Sequence[str]
    paths: Sequence[Path]
    facts: Mapping[str, Any] = field(default_factory=dict)  # more for the record
    folder: Path | None = None  # whose readable files are `paths`

    @property
    def places(self) -> Sequence[Path]:
        return self.paths if self.folder is None else [self.folder]

    @property
    def parts(self) -> int:
        return len(self.paths)

    def only(self, part: int) -> LocalSource:
        """Return a source of one file, by its absolute path."""
        path = self.paths[part].absolute()
        return replace(self, names=[self.names[part]], paths=[path], folder=None)

    @cached_property
    def _ends(self) -> list[int]:
        """Where every file ends, if all stand one behind the other, in bytes."""
        sizes = (path.stat().st_size if path.exists() else 0 for path in self.paths)
        return list(accumulate(sizes))

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return self._ends[-1]

    def stretches(self) -> list[LocalSource]:
        """Split a source of one file into several, where it is a large one of row groups."""
        [path] = self.paths
        groups = readers.split_row_groups(path) if path.suffix.lower() == ".parquet" else []
        return [replace(self, groups=stretch) for stretch in groups] or [self]

    def counted(self) -> int | None:
        """Return the documents in a source of one file; None where only the rows tell."""
        [path] = self.paths
        if path.suffix.lower() != ".parquet":
            return None
        groups = None if self.groups is None else range(*self.groups)
        return readers.count_documents(path, self.column, groups)

    @cached_property
    def digest(self) -> str:
        """The sha256 over every file's name and content."""
        digest = hashlib.sha256()
        for name, path in zip(self.names, self.paths, strict=True):
            digest.update(f"{name}\0{sha256_of(path)}\n".encode())
        return digest.hexdigest()

    def record(self) -> dict[str, Any]:
        files = {"files": len(self.paths), "sha256": self.digest}
        return {**self.facts, **files, **self.option_record()}

    def rows(self, part: int) -> Iterator[Row]:
        """Yield the rows of a file. Raises InputError where it is gone or its compression is
        damaged."""
        path = self.paths[part]
        try:
            with path.open("rb") as raw:
                size, end = path.stat().st_size, self._ends[part]
                yield from self.watched(self.read(path, raw, size), raw, path, end - size, size)
        except unpacking.ERRORS as error:
            raise InputError(f"{path} is damaged: {error}", "fetch the file again") from error
        except FileNotFoundError as error:
            raise InputError(f"{path} is gone", "check the path") from error


def local_source(
    pattern: str,
    *,
    column: str | None = None,
    join_turns: bool = False,
    skip_bad: bool = False,
) -> LocalSource:
    """Return a file, a folder (all readable files below it) or a glob as a source, sorted.

    Raises InputError where nothing matches, or a file is of a kind that is not read.
    """
    paths = _find_files(pattern)
    common = os.path.commonpath([path.absolute().parent for path in paths])
    names = [_as_text(Path(os.path.relpath(path.absolute(), common)).as_posix()) for path in paths]
    folder = Path(pattern).expanduser()
    whole = folder if folder.is_dir() else None
    name = _as_text(path_label(folder.absolute().parts[1:]))  # not where it lies on this machine
    return LocalSource(
        name, names, paths,
        folder=whole, column=column, join_turns=join_turns, skip_bad=skip_bad,
    )  # fmt: skip


def _find_files(pattern: str) -> list[Path]:
    path = Path(pattern).expanduser()
    if path.is_dir():
        files = sorted(_files_below(path))
    else:
        matches = [path] if path.exists() else _glob(path)
        files = sorted(match for match in matches if match.is_file())
    if not files:
        raise InputError(f"no file matches {pattern}", "check the path, and quote a glob")
    for file in files:
        require_read(file, str(file))
    return files


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield every readable file but those of artifacts, which may be written there, too."""
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


def _glob(path: Path) -> Iterable[Path]:
    root = Path(path.anchor or ".")
    return root.glob(str(path.relative_to(path.anchor)))


def _as_text(path: str) -> str:
    """Return a path as text in any locale: file names are bytes, usually UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


@dataclass(frozen=True)
class RemoteSource(FileOptions):
    """Files behind a URL; `files` are the storage's entries, sorted by name."""

    id: str
    storage: Any  # an fsspec file system
    files: Sequence[Mapping[str, Any]]

    @property
    def parts(self) -> int:
        return len(self.files)

    @property
    def size(self) -> int | None:
        """The bytes of all files; None where the storage does not say."""
        return self._ends[-1] if all(isinstance(f.get("size"), int) for f in self.files) else None

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(int(file.get("size") or 0) for file in self.files))

    def only(self, part: int) -> RemoteSource:
        return replace(self, files=[self.files[part]])

    def record(self) -> dict[str, Any]:
        lines = [json.dumps(_pinned(file), sort_keys=True) for file in self.files]
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        return {"files": len(self.files), "listing": digest, **self.option_record()}

    def rows(self, part: int) -> Iterator[Row]:
        name, size = str(self.files[part]["name"]), self.files[part].get("size")
        path = plain_path(name)
        with _storage_errors(str(path)), self.storage.open(name, "rb") as raw:
            size = size if isinstance(size, int) else 0
            rows, begin = self.read(path, raw, size), self._ends[part] - size
            yield from self.watched(rows, raw, path, begin, size)


def remote_source(
    url: str, *, column: str | None = None, join_turns: bool = False, skip_bad: bool = False
) -> RemoteSource:
    """Return the files of a URL as a source: a file, a folder or a glob. No file is read.

    Raises UsageError for a storage that is unknown or needs a package, InputError where nothing
    matches or a file is of a kind that is not read, NetworkError where the storage refuses.
    """
    storage, path = open_storage(url, "corpus")
    with _storage_errors(label(url)):
        files = _list_files(storage, path)
    if not files:
        raise InputError(f"no file matches {label(url)}", "check the URL, and quote a glob")
    for file in files:
        require_read(plain_path(str(file["name"])), label(str(file["name"])))
    return RemoteSource(
        label(url), storage, files, column=column, join_turns=join_turns, skip_bad=skip_bad
    )


def _list_files(storage: Any, path: str) -> list[Mapping[str, Any]]:
    """Return the entries of a glob, of a folder's readable files but those of artifacts, or of the
    file itself."""
    if has_magic(path):
        entries = storage.glob(path, detail=True).values()
    else:
        entry = storage.info(path)
        if entry["type"] != "directory":
            return [entry]
        below = storage.find(path, detail=True)
        built = {name.rpartition("/")[0] for name in below if name.endswith(ARRAYS)}
        built = {folder for folder in built if f"{folder}/{NAME}" in below}
        entries = [
            file
            for name, file in below.items()
            if is_read(plain_path(name)) and name.rpartition("/")[0] not in built
        ]
    files = [file for file in entries if file.get("type") == "file"]
    return sorted(files, key=lambda file: str(file["name"]))


def _pinned(file: Mapping[str, Any]) -> dict[str, Any]:
    """Return the name, size and version of a file, without a signature in its URL."""
    version = {key: str(file[key]) for key in VERSIONS if file.get(key)}
    return {"name": str(plain_path(str(file["name"]))), "size": file.get("size"), **version}


@contextmanager
def _storage_errors(what: str) -> Iterator[None]:
    """Turn errors of storages into NgramkitErrors."""
    with storage_errors(what):
        try:
            yield
        except unpacking.ERRORS as error:
            raise InputError(f"{what} is damaged: {reason(error)}", "fetch it again") from error


# The running interpreter's standard library, which needs no download.


def stdlib_files(*, tests: bool = False) -> list[tuple[str, Path]]:
    """Return (name, path) of every source file, sorted by name; names are relative, with `/`.

    >>> stdlib_files()[0][0]
    '__future__.py'
    """
    root = Path(sysconfig.get_path("stdlib"))
    skipped = NOT_LIBRARY if tests else NOT_LIBRARY | TESTS
    files = []
    for path in root.rglob("*.py"):
        relative = path.relative_to(root)
        # _sysconfigdata holds the build machine's paths, config-* its makefiles.
        if skipped.isdisjoint(relative.parts) and not relative.name.startswith("_sysconfigdata"):
            files.append((relative.as_posix(), path))
    return sorted(files)


def is_held_out(name: str) -> bool:
    """Return whether the file belongs to the fixed tenth that the demo model never saw.

    The name alone decides, so it holds across interpreter versions.
    """
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:8], "little") % HELD_OUT_ONE_IN == 0


def stdlib_split(split: str = DEFAULT_SPLIT) -> list[tuple[str, Path]]:
    """Return the files of a split: "train" (nine tenths), "held-out" (the last tenth) or "all".

    Raises InputError for any other split.
    """
    if split not in SPLITS:
        raise InputError(f"python-stdlib has no split {split!r}", f"splits: {', '.join(SPLITS)}")
    wanted = {"train": (False,), "held-out": (True,), "all": (False, True)}[split]
    return [(name, path) for name, path in stdlib_files() if is_held_out(name) in wanted]
