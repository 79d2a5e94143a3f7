"""The files of a log: which there are, in which order, and the lines or objects in them.

A file is JSON lines, one JSON document (an object, or a list of them), lines of text as a server
prints them, or a file of torch.save. Lines are bounded, documents are, and no pickle is run; .gz
and .zst are unpacked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

from ngramkit.basics.errors import InputError, UsageError, given_paths
from ngramkit.basics.untrusted import open_stream, parse_json
from ngramkit.corpus import unpacking
from ngramkit.corpus.shapes import is_document
from ngramkit.logs.request import FilePlace, Line

SUFFIXES = (".jsonl", ".ndjson", ".json", ".traj", ".log", ".txt", ".pt")
MOST_FILES = 1 << 20  # in all folders
LOOKED_AT = 4096  # lines of text that a format is looked for in
MOST_DOCUMENT = 1 << 28  # bytes of a JSON document
MOST_VALUES = 1 << 23  # in a document or a line
DIGITS = re.compile(r"(\d+)")
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
        """True where it begins as JSON does."""
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
        begun = list(islice(lines, 2))
        if begun and is_document(*(line for _, line in begun)):
            yield from self._document()
            return
        for number, line in chain(begun, lines):
            where = FilePlace(self.path, "line", number)
            body = parse_json(line, str(where), most_values=MOST_VALUES, hint=HINT)
            if not isinstance(body, dict):
                raise InputError(f"{where}: not a JSON object", HINT)
            yield where, body

    def lines(self) -> Iterator[Line]:
        """Yield every line of text with where it stands; bytes that are no UTF-8: U+FFFD."""
        for number, line in self._raw():
            yield FilePlace(self.path, "line", number), line.decode("utf-8", "replace").rstrip("\r")

    def _document(self) -> Iterator[Line]:
        with (
            self._undamaged(),
            open_stream(self.path) as raw,
            unpacking.decompress(self._packed, raw) as file,
        ):
            text = unpacking.whole(file, MOST_DOCUMENT, str(self.path))
        body = parse_json(text, str(self.path), most_values=MOST_VALUES, hint=HINT)
        for number, item in enumerate(body if isinstance(body, list) else [body], 1):
            where = FilePlace(self.path, "item" * isinstance(body, list), number)
            if not isinstance(item, dict):
                raise InputError(f"{where}: not a JSON object", HINT)
            yield where, item

    def _raw(self) -> Iterator[tuple[int, bytes]]:
        with self._undamaged():
            yield from unpacking.open_lines(self.path, self._packed)

    @contextmanager
    def _undamaged(self) -> Iterator[None]:
        """Raise InputError where unpacking fails."""
        try:
            yield
        except unpacking.ERRORS as error:
            raise InputError(f"{self.path} is damaged: {error}", "copy it again") from error


def log_files(paths: Iterable[str | Path] | str | Path) -> tuple[list[Path], set[Path]]:
    """Return the files, those of folders in the order of the numbers in their names, and which of
    them a folder holds.

    Raises InputError where one is missing, UsageError where a folder holds no file of a log.
    """
    given = given_paths("files", paths)
    if not given:
        raise UsageError("no file is named", "give at least one")
    files: list[Path] = []
    inside: set[Path] = set()
    for path in given:
        if path.is_dir():
            of_folder = _files_of(path)
            if not of_folder:
                raise UsageError(
                    f"{path} holds no file of a log", f"such as *{', *'.join(SUFFIXES)}"
                )
            inside.update(of_folder)
            files += of_folder
        elif path.exists():
            files.append(path)
        else:
            raise InputError(f"there is no file {path}", "check the path")
    return list(dict.fromkeys(files)), inside


def _files_of(folder: Path) -> list[Path]:
    """Return a folder's files by the numbers in their names, step_2 before step_10; links are not
    followed."""
    files: list[Path] = []
    for parent, _, names in os.walk(folder):
        logs = [n for n in names if n.removesuffix(".gz").removesuffix(".zst").endswith(SUFFIXES)]
        paths = [Path(parent, name) for name in logs]
        files += [path for path in paths if path.is_file() and not path.is_symlink()]
        if len(files) > MOST_FILES:
            raise InputError(f"{folder} holds more than {MOST_FILES:,} files", "name some of them")

    def numbers(path: Path) -> list[tuple[int, str]]:
        parts = DIGITS.split(str(path.relative_to(folder)))
        return [(int(part[:300]), "") if part.isdecimal() else (0, part) for part in parts]

    return sorted(files, key=numbers)
