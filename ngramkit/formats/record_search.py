"""Where records of a log may begin behind damage, and how long that is searched for.

Damage may have been made to look like records, each of which takes a checksum over what it claims
to hold; so a search is given so many bytes that it may look at in vain. See formats.request_log.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import numpy as np

RECORD = struct.Struct("<4sIII")
RECORD_MAGIC = b"NGRQ"
ALIGNED = 4  # bytes
SEARCHED = 4  # times the log's size is looked at in vain behind damage, at most, before it is left
LEAST = 2048  # bytes that every place counts for that is looked at in vain


@dataclass
class Search:
    """How many bytes one reading may still look at in vain."""

    left: int


def likely_records(block: bytes, room: int, width: int) -> list[int]:
    """Where in `block` what looks like a record begins, that ends within `room` bytes.

    `block` begins at a multiple of ALIGNED of the log; ids are `width` bytes wide.
    """
    words = np.frombuffer(block, "<u4", len(block) // ALIGNED)
    found = np.flatnonzero(words[: len(words) - 3] == int.from_bytes(RECORD_MAGIC, "little"))
    counts, prompts = words[found + 1].astype(np.int64), words[found + 2]
    fits = (found * ALIGNED + RECORD.size + counts * width <= room) & (prompts <= counts)
    starts: list[int] = (found[fits] * ALIGNED).tolist()
    return starts


def is_torn(rest: bytes, width: int) -> bool:
    """Whether `rest` is the beginning of one record, as a killed writer leaves it."""
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
    """What a record of these says of itself."""
    return zlib.crc32(ids, zlib.crc32(struct.pack("<II", count, prompt)))
