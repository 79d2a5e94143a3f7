"""Files as a corpus: local ones, those at URLs, and the interpreter's standard library.

    .txt .md .py            one document
    .jsonl .ndjson .json    one document per record
    .csv .tsv               one document per row; the first row names the columns
    .parquet .arrow         one document per row

Hidden files and descriptions of a dataset in folders and globs are skipped.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, repeat, takewhile
from pathlib import Path
from typing import IO, Any, cast

from ngramkit.basics.errors import ArtifactError, InputError, UsageError, storage_errors
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.terminal_text import counted
from ngramkit.basics.untrusted import open_stream
from ngramkit.corpus import unpacking
from ngramkit.corpus.document import DocumentSource, Row
from ngramkit.corpus.parquet_tables import (
    count_documents,
    read_parquet,
    row_places,
    split_row_groups,
)
from ngramkit.corpus.readers import READERS
from ngramkit.corpus.rows import ReaderOptions
from ngramkit.corpus.unpacking import MAX_RATIO
from ngramkit.formats.manifest import MANIFEST_FILE, read_manifest
from ngramkit.formats.outputs import PROGRESS
from ngramkit.formats.safetensors import sha256_of
from ngramkit.remote.urls import has_magic, label_of_url, open_storage, path_label, plain_path

TABLES = frozenset(READERS) - {".txt", ".md", ".py"}
DESCRIPTIONS = ("dataset_infos.json", "dataset_dict.json")  # of datasets
# Reasons for skipping files of folders and globs.
HIDDEN, OTHER_KINDS, ABOUT = "hidden", "of kinds that are not read", "about the dataset"
LINKS, SPECIAL = "links that do not lead to a file", "pipes, sockets or devices"
SEEKABLE = (".parquet", ".arrow")  # formats that are read by seeking
PLAIN = (".txt", ".md", ".py")  # files without columns
INSPECTED_FILES = 3  # files of a kind that are inspected at a URL
DATASETS = "hf://datasets/"
# Keys of a storage's listing that change with a file's content.
VERSION_KEYS = (
    "ETag", "etag", "md5Hash", "content_md5", "blob_id", "xet_hash", "LastModified", "mtime",
    "updated", "created",
)  # fmt: skip


def reader_suffix(path: Path) -> str:
    """Return the lower-case suffix that decides the reader, without .gz or .zst.

    >>> reader_suffix(Path("chats.jsonl.zst"))
    '.jsonl'
    """
    suffixes = path.suffixes
    if suffixes and suffixes[-1].lower() in unpacking.SUFFIXES:
        suffixes.pop()
    return suffixes[-1].lower() if suffixes else ""


def has_readable_suffix(path: Path) -> bool:
    return reader_suffix(path) in READERS


def is_hidden(path: Path) -> bool:
    """Return whether a part is hidden.

    >>> is_hidden(Path(".git/HEAD")), is_hidden(Path("__MACOSX/a.jsonl")), is_hidden(Path("a/b.py"))
    (True, True, False)
    """
    return any(
        (part.startswith(".") and part not in (".", "..")) or part == "__MACOSX"
        for part in path.parts
    )


def walk_files(folder: Path) -> Iterator[Path]:
    """Yield every file and link below a folder, without following links."""
    for parent, folders, names in os.walk(folder):
        yield from (Path(parent, name) for name in names)
        yield from (link for name in folders if (link := Path(parent, name)).is_symlink())


def require_readable_suffix(path: Path, name: str) -> None:
    if not has_readable_suffix(path):
        raise InputError(
            f"cannot read {name}: its kind of file is not supported",
            f"Use one of {' '.join(sorted(READERS))}, also with .gz or .zst.",
        )


@contextmanager
def open_unpacked(path: Path, raw: IO[bytes]) -> Iterator[IO[bytes]]:
    """Yield the decompressed file; copy a table that cannot seek."""
    table = reader_suffix(path) in SEEKABLE
    if table and path.suffix.lower() in SEEKABLE and raw.seekable():
        yield raw  # without reading the beginning: storages send large blocks
        return
    plain = unpacking.decompress(raw, path)
    if table:
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(plain, copy)
            copy.seek(0)
            yield cast("IO[bytes]", copy)
    else:
        yield plain


@dataclass(frozen=True)
class FileSource(DocumentSource):
    id: str
    reading: ReaderOptions = field(default=ReaderOptions(), kw_only=True)
    groups: tuple[int, int] | None = field(
        default=None, kw_only=True
    )  # [begin, end) of a parquet file
    reached_bytes: list[int] = field(  # one item
        default_factory=lambda: [0], kw_only=True, compare=False, repr=False
    )

    @property
    def size(self) -> int | None:
        return self._ends[-1]

    @property
    def reached(self) -> int:
        return self.reached_bytes[0]

    @cached_property
    def _ends(self) -> list[int]:
        """The cumulative sizes in bytes."""
        return list(accumulate(self._sizes()))

    def _sizes(self) -> Iterator[int]:
        raise NotImplementedError

    @property
    def published(self) -> bool:
        """Whether the files are a dataset of the Hub, not a person's own."""
        return False

    def path(self, part: int) -> Path:
        raise NotImplementedError

    def stream(self, part: int) -> AbstractContextManager[IO[bytes]]:
        """Open a file. Raises as reading it."""
        raise NotImplementedError

    def _rows(self, part: int, path: Path, raw: IO[bytes], size: int) -> Iterator[Row]:
        kind, reading, begin = reader_suffix(path), self.reading, self._ends[part] - size
        reading = replace(reading, max_whole=MAX_RATIO * max(size, reading.max_document))
        tells = iter(raw.tell, -1) if raw.seekable() else repeat(0)
        places = row_places(path, raw) or tells
        with open_unpacked(path, raw) as file:
            if self.groups is None:
                rows = READERS[kind](path, file, reading)
            else:
                rows = read_parquet(path, file, reading, range(*self.groups))
            for row in rows:
                self.reached_bytes[0] = begin + min(next(places, size), size)
                yield row
        self.reached_bytes[0] = begin + size


def require_columns(paths: Sequence[Path], reading: ReaderOptions, name: str) -> None:
    if reading.column is not None and all(reader_suffix(path) in PLAIN for path in paths):
        raise UsageError(
            f"cannot use column for {name}: plain text has no columns",
            "leave out column",
            option="column",
        )


@dataclass(frozen=True)
class LocalSource(FileSource):
    """Local files; relative `names` let a folder move."""

    names: Sequence[str]
    paths: Sequence[Path]
    facts: Mapping[str, Any] = field(default_factory=dict)  # additions to the record
    folder: Path | None = None  # that holds `paths`, if the user named a folder

    @property
    def places(self) -> Sequence[Path]:
        return self.paths if self.folder is None else [self.folder]

    @property
    def parts(self) -> int:
        return len(self.paths)

    def path(self, part: int) -> Path:
        return self.paths[part]

    def stream(self, part: int) -> IO[bytes]:
        return open_stream(self.paths[part])

    def _sizes(self) -> Iterator[int]:
        return (path.stat().st_size if path.exists() else 0 for path in self.paths)

    def only(self, part: int) -> LocalSource:
        path = self.paths[part].absolute()
        return replace(self, names=[self.names[part]], paths=[path], folder=None)

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

    @cached_property
    def digest(self) -> str:
        """The sha256 of names and contents."""
        digest = hashlib.sha256()
        for name, path in zip(self.names, self.paths, strict=True):
            digest.update(f"{name}\0{sha256_of(path)}\n".encode())
        return digest.hexdigest()

    def record(self) -> dict[str, Any]:
        files = {"files": len(self.paths), "sha256": self.digest}
        return {**self.facts, **files, **self.reading.record()}

    def rows(self, part: int) -> Iterator[Row]:
        path = self.paths[part]
        try:
            with path.open("rb") as raw:
                yield from self._rows(part, path, raw, path.stat().st_size)
        except unpacking.ERRORS as error:
            raise unpacking.damaged_file(str(path), error) from error
        except FileNotFoundError as error:
            raise InputError(f"cannot read {path}: it was removed", "check the path") from error


def holds_mark(files: FileSource) -> bool:
    """Return whether a table is an export of a private artifact; see ngramkit.exchange.parquet.

    At a URL the first tables decide.
    """
    tables = [i for i in range(files.parts) if files.path(i).suffix.lower() == ".parquet"]
    seen = tables if isinstance(files, LocalSource) else tables[:INSPECTED_FILES]
    return any(_is_marked(files, i) for i in seen)


def _is_marked(files: FileSource, part: int) -> bool:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with files.stream(part) as raw:
            return (pq.read_schema(raw).metadata or {}).get(b"private") == b"true"
    except (pa.ArrowException, OSError, UnicodeError):
        return False  # reading reports the error


def local_source(pattern: str, reading: ReaderOptions, reporter: Reporter = SILENT) -> LocalSource:
    """Return a file, a folder's readable files, or a glob as a sorted source.

    Raises InputError if nothing matches or a kind is unsupported, UsageError for a wrong column.
    """
    path = Path(pattern).expanduser()
    left_out: Counter[str] = Counter()
    if path.is_dir():
        paths = sorted(_readable_files_in(path, left_out))
    elif path.exists():
        paths = [path] if path.is_file() else []
    else:
        paths = sorted(_glob_files(path, left_out))
    _note_left_out(pattern, left_out, reporter)
    if not paths:
        if path.is_dir():
            raise InputError(f"cannot read {pattern}: the folder holds no file", "check the path")
        raise InputError(
            f"cannot read {pattern}: no file matches", "check the path, and quote a glob"
        )
    for file in paths:
        require_readable_suffix(file, str(file))
    require_columns(paths, reading, pattern)
    common = os.path.commonpath([file.absolute().parent for file in paths])
    names = [_as_text(Path(os.path.relpath(file.absolute(), common)).as_posix()) for file in paths]
    name = _as_text(path_label(path.absolute().parts[1:]))  # without this machine's folders
    folder = path if path.is_dir() else None
    return LocalSource(name, names, paths, folder=folder, reading=reading)


def _note_left_out(where: str, left_out: Counter[str], reporter: Reporter) -> None:
    counts = [f"{counted(count, 'file')} ({what})" for what, count in left_out.items() if count]
    if counts:
        reporter.note(f"skipped in {where}: {', '.join(counts)}")


def _glob_files(path: Path, left_out: Counter[str]) -> Iterator[Path]:
    """Yield a glob's files; hidden ones only if the glob names a hidden part."""
    root = Path(path.anchor or ".")  # pathlib rejects absolute globs
    below = path.relative_to(path.anchor)
    fixed = len(list(takewhile(lambda part: not has_magic(part), below.parts)))
    names_hidden = is_hidden(Path(*below.parts[fixed:]))
    for match in root.glob(str(below)):
        if match.is_file():
            hidden = is_hidden(Path(*match.relative_to(root).parts[fixed:]))
            if hidden and not names_hidden:
                left_out[HIDDEN] += 1
            else:
                yield match


def _readable_files_in(folder: Path, left_out: Counter[str]) -> list[Path]:
    """Return readable files outside artifacts and builds."""
    below = list(walk_files(folder))
    built = {
        path.parent for path in below if path.name == MANIFEST_FILE and _is_artifact(path.parent)
    }
    built |= {
        path.parent
        for path in below
        if path.name == PROGRESS and path.parent.name.endswith(".partial")
    }
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
    texts = [path for path in files if not (has_tables and _describes_dataset(path))]
    left_out[ABOUT] += len(files) - len(texts)
    return texts


def _describes_dataset(path: Path) -> bool:
    if path.name in ("dataset_info.json", "state.json"):
        return all((path.parent / name).is_file() for name in ("dataset_info.json", "state.json"))
    if path.name == "README.md":
        with open_stream(path) as file:
            return file.readline(8).rstrip() == b"---"  # the metadata of a card
    return path.name in DESCRIPTIONS


def _is_artifact(folder: Path) -> bool:
    try:
        read_manifest(folder)
    except (ArtifactError, OSError):
        return False
    return True


def _as_text(path: str) -> str:
    """Return a path as UTF-8 in any locale."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


@dataclass(frozen=True)
class RemoteSource(FileSource):
    """Files at a URL; `files` are the storage's sorted entries."""

    storage: Any  # an fsspec file system
    files: Sequence[Mapping[str, Any]]
    published: bool = False  # a dataset of the Hub

    @property
    def parts(self) -> int:
        return len(self.files)

    def path(self, part: int) -> Path:
        return plain_path(str(self.files[part]["name"]))

    @contextmanager
    def stream(self, part: int) -> Iterator[IO[bytes]]:
        name = str(self.files[part]["name"])
        with _storage_errors(str(plain_path(name))), self.storage.open(name, "rb") as raw:
            yield raw

    @property
    def size(self) -> int | None:
        return super().size if all(isinstance(f.get("size"), int) for f in self.files) else None

    def _sizes(self) -> Iterator[int]:
        return (int(file.get("size") or 0) for file in self.files)

    def only(self, part: int) -> RemoteSource:
        return replace(self, files=[self.files[part]])

    def record(self) -> dict[str, Any]:
        lines = [json.dumps(_file_version(file), sort_keys=True) for file in self.files]
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        return {"files": len(self.files), "listing": digest, **self.reading.record()}

    def rows(self, part: int) -> Iterator[Row]:
        size = self.files[part].get("size")
        with self.stream(part) as raw:
            yield from self._rows(part, self.path(part), raw, size if isinstance(size, int) else 0)


def remote_source(url: str, reading: ReaderOptions, reporter: Reporter = SILENT) -> RemoteSource:
    """Return a file, a folder or a glob at a URL as a source; read no file.

    Raises as `local_source`, UsageError for an unknown storage, NetworkError if it refuses.
    """
    storage, path = open_storage(url, "corpus")
    with _storage_errors(label_of_url(url)):
        listed = _list_files(storage, path)
    left_out: Counter[str] = Counter()
    files = list(_without_hidden_and_descriptions(url, path, listed, left_out))
    _note_left_out(label_of_url(url), left_out, reporter)
    if not files:
        raise InputError(
            f"cannot read {label_of_url(url)}: no file matches", "check the URL, and quote a glob"
        )
    paths = [plain_path(str(file["name"])) for file in files]
    for file, plain in zip(files, paths, strict=True):
        require_readable_suffix(plain, label_of_url(str(file["name"])))
    require_columns(paths, reading, label_of_url(url))
    return RemoteSource(
        label_of_url(url), storage, files, url.startswith(DATASETS), reading=reading
    )


def _without_hidden_and_descriptions(
    url: str, path: str, listed: Sequence[Mapping[str, Any]], left_out: Counter[str]
) -> Iterator[Mapping[str, Any]]:
    literal = re.split(r"[*?\[]", path)[0] if has_magic(path) else f"{path}/"
    fixed = literal.rfind("/") + 1
    names_hidden = is_hidden(Path(path[fixed:]))
    has_tables = any(reader_suffix(plain_path(str(file["name"]))) in TABLES for file in listed)
    for file in listed:
        below = Path(str(file["name"])[fixed:])
        card = below.name == "README.md" and url.startswith(DATASETS)
        if is_hidden(below) and not names_hidden:
            left_out[HIDDEN] += 1
        elif len(listed) > 1 and has_tables and (card or below.name in DESCRIPTIONS):
            left_out[ABOUT] += 1
        else:
            yield file


def _list_files(storage: Any, path: str) -> list[Mapping[str, Any]]:
    """List a glob, a folder's files without artifacts, or one file."""
    if has_magic(path):
        entries = storage.glob(path, detail=True).values()
    else:
        entry = storage.info(path)
        if entry["type"] != "directory":
            return [entry]
        below = storage.find(path, detail=True)
        built = {name.rpartition("/")[0] for name in below if name.endswith(".safetensors")}
        built = {folder for folder in built if f"{folder}/{MANIFEST_FILE}" in below}
        entries = [
            file
            for name, file in below.items()
            if has_readable_suffix(plain_path(name)) and name.rpartition("/")[0] not in built
        ]
    files = [file for file in entries if file.get("type") == "file"]
    return sorted(files, key=lambda file: str(file["name"]))


def _file_version(file: Mapping[str, Any]) -> dict[str, Any]:
    """Return name, size and version; no signature in the URL."""
    version = {key: str(file[key]) for key in VERSION_KEYS if file.get(key)}
    return {"name": str(plain_path(str(file["name"]))), "size": file.get("size"), **version}


@contextmanager
def _storage_errors(what: str) -> Iterator[None]:
    with storage_errors(what):
        try:
            yield
        except unpacking.ERRORS as error:
            raise unpacking.damaged_file(what, error) from error
