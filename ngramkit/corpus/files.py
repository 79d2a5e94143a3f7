"""Files as a corpus, local ones and those at URLs.

    .txt .md .py            one document
    .jsonl .ndjson .json    one document per record
    .csv .tsv               one document per row; the first row names the columns
    .parquet .arrow         one document per row

Hidden files and descriptions of a dataset in folders and globs are skipped.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, repeat
from pathlib import Path
from typing import IO, ClassVar, Self, cast

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.basics.progress import Reporter
from ngramkit.basics.terminal_text import counted
from ngramkit.basics.untrusted import open_stream
from ngramkit.corpus import unpacking
from ngramkit.corpus.document import DocumentSource, Row
from ngramkit.corpus.parquet_tables import parquet_schema, read_parquet, row_places
from ngramkit.corpus.readers import READER_OF_SUFFIX
from ngramkit.corpus.rows import ReaderOptions
from ngramkit.corpus.unpacking import MAX_RATIO

TABLES = frozenset(READER_OF_SUFFIX) - {".txt", ".md", ".py"}
DESCRIPTIONS = ("dataset_infos.json", "dataset_dict.json")  # of datasets
DESCRIPTIONS_OF_SAVED = ("dataset_info.json", "state.json")  # both are in a saved dataset
# Reasons for skipping files of folders and globs.
HIDDEN, OTHER_KINDS, ABOUT = "hidden", "of kinds that are not read", "about the dataset"
UNREADABLE = "unreadable"  # of folders
SEEKABLE = (".parquet", ".arrow")  # formats that are read by seeking
PLAIN = (".txt", ".md", ".py")  # files without columns
INSPECTED_FILES = 3  # files of a kind that are inspected at a URL


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
    return reader_suffix(path) in READER_OF_SUFFIX


def is_hidden(path: Path) -> bool:
    """Return whether a part is hidden.

    >>> is_hidden(Path(".git/HEAD")), is_hidden(Path("__MACOSX/a.jsonl")), is_hidden(Path("a/b.py"))
    (True, True, False)
    """
    return any(
        (part.startswith(".") and part not in (".", "..")) or part == "__MACOSX"
        for part in path.parts
    )


def describes_dataset(path: Path) -> bool:
    """Return whether a local file describes a dataset, as a card does."""
    if path.name in DESCRIPTIONS_OF_SAVED:
        return all((path.parent / name).is_file() for name in DESCRIPTIONS_OF_SAVED)
    if path.name == "README.md":
        with open_stream(path) as file:
            return file.readline(8).rstrip() == b"---"  # the metadata of a card
    return path.name in DESCRIPTIONS


def walk_files(folder: Path, onerror: Callable[[OSError], object] | None = None) -> Iterator[Path]:
    """Yield every file and link below a folder, without following links.

    `onerror` gets the error of each folder that cannot be read.
    """
    for parent, folders, names in os.walk(folder, onerror=onerror):
        yield from (Path(parent, name) for name in names)
        yield from (link for name in folders if (link := Path(parent, name)).is_symlink())


def require_readable_suffix(path: Path, name: str) -> None:
    if not has_readable_suffix(path):
        raise InputError(
            f"cannot read {name}: its kind of file is not supported",
            f"Use one of {' '.join(sorted(READER_OF_SUFFIX))}, also with .gz or .zst.",
        )


@contextmanager
def open_table(path: Path, raw: IO[bytes]) -> Iterator[IO[bytes]]:
    """Yield a table that can seek: a decompressed copy if the file cannot."""
    if path.suffix.lower() in SEEKABLE and raw.seekable():
        yield raw  # without reading the beginning: storages send large blocks
        return
    plain = unpacking.decompress(raw, path)  # kept, since it would close `raw`
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(plain, copy)
        copy.seek(0)
        yield cast("IO[bytes]", copy)


@dataclass(frozen=True)
class FileSource(DocumentSource):
    inspected: ClassVar[int | None] = INSPECTED_FILES  # tables searched for a mark; None: all

    id: str
    reading: ReaderOptions = field(default=ReaderOptions(), kw_only=True)
    groups: tuple[int, int] | None = field(
        default=None, kw_only=True
    )  # [begin, end) of a parquet file
    reached_bytes: list[int] = field(  # one item
        default_factory=lambda: [0], kw_only=True, compare=False, repr=False
    )

    @property
    def progress(self) -> tuple[int, int | None]:
        return self.reached_bytes[0], self._ends[-1]

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(self.sizes))

    @cached_property
    def sizes(self) -> list[int]:
        """The bytes of each file, 0 if unknown."""
        raise NotImplementedError

    @property
    def published(self) -> bool:
        """Whether the files are a dataset of the Hub, not a person's own."""
        return False

    def path(self, part: int) -> Path:
        raise NotImplementedError

    def choose(self, parts: Sequence[int]) -> Self:
        """Return a source of only these files."""
        raise NotImplementedError

    def anywhere(self) -> Self:
        """Return a source that processes with other working folders can read."""
        return self

    def only(self, part: int) -> Self:
        return self.choose([part]).anywhere()

    def stream(self, part: int) -> AbstractContextManager[IO[bytes]]:
        """Open a file. Raises InputError or NetworkError while it is open, too."""
        raise NotImplementedError

    def rows(self, part: int) -> Iterator[Row]:
        path, size, end = self.path(part), self.sizes[part], self._ends[part]
        suffix = reader_suffix(path)
        most = MAX_RATIO * max(size, self.reading.max_document)
        reading = replace(self.reading, max_whole=most)
        with self.stream(part) as raw:
            places = iter(raw.tell, -1) if raw.seekable() else repeat(0)
            if path.suffix.lower() == ".parquet" and raw.seekable():
                places = row_places(raw) or places
            is_table = suffix in SEEKABLE
            with (
                open_table(path, raw) if is_table else nullcontext(unpacking.decompress(raw, path))
            ) as file:
                if self.groups is None:
                    rows = READER_OF_SUFFIX[suffix](path, file, reading)
                else:
                    rows = read_parquet(path, file, reading, range(*self.groups))
                for row in rows:
                    self.reached_bytes[0] = end - size + min(next(places, size), size)
                    yield row
        self.reached_bytes[0] = end


def require_columns(paths: Sequence[Path], reading: ReaderOptions, name: str) -> None:
    if reading.column is not None and all(reader_suffix(path) in PLAIN for path in paths):
        raise UsageError(
            f"cannot use column for {name}: plain text has no columns",
            "Leave out column.",
            option="column",
        )


def note_left_out(where: str, left_out: Counter[str], reporter: Reporter) -> None:
    counts = [
        f"{counted(count, 'folder' if what == UNREADABLE else 'file')} ({what})"
        for what, count in left_out.items()
        if count
    ]
    if counts:
        reporter.note(f"skipped in {where}: {', '.join(counts)}")


def holds_mark(files: FileSource) -> bool:
    """Return whether a table is an export of a private artifact; see ngramkit.exchange.parquet.

    At a URL the first tables decide.
    """
    tables = [i for i in range(files.parts) if files.path(i).suffix.lower() == ".parquet"]
    return any(_is_marked(files, i) for i in tables[: files.inspected])


def _is_marked(files: FileSource, part: int) -> bool:
    with suppress(OSError), files.stream(part) as raw:
        return (parquet_schema(raw).metadata or {}).get(b"private") == b"true"
    return False  # reading reports the error
