"""The files of a log: which there are, in which order, and the lines or objects in them.

A file is JSON lines, one JSON document (an object, or a list of them), lines of text as a server
prints them, or a file of torch.save. Lines are bounded, documents are, and no pickle is run; .gz
and .zst are unpacked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

from ngramkit.corpus import unpacking
from ngramkit.errors import InputError, UsageError
from ngramkit.logs.request import Line
from ngramkit.untrusted import open_stream, parse_json

SUFFIXES = (".jsonl", ".ndjson", ".json", ".traj", ".log", ".txt", ".pt")
MOST_FILES = 1 << 20  # in all folders
LOOKED_AT = 4096  # lines of text that a format is looked for in
MOST_DOCUMENT = 1 << 28  # bytes of a JSON document
MOST_VALUES = 1 << 23  # in a document or a line
MANY_DIGITS = re.compile(r"(\d+)")
LISTED = re.compile(rb"\[\s*(\{|\[|\]|\"|$)")  # "[2026-11-24 12:00:00] ..." is a line of text
TORCH = b"PK\x03\x04"
HINT = "one object per line, or one document"


class LogFile:
    """One file; `first` is an object of JSON, `beginning` lines of text."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._packed = path.suffix if path.suffix in unpacking.SUFFIXES else ""
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
        """Whether it begins as JSON does."""
        if self.is_torch:
            return False
        first = next(self._raw(), (0, b""))[1].lstrip()
        return first.startswith(b"{") or LISTED.match(first) is not None

    @cached_property
    def first(self) -> Any:
        """The first object; None where there is none."""
        return next(self.objects(), ("", None))[1] if self.is_json else None

    @cached_property
    def beginning(self) -> list[str]:
        """The first lines of text."""
        return [text for _, text in islice(self.lines(), LOOKED_AT)]

    def objects(self) -> Iterator[Line]:
        """Yield every object with where it stands, of JSON lines or of one document.

        Raises InputError, with file and line, where a line is no JSON object.
        """
        lines = self._raw()
        first = next(lines, (1, b""))
        if self._begins_document(*first, lines):
            yield from self._document()
            return
        for number, line in chain([first], lines):
            where = f"{self.path}, line {number}"
            body = parse_json(line, where, most_values=MOST_VALUES, hint=HINT)
            if not isinstance(body, dict):
                raise InputError(f"{where}: not a JSON object", HINT)
            yield where, body

    def lines(self) -> Iterator[Line]:
        """Yield every line of text with where it stands; bytes that are no UTF-8: U+FFFD."""
        for number, line in self._raw():
            yield f"{self.path}, line {number}", line.decode("utf-8", "replace").rstrip("\r")

    def _document(self) -> Iterator[Line]:
        try:
            with (
                open_stream(self.path) as raw,
                unpacking.decompress(self._packed, raw) as file,
            ):
                text = unpacking.whole(file, MOST_DOCUMENT, str(self.path))
        except unpacking.ERRORS as error:
            raise self._damaged(error) from error
        body = parse_json(text, str(self.path), most_values=MOST_VALUES, hint=HINT)
        for number, item in enumerate(body if isinstance(body, list) else [body], 1):
            where = f"{self.path}, item {number}" if isinstance(body, list) else str(self.path)
            if not isinstance(item, dict):
                raise InputError(f"{where}: not a JSON object", HINT)
            yield where, item

    def _begins_document(self, number: int, line: bytes, others: Iterator[Any]) -> bool:
        """Return whether the first line is not a whole object, but other lines follow."""
        if line.lstrip().startswith(b"["):
            return True
        try:
            parse_json(line, f"{self.path}, line {number}", most_values=MOST_VALUES, hint=HINT)
        except InputError:
            if next(others, None) is None:
                raise
            return True
        return False

    def _raw(self) -> Iterator[tuple[int, bytes]]:
        try:
            yield from unpacking.open_lines(self.path, self._packed)
        except unpacking.ERRORS as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> InputError:
        return InputError(f"{self.path} is damaged: {error}", "copy it again")


def log_files(paths: Iterable[str | Path] | str | Path) -> tuple[list[Path], set[Path]]:
    """Return the files, those of folders in the order of the numbers in their names, and which of
    them a folder holds.

    Raises InputError where one is missing, UsageError where a folder holds no file of a log.
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    files: list[Path] = []
    inside: set[Path] = set()
    for path in map(Path, given):
        if path.is_dir():
            found = _inside(path)
            if not found:
                raise UsageError(
                    f"{path} holds no file of a log", f"such as *{', *'.join(SUFFIXES)}"
                )
            inside.update(found)
            files += found
        elif path.exists():
            files.append(path)
        else:
            raise InputError(f"there is no file {path}", "check the path")
    return list(dict.fromkeys(files)), inside


def _inside(folder: Path) -> list[Path]:
    """Return the files of a folder and of those in it; links are not followed."""
    found: list[Path] = []
    for parent, folders, names in os.walk(folder):
        folders.sort()
        paths = [Path(parent, name) for name in names if _is_log(name)]
        found += [path for path in paths if path.is_file() and not path.is_symlink()]
        if len(found) > MOST_FILES:
            raise InputError(f"{folder} holds more than {MOST_FILES:,} files", "name some of them")
    return sorted(found, key=lambda path: _numbered(path.relative_to(folder)))


def _is_log(name: str) -> bool:
    plain = name.removesuffix(".gz").removesuffix(".zst")
    return plain.endswith(SUFFIXES)


def _numbered(path: Path) -> list[tuple[int, str]]:
    """Return a key that sorts step_2 before step_10."""
    parts = MANY_DIGITS.split(str(path))
    return [(int(part[:300]), "") if part.isdecimal() else (0, part) for part in parts]
