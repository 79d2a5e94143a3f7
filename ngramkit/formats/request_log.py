"""The log of a history: past requests, one record after another, append-only.

The bytes, little-endian:

    header   6 bytes "NGKLOG", u16 bytes per id (2 or 4), u32 generation, u32 crc32 of the twelve
             bytes before it
    record   4 bytes "NGRQ", u32 n ids, u32 p of them prompt, u32 crc32 of the eight bytes before
             it and the ids, n ids, zeros up to a multiple of 4

Records begin at multiples of 4. A killed writer leaves a torn record at the end. Readers stop
before it, and the next writer cuts it off. All other bytes outside valid records are damage:
readers skip it, and the next record is appended after it.

Writers hold the folder's lock; readers need none. A rewritten log is another file with a higher
generation that replaces the old one by a rename; readers notice the generation and start again.
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
CHECKED_BYTES = HEADER.size - 4  # bytes of the header before its checksum
RECORD, RECORD_MAGIC = struct.Struct("<4sIII"), b"NGRQ"
ALIGNMENT = 4  # bytes
# Bounds of a search for records after damage, in bytes checked in vain. Hostile damage may look
# like records, each of which costs a checksum over its stated length. The rest counts as damage.
FRUITLESS_BYTES_PER_LOG_BYTE = 4
FRUITLESS_BYTES_MORE = 1 << 20
FRUITLESS_BYTES_PER_PLACE = 2048  # minimum cost of a place, in bytes


@dataclass(frozen=True)
class PastRequest:
    """One finished request; EOS is its last id if the model wrote one."""

    tokens: Array  # uint16 | uint32 [n], prompt and output
    prompt: int  # number of prompt tokens


@dataclass(frozen=True)
class Mark:
    """A place between two records: `offset` bytes into the log of this generation."""

    generation: int
    offset: int = HEADER.size


@dataclass
class Reading:
    requests: list[PastRequest] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)  # ends of the requests, as offsets in bytes
    mark: Mark = field(default_factory=lambda: Mark(0))  # after the last valid record
    restarted: bool = False  # the mark was of another generation, so these are all records
    damage: list[bytes] = field(default_factory=list)  # in the log's order
    torn: int = 0  # bytes of an unfinished record at the end

    @property
    def damaged(self) -> int:
        return sum(map(len, self.damage))


class RequestLog:
    def __init__(
        self, path: Path, width: np.dtype[np.uint16] | np.dtype[np.uint32], vocabulary: int
    ) -> None:
        self.path = path
        self.vocabulary = vocabulary  # records with ids outside it are damaged
        self.width = width

    def create(self, requests: Iterable[PastRequest] = (), generation: int = 1) -> None:
        temporary = self.path.with_name(self.path.name + ".tmp")
        with open(temporary, "wb", opener=owner_only) as file:
            file.writelines(self.pack(requests, generation))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)
        sync_folder(self.path.parent)

    def pack(self, requests: Iterable[PastRequest], generation: int = 1) -> Iterator[bytes]:
        yield self._header(generation)
        yield from map(self._packed, requests)

    def read(self, after: Mark | None = None) -> Reading:
        """Read the valid records after a mark, or all. Raises ArtifactError without a log."""
        head, mark, body = self._bytes_after(after)
        reading = self._parse(head, mark, body)
        while reading.damaged:
            # A reader may see the next record before the end of the last one: read again.
            again = self._bytes_after(after)
            if again[:2] == (head, mark) and again[2].startswith(body):
                break
            head, mark, body = again
            reading = self._parse(head, mark, body)
        reading.restarted = after is not None and mark != after
        return reading

    def _bytes_after(self, after: Mark | None) -> tuple[bytes, Mark, bytes]:
        """Return the header, `after` (or the start of a rewritten log), and the bytes after it."""
        with self.open_file("rb", buffering=0) as file:
            head = file.read(HEADER.size)
            mark = Mark(self._generation(head))
            size = os.fstat(file.fileno()).st_size
            if after is not None and after.generation == mark.generation and after.offset <= size:
                mark = after
            file.seek(mark.offset)
            return head, mark, file.read()

    def _parse(self, head: bytes, mark: Mark, body: bytes) -> Reading:
        sound = int.from_bytes(head[CHECKED_BYTES:], "little") == zlib.crc32(head[:CHECKED_BYTES])
        reading, at = Reading(mark=mark, damage=[b"" if sound else head]), 0
        for begin, request in self._valid_records(body, -mark.offset % ALIGNMENT):
            end = begin + record_size(request.tokens.nbytes)
            padding = body[begin + RECORD.size + request.tokens.nbytes : end]
            reading.damage += [body[at:begin], padding.strip(b"\0")]
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
        """Append records and return the end. A torn record after `at` is cut off.

        The caller holds the lock and has read up to `at`. A full disk leaves only whole records.
        """
        with self.open_file("r+b", buffering=0) as file:
            file.seek(at.offset)
            rest = file.read()
            end = at.offset if is_torn(rest, self.width.itemsize) else at.offset + len(rest)
            file.truncate(end)
            file.seek(end)
            for request in requests:
                record = bytes(-end % ALIGNMENT) + self._packed(request)
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
            raise ArtifactError(f"cannot read {self.path}: it is missing", "Start a new history.")
        if not self.path.is_file():  # opening a pipe would wait for a writer
            raise ArtifactError(
                f"cannot read {self.path}: it is not a plain file", "Start a new history."
            )
        return self.path.open(mode, buffering=buffering)

    def _packed(self, request: PastRequest) -> bytes:
        ids = np.ascontiguousarray(request.tokens, self.width.newbyteorder("<")).tobytes()
        count, prompt = len(request.tokens), request.prompt
        head = RECORD.pack(RECORD_MAGIC, count, prompt, checksum_of(count, prompt, ids))
        return head + ids + bytes(-len(ids) % ALIGNMENT)

    def _header(self, generation: int) -> bytes:
        head = HEADER.pack(LOG_MAGIC, self.width.itemsize, generation, 0)[:CHECKED_BYTES]
        return head + struct.pack("<I", zlib.crc32(head))

    def _generation(self, head: bytes) -> int:
        magic, width, generation, _ = HEADER.unpack(head.ljust(HEADER.size, b"\0"))
        if magic != LOG_MAGIC or width != self.width.itemsize:
            raise ArtifactError(
                f"{self.path} is damaged: it has no header of a log with {self.width} ids",
                "Restore it, or start a new history.",
            )
        return int(generation)

    def _valid_records(self, body: bytes, aligned: int) -> Iterator[tuple[int, PastRequest]]:
        """Yield the begin of every valid record and its request.

        After damage, records begin at `aligned` plus a multiple of ALIGNMENT.
        """
        left = FRUITLESS_BYTES_PER_LOG_BYTE * len(body) + FRUITLESS_BYTES_MORE
        likely: Iterator[int] | None = None  # places to try after damage
        at: int | None = 0
        while at is not None and left > 0:
            request, vain = self._valid_record_at(body, at)
            if request is not None:
                yield at, request
                at += record_size(request.tokens.nbytes)
                continue
            if likely is None:
                first = at + 1 + (aligned - at - 1) % ALIGNMENT
                likely = iter(likely_records(body, first, self.width.itemsize))
            left -= FRUITLESS_BYTES_PER_PLACE + vain
            at = next((place for place in likely if place > at), None)

    def _valid_record_at(self, body: bytes, at: int) -> tuple[PastRequest | None, int]:
        """Return the valid record at `at` or None, and the bytes that were checked in vain."""
        if len(body) < at + RECORD.size or not body.startswith(RECORD_MAGIC, at):
            return None, 0
        _, count, prompt, checksum = RECORD.unpack_from(body, at)
        begin, size = at + RECORD.size, count * self.width.itemsize
        if len(body) < at + record_size(size) or prompt > count:
            return None, 0
        if checksum_of(count, prompt, memoryview(body)[begin : begin + size]) != checksum:
            return None, size
        tokens = np.frombuffer(body, self.width.newbyteorder("<"), count, begin)
        if tokens.max(initial=0) >= self.vocabulary:
            return None, size
        return PastRequest(tokens, prompt), 0


def record_size(ids_bytes: int) -> int:
    """Return the bytes of a record, with its header and padding."""
    return RECORD.size + ids_bytes + -ids_bytes % ALIGNMENT


def likely_records(body: bytes, first: int, width: int) -> list[int]:
    """Return the ascending places in `body` of a record's magic and a length that fits."""
    if len(body) < first + RECORD.size:
        return []
    words = np.frombuffer(body, "<u4", (len(body) - first) // ALIGNMENT, first)
    rows = np.flatnonzero(words[: len(words) - 3] == int.from_bytes(RECORD_MAGIC, "little"))
    counts, prompts = words[rows + 1].astype(np.int64), words[rows + 2]
    ends = first + rows * ALIGNMENT + RECORD.size + counts * width
    fits = (ends <= len(body)) & (prompts <= counts)
    starts: list[int] = (first + rows[fits] * ALIGNMENT).tolist()
    return starts


def is_torn(rest: bytes, width: int) -> bool:
    """Return whether `rest` is the beginning of one record, as left by a killed writer."""
    if len(rest) < RECORD.size:
        return rest[:4] == RECORD_MAGIC[: len(rest)]
    magic, count, prompt, checksum = RECORD.unpack_from(rest)
    if magic != RECORD_MAGIC or len(rest) >= record_size(count * width):
        return False
    room = len(rest) - RECORD.size
    for fewer in (room // width, room // width - 1):  # a whole record with a damaged length?
        ids = rest[RECORD.size : RECORD.size + fewer * width]
        if 0 <= fewer < count and checksum_of(fewer, prompt, ids) == checksum:
            return False
    return True


def checksum_of(count: int, prompt: int, ids: bytes | memoryview) -> int:
    return zlib.crc32(ids, zlib.crc32(struct.pack("<II", count, prompt)))
