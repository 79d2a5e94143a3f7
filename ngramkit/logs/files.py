"""The files of a log: which there are, in which order, and the lines or objects in them.

A file is JSON lines, one JSON document (an object, or a list of them), lines of text as a server
prints them, or a file of torch.save. Lines are bounded, documents are, and no pickle is run; gzip
and zstd are unpacked, lines that a container's runtime wrapped are unwrapped.
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
from typing import Any, NamedTuple

from ngramkit.basics.errors import BadRecordError, InputError, UsageError, given_paths
from ngramkit.basics.untrusted import open_stream, parse_json
from ngramkit.corpus import unpacking
from ngramkit.corpus.files import is_hidden
from ngramkit.corpus.shapes import Lost, is_document
from ngramkit.logs.containers import unwrapped
from ngramkit.logs.request import FilePlace, Line

SUFFIXES = (".jsonl", ".ndjson", ".json", ".traj", ".log", ".txt", ".pt")
# Rotation adds a number or a date: server.log.1, server.log-20261124.gz, 0.log.20261124-120000.
NAME = re.compile(
    rf"(.*(?:{'|'.join(map(re.escape, SUFFIXES))}))([.-]\d[\dTZ_.-]*?)?(?:\.gz|\.zst)?", re.DOTALL
)
MOST_FILES = 1 << 20  # in all folders
LOOKED_AT = 4096  # lines of text that a format is looked for in
SAMPLE = 100  # objects, likewise
MOST_DOCUMENT = 1 << 28  # bytes of a JSON document
MOST_VALUES = 1 << 23  # in a document or a line
DIGITS = re.compile(r"(\d+)")
LISTED = re.compile(rb"\[\s*(\{|\[|\]|\"|$)")  # "[2026-11-24 12:00:00] ..." is a line of text
TORCH = b"PK\x03\x04"
HINT = "Write one object per line, or one document."
Bad = Callable[[FilePlace, InputError], None]  # called for a line without an object
Lose = Callable[[str], None]  # called for a part that is not read


class LogFile:
    """One file: objects of JSON, or lines of text.

    `lost` counts parts of the file that are not read.
    """

    def __init__(self, path: Path, lost: Lost | None = None) -> None:
        self.path, self.lost = path, lost
        with open_stream(path) as file:
            start = file.read(4)
        if start.startswith(b"\x80"):
            raise InputError(
                f"{path} is a pickle, which could run code: it is not opened",
                "write the requests as JSON lines",
            )
        self.is_torch = start == TORCH

    @cached_property
    def is_json(self) -> bool:
        """True if it begins as JSON does."""
        if self.is_torch:
            return False
        first = next(self._raw(), (0, b""))[1].lstrip()
        return first.startswith(b"{") or LISTED.match(first) is not None

    @property
    def samples(self) -> Iterator[Any]:
        """The first objects; the first lines may have none. Raises InputError if no line has."""
        if not self.is_json:
            return
        bad: list[InputError] = []
        found = False
        for _, body in islice(self._objects(lambda _, error: bad.append(error)), SAMPLE):
            found = True
            yield body
        if bad and not found:
            raise bad[0]

    @cached_property
    def beginning(self) -> list[str]:
        """The first lines of text."""
        raw = islice(self._raw(), LOOKED_AT)
        return [line.decode("utf-8", "replace") for _, line in raw]

    def objects(self, bad: Bad | None = None) -> Iterator[Line]:
        """Yield every object with its place, of JSON lines or of one document.

        A line that is not a JSON object is given to `bad`; raises BadRecordError without.
        """
        return self._objects(bad or _refuse, self._lose)

    def _objects(self, bad: Bad, lose: Lose = lambda _: None) -> Iterator[Line]:
        lines = self._raw(lose)
        begun = list(islice(lines, 2))
        if not begun:
            return
        if is_document(*(line for _, line in begun)):
            yield from self._document(bad)
            return
        for number, line in chain(begun, lines):
            where = FilePlace(self.path, "line", number, self.lost)
            try:
                body = _parsed(line, where)
                if not isinstance(body, dict):
                    raise BadRecordError(f"{where}: not a JSON object", HINT)
            except BadRecordError as error:
                bad(where, error)
                continue
            yield where, body

    def lines(self) -> Iterator[Line]:
        """Yield every line of text with its place; bytes that are not UTF-8 become U+FFFD."""
        for number, line in self._raw(self._lose):
            where = FilePlace(self.path, "line", number, self.lost)
            yield where, line.decode("utf-8", "replace").rstrip("\r")

    def _document(self, bad: Bad) -> Iterator[Line]:
        with (
            self._undamaged(),
            open_stream(self.path) as raw,
            unpacking.decompress(raw, self.path) as file,
        ):
            text = unpacking.whole(file, MOST_DOCUMENT, str(self.path))
        body = _parsed(text, FilePlace(self.path))
        for number, item in enumerate(body if isinstance(body, list) else [body], 1):
            where = FilePlace(self.path, "item" * isinstance(body, list), number, self.lost)
            if isinstance(item, dict):
                yield where, item
            else:
                bad(where, BadRecordError(f"{where}: not a JSON object", HINT))

    def _lose(self, what: str) -> None:
        if self.lost is not None:
            self.lost[what] += 1

    def _raw(self, lose: Lose = lambda _: None) -> Iterator[tuple[int, bytes]]:
        with self._undamaged():
            yield from unwrapped(unpacking.open_lines(self.path), lose)

    @contextmanager
    def _undamaged(self) -> Iterator[None]:
        """Raise InputError if unpacking fails."""
        try:
            yield
        except unpacking.ERRORS as error:
            raise unpacking.damaged(str(self.path), error) from error


def _refuse(where: FilePlace, error: InputError) -> None:
    raise error


def _parsed(text: bytes, where: FilePlace) -> Any:
    return parse_json(text, str(where), most_values=MOST_VALUES, error=BadRecordError, hint=HINT)


class Files(NamedTuple):
    """The files of a log; `inside` are those that a folder holds, `left_out` counts others."""

    paths: list[Path]
    inside: set[Path]
    left_out: Counter[str]


def log_files(paths: Iterable[str | Path] | str | Path) -> Files:
    """Return the files, those of folders in the order of the numbers in their names.

    Raises InputError if one is missing, UsageError if a folder holds no file of a log.
    """
    given = given_paths("files", paths)
    if not given:
        raise UsageError("no file is named", "give at least one")
    files = Files([], set(), Counter())
    for path in given:
        if path.is_dir():
            of_folder = _files_of(path, files.left_out)
            if not of_folder:
                others = ", ".join(_counts(files.left_out))
                raise UsageError(
                    f"{path} holds no file of a log" + (f", but {others}" if others else ""),
                    f"such as *{', *'.join(SUFFIXES)}; files that are named are read",
                )
            files.inside.update(of_folder)
            files.paths.extend(of_folder)
        elif path.exists():
            files.paths.append(path)
        else:
            raise InputError(f"there is no file {path}", "check the path")
    return files._replace(paths=list(dict.fromkeys(files.paths)))


def _counts(counter: Counter[str]) -> list[str]:
    return [f"{count:,} {what}" for what, count in counter.most_common()]


LINKS = "links (name them to read them)"
HIDDEN = "hidden files"
OTHERS = "files of other names"


def _files_of(folder: Path, left_out: Counter[str]) -> list[Path]:
    """Return a folder's files by the numbers in their names, step_2 before step_10, and rotated
    files from the oldest to the newest; links are not followed."""
    files: list[Path] = []
    for parent, folders, names in os.walk(folder):
        below = Path(parent).relative_to(folder)
        left_out[LINKS] += sum(Path(parent, name).is_symlink() for name in folders)
        for name in names:
            path = Path(parent, name)
            if is_hidden(below / name):
                left_out[HIDDEN] += 1
            elif path.is_symlink():
                left_out[LINKS] += 1
            elif path.is_file() and NAME.fullmatch(name):
                files.append(path)
            else:
                left_out[OTHERS] += 1
        if len(files) > MOST_FILES:
            raise InputError(f"{folder} holds more than {MOST_FILES:,} files", "name some of them")
    for what in [what for what, count in left_out.items() if not count]:
        del left_out[what]
    return sorted(files, key=lambda path: _order(path.relative_to(folder)))


@lru_cache
def stream_of(path: Path) -> str:
    """Return the name that a log's rotated files share.

    >>> stream_of(Path("a/server.log.2.gz")) == stream_of(Path("a/server.log"))
    True
    """
    match = NAME.fullmatch(path.name)
    return str(path.parent / (match[1] if match else path.name))


def _order(path: Path) -> tuple[Any, ...]:
    match = NAME.fullmatch(path.name)
    assert match is not None
    rotation = match[2] or ""
    number = rotation[1:]
    if number.isdecimal() and len(number) < 5:  # of copies: the highest is the oldest
        age: tuple[Any, ...] = (0, -int(number), "")
    else:
        age = (0, 1, rotation) if rotation else (1, 0, "")
    return _numbers(stream_of(path)), age


def _numbers(text: str) -> list[tuple[int, str]]:
    parts = DIGITS.split(text)
    return [(int(part[:300]), "") if part.isdecimal() else (0, part) for part in parts]
