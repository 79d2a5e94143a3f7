"""One file of a corpus, wherever it lies: its kind by its name, its bytes unpacked, its rows.

Knows names and open bytes; not where files come from.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from ngramkit.corpus import compressed
from ngramkit.corpus.bounded import MAX_DOCUMENT
from ngramkit.corpus.document import Row
from ngramkit.corpus.readers import READERS, UNFOLDED, read_parquet
from ngramkit.errors import InputError

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
    if suffixes and suffixes[-1].lower() in compressed.SUFFIXES:
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
    plain = compressed.decompressed(path.suffix.lower(), raw)
    if kind_of(path) in SEEKING and (plain is not raw or not raw.seekable()):
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(plain, copy)
            copy.seek(0)
            yield cast("IO[bytes]", copy)
    else:
        yield plain
