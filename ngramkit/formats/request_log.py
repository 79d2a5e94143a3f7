"""The log of a history: past requests, one record after another, only ever added to.

The bytes, little-endian:

    header   6 bytes "NGKLOG", u16 bytes per id (2 or 4), u32 generation, u32 crc32 of the twelve
             bytes before it (0: an older log, which has none)
    record   4 bytes "NGRQ", u32 n ids, u32 p of them prompt, u32 crc32 of the eight bytes before
             it and the ids, n ids, zeros up to a multiple of 4

Records begin at multiples of 4. A process that is killed while it writes leaves a torn record at
the end, one that is too short; readers stop before it, the next writer cuts it off. Anything else
that is no valid record is damage. It is stepped over and never deleted, even at the end: the next
record goes behind it. Behind damage the next record is searched for. Damage may have been made to
look like records, each of which takes a checksum over its claimed length; so a reading may search a
few times the log's size in vain, and the rest then counts as damaged too. Writers hold the folder's
lock, readers need none: a record is added by one write. A rewritten log (trim) is another file with
a higher generation, put in place by a rename, so a reader of the old one notices and begins again.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from ngramkit.errors import ArtifactError
from ngramkit.formats.container import Array
from ngramkit.formats.replacing import sync_folder
from ngramkit.untrusted import not_linked

HEADER, LOG_MAGIC = struct.Struct("<6sHII"), b"NGKLOG"
CHECKED = HEADER.size - 4  # bytes of the header before its checksum
RECORD, RECORD_MAGIC = struct.Struct("<4sIII"), b"NGRQ"
ALIGNED = 4  # bytes
BLOCK = 1 << 20  # bytes searched at a time for the next valid record
SEARCHED = 4  # times the log's size that are searched in vain behind damage, at most
LEAST = 2048  # bytes that every place counts for that is searched in vain


@dataclass(frozen=True)
class PastRequest:
    """One finished request; EOS is its last id where the model wrote one."""

    tokens: Array  # uint16 | uint32 [n], prompt and output
    prompt: int  # how many of them are prompt


@dataclass(frozen=True)
class Mark:
    """A place between two records: `offset` bytes into the log of this generation."""

    generation: int
    offset: int = HEADER.size


@dataclass
class Reading:
    """The records behind a mark."""

    requests: list[PastRequest] = field(default_factory=list)
    mark: Mark = field(default_factory=lambda: Mark(0))  # behind the last valid record
    restarted: bool = False  # the mark was of another generation: these are all records
    damage: list[bytes] = field(default_factory=list)  # stepped over, in the log's order
    torn: int = 0  # bytes at the end of a record that was not finished

    @property
    def damaged(self) -> int:
        """The number of bytes that hold no valid record, nor the beginning of one at the end."""
        return sum(map(len, self.damage))


class RequestLog:
    """A log of ids of dtype `width`, uint16 or uint32."""

    def __init__(
        self, path: Path, width: np.dtype[np.uint16] | np.dtype[np.uint32], vocabulary: int
    ) -> None:
        self.path = path
        self.vocabulary = vocabulary  # a record with another id is damaged
        self.width = width

    def create(self, requests: Iterable[PastRequest] = (), generation: int = 1) -> None:
        """Put a log of exactly `requests` in place; whole or not at all."""
        temporary = self.path.with_name(self.path.name + ".tmp")
        with open(temporary, "wb", opener=not_linked) as file:
            file.write(self._header(generation))
            for request in requests:
                file.write(self._packed(request))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)
        sync_folder(self.path.parent)

    def read(self, after: Mark | None = None) -> Reading:
        """Read every valid record behind `after`, or all. Raises ArtifactError of no log."""
        # Unbuffered: others write meanwhile, and old bytes must not be read again.
        with self.open_file("rb", buffering=0) as file:
            mark = Mark(self._generation(file))
            reading = Reading(mark=mark, damage=[self._header_damage(file)])
            if after is not None and self._holds(file, after):
                reading.mark = after
            reading.restarted = after is not None and reading.mark != after
            search = Search(SEARCHED * os.fstat(file.fileno()).st_size + BLOCK)
            for begin, end, request in self._records(file, reading.mark.offset, search):
                reading.damage.append(_between(file, reading.mark.offset, begin))
                padding = -(len(request.tokens) * self.width.itemsize) % ALIGNED
                reading.damage.append(_between(file, end - padding, end).strip(b"\0"))
                reading.requests.append(request)
                reading.mark = Mark(mark.generation, end)
            rest = _between(file, reading.mark.offset, None)
            if is_torn(rest, self.width.itemsize):
                reading.torn = len(rest)
            else:
                reading.damage.append(rest)
        return reading

    def append(self, request: PastRequest, at: Mark) -> Mark:
        """Add one record behind `at`, the end of the last valid one; cut off a torn one there.

        The caller holds the lock and has read up to `at`. A full disk leaves the log as it was.
        """
        with self.open_file("r+b", buffering=0) as file:
            rest = _between(file, at.offset, None)
            end = at.offset if is_torn(rest, self.width.itemsize) else at.offset + len(rest)
            record = bytes(-end % ALIGNED) + self._packed(request)
            file.truncate(end)
            file.seek(end)
            try:
                if file.write(record) != len(record):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            except OSError:
                file.truncate(end)
                raise
        return Mark(at.generation, end + len(record))

    def open_file(self, mode: str, buffering: int = -1) -> IO[bytes]:
        if not self.path.exists():
            raise ArtifactError(f"{self.path} is missing", "start a new history")
        if not self.path.is_file():  # opening a pipe would wait for somebody to write into it
            raise ArtifactError(f"{self.path} is not a plain file", "start a new history")
        return self.path.open(mode, buffering=buffering)

    def _packed(self, request: PastRequest) -> bytes:
        ids = np.ascontiguousarray(request.tokens, self.width.newbyteorder("<")).tobytes()
        count, prompt = len(request.tokens), request.prompt
        head = RECORD.pack(RECORD_MAGIC, count, prompt, checksum_of(count, prompt, ids))
        return head + ids + bytes(-len(ids) % ALIGNED)

    def _header(self, generation: int) -> bytes:
        head = HEADER.pack(LOG_MAGIC, self.width.itemsize, generation, 0)[:CHECKED]
        return head + struct.pack("<I", zlib.crc32(head))

    def _generation(self, file: IO[bytes]) -> int:
        head = file.read(HEADER.size)
        magic, width, generation, _ = HEADER.unpack(head.ljust(HEADER.size, b"\0"))
        if magic != LOG_MAGIC or width != self.width.itemsize:
            raise ArtifactError(
                f"{self.path} is damaged: it does not begin as a log of {self.width} ids does",
                "restore it, or start a new history",
            )
        return int(generation)

    def _header_damage(self, file: IO[bytes]) -> bytes:
        head = _between(file, 0, HEADER.size)
        checksum = int.from_bytes(head[CHECKED:], "little")
        return b"" if checksum in (0, zlib.crc32(head[:CHECKED])) else head

    def _holds(self, file: IO[bytes], mark: Mark) -> bool:
        file.seek(0)
        size = os.fstat(file.fileno()).st_size
        return mark.generation == self._generation(file) and mark.offset <= size

    def _records(
        self, file: IO[bytes], offset: int, search: Search
    ) -> Iterator[tuple[int, int, PastRequest]]:
        """Yield (begin, end, request) of every valid record from `offset` on, in bytes."""
        while True:
            request = self._record(file, offset, search)
            if request is None:
                following = self._next_valid(file, offset + ALIGNED, search)
                if following is None:
                    return
                # Its writer had the lock, so one that was seen writing here has finished.
                request = self._record(file, offset, search)
                if request is None:
                    offset = following
                    request = self._record(file, offset, search)
            if request is None:
                return
            end = file.tell()
            yield offset, end, request
            offset = end

    def _record(self, file: IO[bytes], offset: int, search: Search) -> PastRequest | None:
        """Read the record at `offset`, None where there is no valid one; stop behind it."""
        file.seek(offset)
        head = file.read(RECORD.size)
        if len(head) < RECORD.size or head[:4] != RECORD_MAGIC:
            return None
        _, count, prompt, checksum = RECORD.unpack(head)
        size = count * self.width.itemsize
        if size > os.fstat(file.fileno()).st_size - file.tell():
            return None
        ids = file.read(size)
        if prompt > count or checksum_of(count, prompt, ids) != checksum:
            search.left -= size
            return None
        padding = -size % ALIGNED
        if len(file.read(padding)) != padding:
            return None
        tokens = np.frombuffer(ids, self.width.newbyteorder("<"))
        return PastRequest(tokens, prompt) if tokens.max(initial=0) < self.vocabulary else None

    def _next_valid(self, file: IO[bytes], offset: int, search: Search) -> int | None:
        """Return the first offset, from `offset` on, at which a valid record begins.

        None also where the search may cost no more: the rest then counts as damaged.
        """
        size = os.fstat(file.fileno()).st_size
        offset += -offset % ALIGNED  # records are aligned, a made-up mark may not be
        while search.left > 0:
            file.seek(offset)
            block = file.read(BLOCK)
            if len(block) < RECORD.size:
                return None
            for at in likely_records(block, size - offset, self.width.itemsize):
                search.left -= LEAST
                if search.left <= 0:
                    return None
                if self._record(file, offset + at, search) is not None:
                    return offset + at
            offset += max((len(block) - RECORD.size) // ALIGNED, 1) * ALIGNED
        return None


def _between(file: IO[bytes], begin: int, end: int | None) -> bytes:
    file.seek(begin)
    return file.read(-1 if end is None else end - begin)


@dataclass
class Search:
    """The number of bytes that one reading may still search in vain."""

    left: int


def likely_records(block: bytes, room: int, width: int) -> list[int]:
    """Return where in `block` something like a record begins that ends within `room` bytes.

    `block` begins at a multiple of ALIGNED of the log; ids are `width` bytes wide.
    """
    words = np.frombuffer(block, "<u4", len(block) // ALIGNED)
    rows = np.flatnonzero(words[: len(words) - 3] == int.from_bytes(RECORD_MAGIC, "little"))
    counts, prompts = words[rows + 1].astype(np.int64), words[rows + 2]
    fits = (rows * ALIGNED + RECORD.size + counts * width <= room) & (prompts <= counts)
    starts: list[int] = (rows[fits] * ALIGNED).tolist()
    return starts


def is_torn(rest: bytes, width: int) -> bool:
    """Return whether `rest` is the beginning of one record, as a killed writer leaves it."""
    if len(rest) < RECORD.size:
        return rest[:4] == RECORD_MAGIC[: len(rest)]
    magic, count, prompt, checksum = RECORD.unpack_from(rest)
    room = len(rest) - RECORD.size
    if magic != RECORD_MAGIC or room >= count * width + -(count * width) % ALIGNED:
        return False
    for fewer in (room // width, room // width - 1):  # whole, but for a damaged length?
        ids = rest[RECORD.size : RECORD.size + fewer * width]
        if 0 <= fewer < count and checksum_of(fewer, prompt, ids) == checksum:
            return False
    return True


def checksum_of(count: int, prompt: int, ids: bytes) -> int:
    """Return the checksum of a record."""
    return zlib.crc32(ids, zlib.crc32(struct.pack("<II", count, prompt)))
