"""Lines of JSON objects, plain or gzipped, each with where it stands for error messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ngramkit.corpus import compressed
from ngramkit.errors import InputError
from ngramkit.formats.json_text import parse_json

Line = tuple[str, dict[str, Any]]  # where ("FILE, line N"), what


def read_lines(path: Path) -> Iterator[Line]:
    """Every object of a .jsonl or .jsonl.gz file; blank lines are skipped.

    Raises InputError, with file and line, where a line is not a JSON object.
    """
    for where, text in text_lines(path):
        body = parse_json(text, where, hint="one object per line")
        if not isinstance(body, dict):
            raise InputError(f"{where}: not a JSON object", "one object per line")
        yield where, body


def text_lines(path: Path) -> Iterator[tuple[str, str]]:
    """(where, text) of every line that is not blank; bytes that are no UTF-8 become U+FFFD."""
    if not path.is_file():
        raise InputError(f"there is no file {path}", "check the path")
    suffix = ".gz" if path.suffix == ".gz" else ""
    try:
        for number, line in compressed.open_lines(path, suffix):
            text = line.decode("utf-8", "replace").rstrip("\r")
            if text.strip():
                yield f"{path}, line {number}", text
    except compressed.ERRORS as error:
        raise InputError(f"{path} is damaged: {error}", "download it again") from error
