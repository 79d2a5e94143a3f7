"""The files of a log, and the lines or objects in them.

A file holds JSON lines, one JSON document, text, a Parquet table or a torch.save archive, perhaps
compressed.
Sizes are bounded; pickles are never executed.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from ngramkit.basics.errors import BadRecordError, InputError, UsageError, first_line, given_paths
from ngramkit.basics.machine import expand_home
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.untrusted import open_stream, parse_json
from ngramkit.corpus import unpacking
from ngramkit.corpus.agent_sessions.read import TRACE_COLUMNS, holds_traces
from ngramkit.corpus.files import is_hidden, walk_files
from ngramkit.corpus.json_records import is_document
from ngramkit.corpus.turns import Unread
from ngramkit.logs import hub
from ngramkit.logs.containers import PARSERS, join_parts
from ngramkit.logs.request import FilePlace, Line

SUFFIXES = (".jsonl", ".ndjson", ".json", ".traj", ".log", ".txt", ".pt", ".parquet")
# Rotation appends a number or a date: server.log.1, server.log-20261124.gz, 0.log.20261124-120000.
LOG_FILE_NAME = re.compile(
    rf"(.*(?:{'|'.join(map(re.escape, SUFFIXES))}))([.-]\d[\dTZ_.-]*?)?(?:\.gz|\.zst)?", re.DOTALL
)
MAX_FILES = 1 << 20
MAX_DOCUMENT_BYTES = 1 << 28
MAX_RECORD_VALUES = 1 << 23  # per document or line
FORMAT_LINES, FORMAT_OBJECTS = 4096, 100  # inspected to recognize the format
JSON_LIST = re.compile(rb"\[\s*(\{|\[|\]|\"|$)")  # "[2026-11-24 12:00:00] ..." is a line of text
HOW_TO_WRITE = "Write one object per line, or one document."
RECORD: dict[str, Any] = {  # how a record is parsed
    "most_values": MAX_RECORD_VALUES, "error": BadRecordError, "hint": HOW_TO_WRITE,
}  # fmt: skip
OnBadLine = Callable[[FilePlace, InputError], None]


class LogFile:
    """A file of JSON objects, rows or lines. `unread` counts parts that are not read."""

    def __init__(self, path: Path, unread: Unread | None = None) -> None:
        self.path = path
        self.unread: Unread = Counter() if unread is None else unread
        with open_stream(path) as file:
            start = file.read(4)
        if start.startswith(b"\x80"):
            raise InputError(
                f"cannot open {path}: it is a pickle, which could run code",
                "Write the requests as JSON lines.",
            )
        self.is_torch = start == b"PK\x03\x04"
        self.is_table = start == b"PAR1"

    @cached_property
    def is_json(self) -> bool:
        if self.is_torch or self.is_table:
            return False
        first = next(self._raw_lines(Counter()), (0, b""))[1].lstrip()
        return first.startswith(b"{") or JSON_LIST.match(first) is not None

    @property
    def samples(self) -> Iterator[Any]:
        """The first objects. Raises InputError if no line is an object."""
        if not self.is_json and not self.is_table:
            return
        bad: list[InputError] = []
        found = False
        objects = self.objects(lambda _, error: bad.append(error), Counter())
        for _, body in islice(objects, FORMAT_OBJECTS):
            found = True
            yield body
        if bad and not found:
            raise bad[0]

    @cached_property
    def beginning(self) -> list[str]:
        if self.is_table:
            return []
        raw = islice(self._raw_lines(Counter()), FORMAT_LINES)
        return [line.decode("utf-8", "replace") for _, line in raw]

    def last_lines(self, size: int) -> list[bytes]:
        """Return the lines of the last `size` bytes, without unpacking; the first may be cut."""
        with open_stream(self.path) as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(file.tell() - size, 0))
            return file.read(size).splitlines()

    def objects(
        self, on_bad_line: OnBadLine | None = None, unread: Unread | None = None
    ) -> Iterator[Line]:
        """Yield every JSON object with its place; `unread` counts as the file's does.

        Passes anything else to `on_bad_line`, or raises BadRecordError without it.
        """
        unread = self.unread if unread is None else unread
        if self.is_table:
            yield from _parquet_rows(self.path, unread)
            return
        lines = self._raw_lines(unread)
        first_two = list(islice(lines, 2))
        found: Iterator[Line] = (
            (FilePlace(self.path, "line", number, unread), line)
            for number, line in chain(first_two, lines)
        )
        if first_two and is_document(*(line for _, line in first_two)):
            found = self._items_of_document(unread)
        for where, body in found:
            try:
                if isinstance(body, bytes):
                    body = parse_json(body, str(where), **RECORD)
                if not isinstance(body, dict):
                    raise BadRecordError(f"{where}: a record must be a JSON object", HOW_TO_WRITE)
            except BadRecordError as error:
                if on_bad_line is None:
                    raise
                on_bad_line(where, error)
                continue
            yield where, body

    def lines(self) -> Iterator[Line]:
        """Yield lines with their places; invalid UTF-8 becomes U+FFFD."""
        for number, line in self._raw_lines(self.unread):
            where = FilePlace(self.path, "line", number, self.unread)
            yield where, line.decode("utf-8", "replace").rstrip("\r")

    def _items_of_document(self, unread: Unread) -> Iterator[Line]:
        with self._unpacked() as file:
            text = unpacking.read_whole(file, MAX_DOCUMENT_BYTES, str(self.path))
        body = parse_json(text, str(self.path), **RECORD)
        unit, items = ("item", body) if isinstance(body, list) else ("", [body])
        for number, item in enumerate(items, 1):
            yield FilePlace(self.path, unit, number, unread), item

    def _raw_lines(self, unread: Unread) -> Iterator[tuple[int, bytes]]:
        """Yield the lines, without what a container runtime wrapped around them."""
        with self._unpacked() as file:
            lines = unpacking.non_blank_lines(
                file, unpacking.MAX_DOCUMENT, str(self.path), "Leave it out."
            )
            first = list(islice(lines, 1))
            wrapped = (p for p in PARSERS if first and p(first[0][1]) is not None)
            parse = next(wrapped, None)
            lines = chain(first, lines)
            yield from lines if parse is None else join_parts(lines, parse, unread)

    @contextmanager
    def _unpacked(self) -> Iterator[IO[bytes]]:
        """Open the file, unpacked; damage becomes InputError."""
        try:
            with open_stream(self.path) as raw, unpacking.decompress(raw, self.path) as file:
                yield file
        except unpacking.ERRORS as error:
            raise unpacking.damaged_file(str(self.path), error) from error


def _parquet_rows(path: Path, unread: Unread) -> Iterator[Line]:
    """Yield each row as an object, one at a time. Raises InputError beyond MAX_DOCUMENT_BYTES."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_stream(path) as raw:
            table = pq.ParquetFile(raw)
            names = table.schema_arrow.names
            columns = TRACE_COLUMNS if holds_traces(names) else names
            chosen = [name for name in columns if name in names]
            for number, batch in enumerate(table.iter_batches(1, columns=chosen), 1):
                where = FilePlace(path, "row", number, unread)
                yield where, unpacking.table_row(str(where), batch, MAX_DOCUMENT_BYTES)
    except (pa.ArrowException, OSError, UnicodeError, TypeError) as error:
        raise InputError(
            f"cannot read {path} as Parquet: {first_line(error)}",
            "Write the requests as JSON lines.",
        ) from error


class Files(NamedTuple):
    paths: list[Path]
    in_folders: set[Path]  # paths found in a folder
    skipped: Counter[str]  # other files of the folders, counted by reason


def log_files(paths: Iterable[str | Path] | str | Path, reporter: Reporter = SILENT) -> Files:
    """Return the named files, and those of named folders in the order of numbers in their names.

    Datasets of the Hub (`hf:ID`) are downloaded.

    Raises InputError if a path is missing, UsageError if there is no log.
    """
    given = given_paths("files", paths)
    if not given:
        raise UsageError("files must name at least one file, got none", "Give a file or a folder.")
    files = Files([], set(), Counter())
    for path in map(expand_home, given):
        if hub.is_dataset(path):
            of_dataset = hub.dataset_files(path, reporter)
            files.in_folders.update(of_dataset)
            files.paths.extend(of_dataset)
        elif path.is_dir():
            of_folder = _folder_files(path, files.skipped)
            if not of_folder:
                others = ", ".join(f"{n:,} {what}" for what, n in files.skipped.most_common())
                raise UsageError(
                    f"{path} holds no file of a log" + (f", but {others}" if others else ""),
                    f"Name the files: in folders only *{', *'.join(SUFFIXES)} are read.",
                )
            files.in_folders.update(of_folder)
            files.paths.extend(of_folder)
        elif path.exists():
            files.paths.append(path)
        else:
            raise InputError(f"no such file: {path}", "Check the path.")
    return files._replace(paths=list(dict.fromkeys(files.paths)))


def _folder_files(folder: Path, skipped: Counter[str]) -> list[Path]:
    """Return a folder's log files, step_2 before step_10, the oldest rotated file first."""
    files: list[Path] = []
    for path in walk_files(folder, lambda _: skipped.update(["folders that cannot be read"])):
        if is_hidden(path.relative_to(folder)):
            skipped["hidden files"] += 1
        elif path.is_symlink():
            skipped["links (name them to read them)"] += 1
        elif path.is_file() and LOG_FILE_NAME.fullmatch(path.name):
            files.append(path)
        else:
            skipped["files of other names"] += 1
        if len(files) > MAX_FILES:
            raise InputError(
                f"cannot read {folder}: it holds more than {MAX_FILES:,} files",
                "Name some of them.",
            )
    return sorted(files, key=lambda path: _rotation_order(path.relative_to(folder)))


@lru_cache
def unrotated_name(path: Path) -> str:
    """Return the path that rotated files share: a/server.log for a/server.log.2.gz."""
    match = LOG_FILE_NAME.fullmatch(path.name)
    return str(path.parent / (match[1] if match else path.name))


def _rotation_order(path: Path) -> tuple[Any, ...]:
    match = LOG_FILE_NAME.fullmatch(path.name)
    assert match is not None
    rotation = match[2] or ""
    number = rotation[1:]
    if number.isdecimal() and len(number) < 5:  # a count: the highest is the oldest
        age: tuple[Any, ...] = (0, -int(number), "")
    else:
        age = (0, 1, rotation) if rotation else (1, 0, "")
    return _split_numbers(unrotated_name(path)), age


def _split_numbers(text: str) -> list[tuple[int, str]]:
    """Return a sort key in which step_2 comes before step_10."""
    parts = re.split(r"(\d+)", text)
    return [(int(part[:300]), "") if part.isdecimal() else (0, part) for part in parts]
