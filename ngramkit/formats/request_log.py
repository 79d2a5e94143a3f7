"""The log of a history: past requests, one record after another, only ever added to.

The bytes, little-endian:

    header   6 bytes "NGKLOG", u16 bytes per id (2 or 4), u64 generation
    record   4 bytes "NGRQ", u32 n ids, u32 p of them prompt, u32 crc32 of the eight bytes before
             it and the ids, n ids, zeros up to a multiple of 4
    record   ...

A process that is killed while it writes leaves a torn record at the end: its length or checksum
is wrong and nothing valid follows. Readers stop before it, the next writer cuts it off. Damage
with a valid record behind it is stepped over. Writers hold the folder's lock, readers need none:
a record is added by one write. A rewritten log (trim) is another file with a higher generation, put
in place by a rename, so whoever has read part of the old one notices and begins again.

This module does not know what the requests are good for.
"""

from __future__ import annotations

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

HEADER = struct.Struct("<6sHQ")
RECORD = struct.Struct("<4sIII")
LOG_MAGIC, RECORD_MAGIC = b"NGKLOG", b"NGRQ"
ALIGNED = 4
BLOCK = 1 << 20  # bytes searched at a time for the next valid record


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
    """What was found behind a mark."""

    requests: list[PastRequest] = field(default_factory=list)
    mark: Mark = field(default_factory=lambda: Mark(0))  # behind the last valid record
    restarted: bool = False  # the mark was of another generation: these are all there are
    damaged: int = 0  # bytes stepped over between valid records
    torn: int = 0  # bytes behind the last valid record


class RequestLog:
    """`width` is that of an id: numpy uint16 or uint32."""

    def __init__(self, path: Path, width: np.dtype[np.uint16] | np.dtype[np.uint32]) -> None:
        self.path = path
        self.width = width

    def create(self, requests: Iterable[PastRequest] = (), generation: int = 1) -> None:
        """Puts a log of exactly `requests` in place; whole or not at all."""
        temporary = self.path.with_name(self.path.name + ".tmp")
        with temporary.open("wb") as file:
            file.write(HEADER.pack(LOG_MAGIC, self.width.itemsize, generation))
            for request in requests:
                file.write(self._packed(request))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)

    def read(self, after: Mark | None = None) -> Reading:
        """Every valid record behind `after`, or all of them. Raises ArtifactError for a non-log."""
        # Unbuffered: others write meanwhile, and what was read once must not be served again.
        with self._open("rb", buffering=0) as file:
            mark = Mark(self._generation(file))
            reading = Reading(mark=mark)
            if after is not None and self._holds(file, after):
                reading.mark = after
            reading.restarted = after is not None and reading.mark != after
            for begin, end, request in self._records(file, reading.mark.offset):
                reading.damaged += begin - reading.mark.offset
                reading.requests.append(request)
                reading.mark = Mark(mark.generation, end)
            reading.torn = os.fstat(file.fileno()).st_size - reading.mark.offset
        return reading

    def append(self, request: PastRequest, at: Mark) -> Mark:
        """Adds one record at `at`, the end of the last valid one; cuts off what is behind that.

        The caller holds the lock and has read up to `at`. A full disk leaves the log as it was.
        """
        record = self._packed(request)
        with self._open("r+b", buffering=0) as file:
            file.truncate(at.offset)
            file.seek(at.offset)
            try:
                written = file.write(record)
                if written != len(record):
                    raise OSError(28, "No space left on device", str(self.path))
            except OSError:
                file.truncate(at.offset)
                raise
        return Mark(at.generation, at.offset + len(record))

    def _open(self, mode: str, buffering: int = -1) -> IO[bytes]:
        try:
            return self.path.open(mode, buffering=buffering)
        except FileNotFoundError as error:
            raise ArtifactError(f"{self.path} is missing", "start a new history") from error

    def _packed(self, request: PastRequest) -> bytes:
        ids = np.ascontiguousarray(request.tokens, self.width.newbyteorder("<")).tobytes()
        lengths = struct.pack("<II", len(request.tokens), request.prompt)
        checksum = zlib.crc32(ids, zlib.crc32(lengths))
        padding = bytes(-len(ids) % ALIGNED)
        return RECORD_MAGIC + lengths + struct.pack("<I", checksum) + ids + padding

    def _generation(self, file: IO[bytes]) -> int:
        head = file.read(HEADER.size)
        magic, width, generation = HEADER.unpack(head.ljust(HEADER.size, b"\0"))
        if magic != LOG_MAGIC or width != self.width.itemsize:
            raise ArtifactError(
                f"{self.path} is damaged: it does not begin as a log of {self.width} ids does",
                "restore it, or start a new history",
            )
        return int(generation)

    def _holds(self, file: IO[bytes], mark: Mark) -> bool:
        file.seek(0)
        return (
            mark.generation == self._generation(file)
            and mark.offset <= os.fstat(file.fileno()).st_size
        )

    def _records(self, file: IO[bytes], offset: int) -> Iterator[tuple[int, int, PastRequest]]:
        """(begin, end, request) of every valid record from `offset` on, in bytes."""
        while True:
            request = self._record(file, offset)
            if request is None:
                found = self._next_valid(file, offset + ALIGNED)
                if found is None:
                    return
                # Who wrote the later one had the lock: a writer met at its work has now finished.
                request = self._record(file, offset)
                if request is None:
                    offset = found
                    request = self._record(file, offset)
            if request is None:
                return
            end = file.tell()
            yield offset, end, request
            offset = end

    def _record(self, file: IO[bytes], offset: int) -> PastRequest | None:
        """The record at `offset`, None where there is no valid one; leaves the file behind it."""
        file.seek(offset)
        head = file.read(RECORD.size)
        if len(head) < RECORD.size or head[:4] != RECORD_MAGIC:
            return None
        _, count, prompt, checksum = RECORD.unpack(head)
        size = count * self.width.itemsize
        if size > os.fstat(file.fileno()).st_size - file.tell():
            return None
        ids = file.read(size)
        if prompt > count or zlib.crc32(ids, zlib.crc32(head[4:12])) != checksum:
            return None
        padding = -size % ALIGNED
        if len(file.read(padding)) != padding:
            return None
        return PastRequest(np.frombuffer(ids, self.width.newbyteorder("<")), prompt)

    def _next_valid(self, file: IO[bytes], offset: int) -> int | None:
        """The first offset, from `offset` on, at which a valid record begins."""
        while True:
            file.seek(offset)
            block = file.read(BLOCK)
            if len(block) < RECORD.size:
                return None
            at = block.find(RECORD_MAGIC)
            if at < 0:
                offset += len(block) - len(RECORD_MAGIC) + 1
                continue
            if self._record(file, offset + at) is not None:
                return offset + at
            offset += at + 1
