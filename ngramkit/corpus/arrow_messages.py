"""What the messages of an Arrow IPC stream say of their sizes, before pyarrow sets memory aside.

    0xFFFFFFFF, i32 bytes of metadata, metadata (a flatbuffer), body      (format/Message.fbs)

Before Arrow 0.15 the mark was missing. A compressed buffer begins with an i64, the bytes that it
unpacks to, or -1 where it is as it stands: a few bytes may stand for any number.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import IO, Any

MARK = b"\xff\xff\xff\xff"
MAGIC = b"ARROW1\0\0"  # before the stream that is the first part of an IPC file
DICTIONARY, BATCH = 2, 3  # kinds of messages that have buffers


class MessageError(ValueError):
    """The file is not what its messages say."""


def require_bounded(file: IO[bytes], size: int, most: int) -> None:
    """Look at every message of a stream that begins at `file`'s place; the place stays.

    Raises MessageError where a message ends behind `size`, the file's bytes, is damaged, or its
    buffers would unpack to more than `most` bytes.
    """
    place = file.tell()
    try:
        while header := _metadata(file, size):
            body, end = file.tell(), _require_inside(file.tell(), _length(header), size)
            unpacked = sum(_unpacked(file, body, end, *each) for each in _buffers(header))
            if unpacked > most:
                raise MessageError(f"a batch of it would unpack to {unpacked:,} bytes")
            file.seek(end)
    except (struct.error, IndexError) as error:
        raise MessageError("a message of it leads outside itself") from error
    finally:
        file.seek(place)


def _metadata(file: IO[bytes], size: int) -> bytes:
    """The next message's; nothing at the end of the stream."""
    start = file.read(4)
    if start == MARK:
        start = file.read(4)
    length = int.from_bytes(start, "little", signed=True) if len(start) == 4 else 0
    _require_inside(file.tell(), length, size)
    return file.read(length)


def _require_inside(place: int, length: int, size: int) -> int:
    if length < 0 or place + length > size:
        raise MessageError("a message of it ends behind the file")
    return place + length


def _root(header: bytes) -> int:
    return int(struct.unpack_from("<I", header, 0)[0])


def _field(header: bytes, table: int, number: int) -> int:
    """Where the field of a flatbuffer's table stands, 0 where it has none."""
    (back,) = struct.unpack_from("<i", header, table)
    vtable = table - back
    if vtable < 0:
        raise MessageError("a message of it leads outside itself")
    (length,) = struct.unpack_from("<H", header, vtable)
    if 6 + 2 * number > length:
        return 0
    (place,) = struct.unpack_from("<H", header, vtable + 4 + 2 * number)
    return table + place if place else 0


def _followed(header: bytes, place: int) -> int:
    return place + int(struct.unpack_from("<I", header, place)[0])


def _length(header: bytes) -> int:
    """Bytes of the body."""
    place = _field(header, _root(header), 3)
    return int(struct.unpack_from("<q", header, place)[0]) if place else 0


def _buffers(header: bytes) -> Iterator[tuple[int, int]]:
    """(offset, length) of each buffer of the body that is compressed."""
    message = _root(header)
    kind, content = _field(header, message, 1), _field(header, message, 2)
    if not kind or not content:
        return
    table = _followed(header, content)
    if header[kind] == DICTIONARY:
        content = _field(header, table, 1)
        if not content:
            return
        table = _followed(header, content)
    elif header[kind] != BATCH:
        return
    listed = _field(header, table, 2)
    if not listed or not _field(header, table, 3):  # nothing is compressed
        return
    vector = _followed(header, listed)
    (count,) = struct.unpack_from("<I", header, vector)
    for i in range(count):
        offset, length = struct.unpack_from("<qq", header, vector + 4 + 16 * i)
        if length:
            yield offset, length


def _unpacked(file: IO[Any], body: int, end: int, offset: int, length: int) -> int:
    """Bytes that the buffer unpacks to."""
    if min(offset, length) < 0 or body + offset + length > end or length < 8:
        raise MessageError("a buffer of it ends behind its message")
    file.seek(body + offset)
    (size,) = struct.unpack("<q", file.read(8))
    if size < -1:
        raise MessageError(f"a buffer of it would unpack to {size:,} bytes")
    return length if size == -1 else int(size)
