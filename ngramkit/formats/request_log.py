"""The log of a history: past requests, one record after another, only ever added to.

The bytes, little-endian:

    header   6 bytes "NGKLOG", u16 bytes per id (2 or 4), u32 generation, u32 crc32 of the twelve
             bytes before it
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

from ngramkit.basics.errors import ArtifactError
from ngramkit.basics.untrusted import owner_only
from ngramkit.formats.replacing import sync_folder
from ngramkit.formats.safetensors import Array

HEADER, LOG_MAGIC = struct.Struct("<6sHII"), b"NGKLOG"
CHECKED = HEADER.size - 4  # bytes of the header before its checksum
RECORD, RECORD_MAGIC = struct.Struct("<4sIII"), b"NGRQ"
ALIGNED = 4  # bytes
SEARCHED = 4  # times the log's size that are searched in vain behind damage, at most
FREE = 1 << 20  # bytes more that are, however short the log
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
    ends: list[int] = field(default_factory=list)  # of these, bytes from the log's beginning
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
        with open(temporary, "wb", opener=owner_only) as file:
            file.writelines(self.pack(requests, generation))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)
        sync_folder(self.path.parent)

    def pack(self, requests: Iterable[PastRequest], generation: int = 1) -> Iterator[bytes]:
        """Yield the bytes of a log of exactly `requests`."""
        yield self._header(generation)
        yield from map(self._packed, requests)

    def read(self, after: Mark | None = None) -> Reading:
        """Read every valid record behind `after`, or all. Raises ArtifactError of no log."""
        head, mark, body = self._content(after)
        reading = self._parse(head, mark, body)
        while reading.damaged:
            # Who reads while others write may see the next record before the end of the last one.
            again = self._content(after)
            if again[:2] == (head, mark) and again[2].startswith(body):
                break
            head, mark, body = again
            reading = self._parse(head, mark, body)
        reading.restarted = after is not None and mark != after
        return reading

    def _content(self, after: Mark | None) -> tuple[bytes, Mark, bytes]:
        """Return the header, `after`, and the log behind it; all of it where that is another
        log's mark."""
        with self.open_file("rb", buffering=0) as file:
            head = file.read(HEADER.size)
            mark = Mark(self._generation(head))
            size = os.fstat(file.fileno()).st_size
            if after is not None and after.generation == mark.generation and after.offset <= size:
                mark = after
            file.seek(mark.offset)
            return head, mark, file.read()

    def _parse(self, head: bytes, mark: Mark, body: bytes) -> Reading:
        sound = int.from_bytes(head[CHECKED:], "little") == zlib.crc32(head[:CHECKED])
        reading, at = Reading(mark=mark, damage=[b"" if sound else head]), 0
        for begin, end, padding, request in self._records(body, -mark.offset % ALIGNED):
            reading.damage += [body[at:begin], body[end - padding : end].strip(b"\0")]
            reading.requests.append(request)
            reading.ends.append(mark.offset + end)
            at = end
        reading.mark = Mark(mark.generation, mark.offset + at)
        rest = body[at:]
        if is_torn(rest, self.width.itemsize):
            reading.torn = len(rest)
        else:
            reading.damage.append(rest)
        return reading

    def append(self, requests: Iterable[PastRequest], at: Mark) -> Mark:
        """Add records after `at`, the end of the last valid one; cut off a torn one there.

        The caller holds the lock and has read up to `at`. A full disk leaves whole records alone.
        """
        with self.open_file("r+b", buffering=0) as file:
            file.seek(at.offset)
            rest = file.read()
            end = at.offset if is_torn(rest, self.width.itemsize) else at.offset + len(rest)
            file.truncate(end)
            file.seek(end)
            for request in requests:
                record = bytes(-end % ALIGNED) + self._packed(request)
                try:
                    if file.write(record) != len(record):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
                except OSError:
                    file.truncate(end)
                    raise
                end += len(record)
        return Mark(at.generation, end)

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

    def _generation(self, head: bytes) -> int:
        magic, width, generation, _ = HEADER.unpack(head.ljust(HEADER.size, b"\0"))
        if magic != LOG_MAGIC or width != self.width.itemsize:
            raise ArtifactError(
                f"{self.path} is damaged: it does not begin as a log of {self.width} ids does",
                "restore it, or start a new history",
            )
        return int(generation)

    def _records(self, body: bytes, aligned: int) -> Iterator[tuple[int, int, int, PastRequest]]:
        """Yield (begin, end, padding, request) of every valid record, in bytes.

        Behind damage records begin at `aligned` and multiples of ALIGNED from there. It ends early
        where the search may cost no more: the rest then counts as damaged.
        """
        left = SEARCHED * len(body) + FREE  # bytes that may still be searched in vain
        likely: Iterator[int] | None = None
        at = 0
        while True:
            request, vain = self._record(body, at)
            while request is None:
                if likely is None:
                    first = at + 1 + (aligned - at - 1) % ALIGNED
                    likely = iter(likely_records(body, first, self.width.itemsize))
                left -= LEAST + vain
                begin = next((place for place in likely if place > at), None)
                if begin is None or left <= 0:
                    return
                at = begin
                request, vain = self._record(body, at)
            size = len(request.tokens) * self.width.itemsize
            padding = -size % ALIGNED
            end = at + RECORD.size + size + padding
            yield at, end, padding, request
            at = end

    def _record(self, body: bytes, at: int) -> tuple[PastRequest | None, int]:
        """Return the record at `at`, None where there is no valid one, and how many bytes were
        looked at in vain."""
        if len(body) < at + RECORD.size or not body.startswith(RECORD_MAGIC, at):
            return None, 0
        _, count, prompt, checksum = RECORD.unpack_from(body, at)
        begin, size = at + RECORD.size, count * self.width.itemsize
        if len(body) < begin + size + -size % ALIGNED or prompt > count:
            return None, 0
        if checksum_of(count, prompt, memoryview(body)[begin : begin + size]) != checksum:
            return None, size
        tokens = np.frombuffer(body, self.width.newbyteorder("<"), count, begin)
        if tokens.max(initial=0) >= self.vocabulary:
            return None, size
        return PastRequest(tokens, prompt), 0


def likely_records(body: bytes, first: int, width: int) -> list[int]:
    """Return where in `body` something like a record begins that ends in it, ascending.

    Records begin at `first` and multiples of ALIGNED from there; ids are `width` bytes wide.
    """
    if len(body) < first + RECORD.size:
        return []
    words = np.frombuffer(body, "<u4", (len(body) - first) // ALIGNED, first)
    rows = np.flatnonzero(words[: len(words) - 3] == int.from_bytes(RECORD_MAGIC, "little"))
    counts, prompts = words[rows + 1].astype(np.int64), words[rows + 2]
    ends = first + rows * ALIGNED + RECORD.size + counts * width
    fits = (ends <= len(body)) & (prompts <= counts)
    starts: list[int] = (first + rows[fits] * ALIGNED).tolist()
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


def checksum_of(count: int, prompt: int, ids: bytes | memoryview) -> int:
    """Return the checksum of a record."""
    return zlib.crc32(ids, zlib.crc32(struct.pack("<II", count, prompt)))
