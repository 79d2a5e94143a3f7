"""Reading without trust in size: a file of kilobytes may unfold to gigabytes. Knows bytes only."""

from __future__ import annotations

import gzip
import io
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import zstandard

from ngramkit.errors import InputError
from ngramkit.formats.container import Array
from ngramkit.untrusted import open_stream

MAX_DOCUMENT = 64 << 20  # bytes
BLOCK = 1 << 20
SMALLER = "leave it out, or raise max_document"
BLANK = re.compile(rb"\s*")


def whole(file: IO[bytes], most: int, where: str) -> bytes:
    """All of the file. Raises InputError where it has more than `most` bytes."""
    raw = file.read(most + 1)
    if len(raw) > most:
        raise too_large(where, most)
    return raw


def lines(
    file: IO[bytes], most: int, where: str, hint: str = SMALLER
) -> Iterator[tuple[int, bytes]]:
    r"""Every line with something in it, and its number from 1 on.

    Blank ones, be there billions, are passed over a block at a time. Raises InputError where a line
    has more than `most` bytes.

    >>> import io
    >>> list(lines(io.BytesIO(b"\n\na\n \nb"), 10, "x"))
    [(3, b'a'), (5, b'b')]
    """
    number, begun = 1, bytearray()
    while block := file.read(BLOCK):
        at = 0
        while at < len(block):
            if not begun:
                after = BLANK.match(block, at).end()  # type: ignore[union-attr]
                number += block.count(b"\n", at, after)
                at = after
            end = block.find(b"\n", at)
            begun += block[at : end if end >= 0 else len(block)]
            if len(begun) > most:
                raise too_large(f"{where}, line {number}", most, hint)
            if end < 0:
                break
            if begun:
                yield number, bytes(begun)
                begun = bytearray()
                number += 1
            at = end + 1
    if begun:
        yield number, bytes(begun)


def too_large(where: str, most: int, hint: str = SMALLER) -> InputError:
    return InputError(
        f"{where}: a document of more than {most:,} bytes",
        hint,
        option="max_document",
    )


# .gz and .zst as streams that say when they were cut short. Knows bytes only.

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


# What the messages of an Arrow IPC stream say of their sizes, before pyarrow sets memory aside.
#
#     0xFFFFFFFF, i32 bytes of metadata, metadata (a flatbuffer), body      (format/Message.fbs)
#
# Before Arrow 0.15 the mark was missing. A compressed buffer begins with an i64, the bytes that it
# unpacks to, or -1 where it is as it stands: a few bytes may stand for any number.

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


# What rows of Arrow's arrays would take as Python's objects, known before any is made.


class Sizes(NamedTuple):
    """Of each row."""

    bytes: Array  # int64[n], of its texts
    values: Array  # int64[n]: texts, numbers, lists and objects


def row_sizes(array: Any) -> Sizes:
    """Those of a pyarrow.Array: of a dictionary's entry each time it stands there.

    Raises TypeError for a kind that holds neither texts nor numbers nor lists of them.
    """
    kind, none, one = array.type, np.zeros(len(array), np.int64), np.ones(len(array), np.int64)
    if pa.types.is_dictionary(kind):
        return _of_entries(array)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return Sizes(_view_lengths(array), one)
    if _is_bytes(kind):
        return Sizes(pc.binary_length(array).fill_null(0).to_numpy().astype(np.int64), one)
    if pa.types.is_struct(kind):
        parts = [row_sizes(part) for part in array.flatten()]
        return Sizes(sum((p.bytes for p in parts), none), sum((p.values for p in parts), one))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return _of_lists(array)
    if pa.types.is_nested(kind) or pa.types.is_run_end_encoded(kind):
        raise TypeError(f"{kind} where a text was expected")
    return Sizes(none, one)


def without_dictionaries(kind: Any) -> Any:
    """Return the Arrow type with plain values for dictionaries, in lists and objects too."""
    if pa.types.is_dictionary(kind):
        return without_dictionaries(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        form = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return form(_plain(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([_plain(kind.field(i)) for i in range(kind.num_fields)])
    return kind


def _plain(field: Any) -> Any:
    return field.with_type(without_dictionaries(field.type))


def is_string(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: Any) -> bool:
    return is_string(kind) or bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _of_entries(array: Any) -> Sizes:
    entries = row_sizes(array.dictionary)
    there = array.indices.is_valid().to_numpy(zero_copy_only=False)
    places = array.indices.fill_null(0).to_numpy()[there]
    found = Sizes(np.zeros(len(array), np.int64), np.ones(len(array), np.int64))
    for rows, of in zip(found, entries, strict=True):
        rows[there] = of[places]
    return found


def _view_lengths(array: Any) -> Array:
    """Each view is 16 bytes, the first four of them its length."""
    views = np.frombuffer(array.buffers()[1], np.int32)[0::4]
    lengths: Array = views[array.offset : array.offset + len(array)].astype(np.int64)
    lengths[~array.is_valid().to_numpy(zero_copy_only=False)] = 0
    return lengths


def _of_lists(array: Any) -> Sizes:
    offsets = array.offsets.to_numpy().astype(np.int64)
    begin, end = int(offsets[0]), int(offsets[-1])
    inner = row_sizes(array.values.slice(begin, end - begin))
    ends = offsets - begin
    return Sizes(_sums(inner.bytes, ends), 1 + _sums(inner.values, ends))


def _sums(each: Array, ends: Array) -> Array:
    until = np.concatenate([[0], np.cumsum(each)])
    sums: Array = until[ends[1:]] - until[ends[:-1]]
    return sums
