""".gz and .zst as streams that say when they were cut short. Knows bytes only."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import zstandard

from ngramkit.corpus.bounded import MAX_DOCUMENT, lines
from ngramkit.errors import InputError
from ngramkit.formats.files import open_stream

SUFFIXES = (".gz", ".zst")
ERRORS = (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError)  # damage, while reading
CHUNK = 1 << 10  # compressed bytes; a zstd block of 4 may unfold to 2**17, so that is 32 MiB
WINDOW = 1 << 27  # bytes that a frame may ask to look back


def decompressed(suffix: str, raw: IO[bytes]) -> IO[bytes]:
    """The plain bytes of `raw`; `raw` itself where the suffix is of no compression."""
    if suffix == ".gz":
        return cast("IO[bytes]", gzip.GzipFile(fileobj=raw))
    if suffix == ".zst":
        return cast("IO[bytes]", io.BufferedReader(_ZstdFrames(raw)))
    return raw


def open_lines(path: Path, suffix: str) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with something in them, and their numbers, as `bounded.lines`."""
    with open_stream(path, error=InputError) as raw, decompressed(suffix, raw) as file:
        yield from lines(file, MAX_DOCUMENT, str(path), "leave it out")


def _decompressor() -> Any:
    return zstandard.ZstdDecompressor(max_window_size=WINDOW).decompressobj()


class _ZstdFrames(io.RawIOBase):
    """One frame after another. zstandard's own reader takes a truncated file for a whole one."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._frame = _decompressor()
        self._whole = False  # whether the frame has ended
        self._plain = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Raises EOFError where the file ends inside a frame."""
        room = memoryview(buffer)
        while not self._plain:
            chunk = self._frame.unused_data if self._whole else b""
            chunk = chunk or self._raw.read(CHUNK)
            if not chunk and self._whole:
                return 0
            if not chunk:
                raise EOFError("the file was cut short")
            if self._whole:
                self._frame = _decompressor()
            self._plain = memoryview(self._frame.decompress(chunk))
            self._whole = self._frame.eof
        taken, self._plain = self._plain[: len(room)], self._plain[len(room) :]
        room[: len(taken)] = taken
        return len(taken)
