"""Reading without trust in size: a file of kilobytes may unfold to gigabytes.

Lines and whole files of bounded size; .gz and .zst streams; and the sizes of Arrow data before
pyarrow allocates memory for it. An Arrow IPC stream (format/Message.fbs) is a sequence of

    0xFFFFFFFF, i32 bytes of metadata, metadata (a flatbuffer), body

Before Arrow 0.15 the mark was missing. A compressed buffer begins with an i64, the bytes that it
unpacks to, or -1 where it is plain: a few bytes may claim any number.
"""

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
import zstandard

from ngramkit.basics.errors import InputError, reason
from ngramkit.basics.untrusted import open_stream
from ngramkit.formats.safetensors import Array

MAX_DOCUMENT = 64 << 20  # bytes
UNFOLDED = 16  # a file that is unpacked as a whole may have so many times its size, or a document's
BLOCK = 1 << 20
SMALLER = "leave it out, or raise max_document"
MOST_LAYERS = 2  # servers pack what is packed already
GZIP, ZSTD = b"\x1f\x8b", re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
NOT_READ = {b"\xfd7zXZ\0": "xz", b"BZh": "bzip2", b"PK\x03\x04": "zip", b"7z\xbc\xaf": "7z"}
START = 8  # bytes that tell
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
BOM = b"\xef\xbb\xbf"
BLANK = re.compile(rb"\s*")
SUFFIXES = (".gz", ".zst")
ERRORS = (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError)  # damage, while reading
CHUNK = 1 << 10  # compressed bytes; a zstd block of 4 may unfold to 2**17, so this may to 32 MiB
WINDOW = 1 << 27  # bytes that a zstd frame may refer back
MARK = b"\xff\xff\xff\xff"
MAGIC = b"ARROW1\0\0"  # before the stream that is the first part of an IPC file
DICTIONARY, BATCH = 2, 3  # kinds of messages that have buffers


def whole(file: IO[bytes], most: int, where: str, head: bytes = b"") -> bytes:
    """Read all of the file, of which `head` is read. Raises InputError where it has more than
    `most` bytes."""
    raw = head + file.read(most + 1 - len(head)) if len(head) <= most else head
    if len(raw) > most:
        raise too_large(where, most)
    return raw


def lines(
    file: IO[bytes], most: int, where: str, hint: str = SMALLER, head: bytes = b""
) -> Iterator[tuple[int, bytes]]:
    r"""Yield every line that is not blank, with its number from 1 on; no byte order mark. `head` is
    what was read of the file.

    Blank lines, even billions, are skipped a block at a time. Raises InputError where a line has
    more than `most` bytes.

    >>> import io
    >>> list(lines(io.BytesIO(b"\n\na\n \nb"), 10, "x"))
    [(3, b'a'), (5, b'b')]
    """
    number, line = 1, bytearray()
    block = head or file.read(BLOCK)
    require_utf_8(block, where)
    at = len(BOM) * block.startswith(BOM)
    while block:
        while at < len(block):
            if not line:
                after = BLANK.match(block, at).end()  # type: ignore[union-attr]
                number += block.count(b"\n", at, after)
                at = after
            end = block.find(b"\n", at)
            line += block[at : end if end >= 0 else len(block)]
            if len(line) > most:
                raise too_large(f"{where}, line {number}", most, hint)
            if end < 0:
                break
            if line:
                yield number, bytes(line)
                line = bytearray()
                number += 1
            at = end + 1
        block, at = file.read(BLOCK), 0
    if line:
        yield number, bytes(line)


def require_utf_8(start: bytes, where: str) -> None:
    """Raise InputError for a file that begins with the byte order mark of UTF-16."""
    if start.startswith(UTF_16):
        raise InputError(f"{where} is UTF-16", "convert it to UTF-8")


def too_large(where: str, most: int, hint: str = SMALLER) -> InputError:
    """Return the error for a document of more than `most` bytes."""
    return InputError(
        f"{where}: a document of more than {most:,} bytes", hint, option="max_document"
    )


# Compressed streams, which raise where they were cut short.


def decompress(raw: IO[bytes], path: Path) -> IO[bytes]:
    """Return a stream of the plain bytes: `raw` itself where they are not packed.

    The bytes tell, not the suffix. Raises InputError for what is packed in a way that is not read.
    """
    file = raw
    if not hasattr(file, "peek") and not file.seekable():
        file = io.BufferedReader(cast("io.RawIOBase", file))
    for layer in range(MOST_LAYERS + 1):
        start = _beginning(file)
        for mark, what in NOT_READ.items():
            if start.startswith(mark):
                raise InputError(
                    f"{path} is packed as {what}", "unpack it, or pack it as gzip or zstd"
                )
        if start.startswith(GZIP):
            file = cast("IO[bytes]", gzip.GzipFile(fileobj=file, mode="rb"))
        elif ZSTD.match(start) or (not start and not layer and path.suffix.lower() == ".zst"):
            file = cast("IO[bytes]", io.BufferedReader(_ZstdFrames(file)))
        else:
            return file
    raise InputError(f"{path} is packed more than {MOST_LAYERS} times", "unpack it")


def _beginning(file: Any) -> bytes:
    if hasattr(file, "peek"):
        return bytes(file.peek(START)[:START])
    start: bytes = file.read(START)
    file.seek(0)
    return start


def open_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file that are not blank, with their numbers, as `lines`."""
    with open_stream(path) as raw, decompress(raw, path) as file:
        yield from lines(file, MAX_DOCUMENT, str(path), "leave it out")


def damaged(what: str, error: Exception) -> InputError:
    """Return the error for a packed file that ERRORS are raised for."""
    if "ictionary" in str(error):
        return InputError(
            f"{what} was packed with a zstd dictionary, which it does not hold",
            "unpack it with `zstd -d -D DICTIONARY`",
        )
    return InputError(f"{what} is damaged: {reason(error)}", "fetch it again")


class _ZstdFrames(io.RawIOBase):
    """A stream of zstd frames. zstandard's own reader takes a truncated file for a whole one."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW)
        self._frame = self._decompressor.decompressobj()
        self._whole = False  # whether the frame has ended
        self._plain = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer. Raises EOFError where the file ends inside a frame."""
        room = memoryview(buffer)
        while not self._plain:
            chunk = self._frame.unused_data if self._whole else b""
            chunk = chunk or self._raw.read(CHUNK)
            if not chunk and self._whole:
                return 0
            if not chunk:
                raise EOFError("the file was cut short")
            if self._whole:
                self._frame = self._decompressor.decompressobj()
            self._plain = memoryview(self._frame.decompress(chunk))
            self._whole = self._frame.eof
        taken, self._plain = self._plain[: len(room)], self._plain[len(room) :]
        room[: len(taken)] = taken
        return len(taken)


# Messages of an Arrow IPC stream.


class MessageError(ValueError):
    """An Arrow stream whose messages claim what the file does not hold."""


def require_bounded(file: IO[bytes], size: int, most: int) -> None:
    """Check every message of a stream that begins at `file`'s position, which does not move.

    Raises MessageError where a message ends behind `size`, the file's bytes, is damaged, or its
    buffers would unpack to more than `most` bytes.
    """
    place = file.tell()
    try:
        while header := _metadata(file, size):
            field, body = _field(header, _follow(header), 3), file.tell()
            length = int(struct.unpack_from("<q", header, field)[0]) if field else 0
            end = _require_inside(body, length, size)
            unpacked = sum(_unpacked(file, body, end, *each) for each in _buffers(header))
            if unpacked > most:
                raise MessageError(f"a batch of it would unpack to {unpacked:,} bytes")
            file.seek(end)
    except (struct.error, IndexError) as error:
        raise MessageError("a message of it leads outside itself") from error
    finally:
        file.seek(place)


def _metadata(file: IO[bytes], size: int) -> bytes:
    """Read the next message's metadata; b"" at the end of the stream."""
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


def _field(header: bytes, table: int, number: int) -> int:
    """Return the offset of a field of a flatbuffer's table, 0 where it has none."""
    (back,) = struct.unpack_from("<i", header, table)
    vtable = table - back
    if vtable < 0:
        raise MessageError("a message of it leads outside itself")
    (length,) = struct.unpack_from("<H", header, vtable)
    if 6 + 2 * number > length:
        return 0
    (place,) = struct.unpack_from("<H", header, vtable + 4 + 2 * number)
    return table + place if place else 0


def _follow(header: bytes, place: int = 0) -> int:
    """Return where the offset at `place` leads: at 0, to the message."""
    return place + int(struct.unpack_from("<I", header, place)[0])


def _buffers(header: bytes) -> Iterator[tuple[int, int]]:
    """Yield (offset, length) of each buffer of the body that is compressed."""
    message = _follow(header)
    kind, content = _field(header, message, 1), _field(header, message, 2)
    if not kind or not content:
        return
    table = _follow(header, content)
    if header[kind] == DICTIONARY:
        content = _field(header, table, 1)
        if not content:
            return
        table = _follow(header, content)
    elif header[kind] != BATCH:
        return
    listed = _field(header, table, 2)
    if not listed or not _field(header, table, 3):  # nothing is compressed
        return
    vector = _follow(header, listed)
    (count,) = struct.unpack_from("<I", header, vector)
    for i in range(count):
        offset, length = struct.unpack_from("<qq", header, vector + 4 + 16 * i)
        if length:
            yield offset, length


def _unpacked(file: IO[Any], body: int, end: int, offset: int, length: int) -> int:
    """Return the bytes that the buffer claims to unpack to."""
    if min(offset, length) < 0 or body + offset + length > end or length < 8:
        raise MessageError("a buffer of it ends behind its message")
    file.seek(body + offset)
    (size,) = struct.unpack("<q", file.read(8))
    if size < -1:
        raise MessageError(f"a buffer of it would unpack to {size:,} bytes")
    return length if size == -1 else int(size)


# Sizes of Arrow's rows as Python objects.


class Sizes(NamedTuple):
    """The sizes of rows."""

    bytes: Array  # int64[n], of the texts
    values: Array  # int64[n]: texts, numbers, lists and objects


def row_sizes(array: Any) -> Sizes:
    """Return the sizes of a pyarrow.Array's rows; a dictionary's entry counts each time it occurs.

    Raises TypeError for a kind that holds neither texts nor numbers nor lists of them.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind, zeros, ones = array.type, np.zeros(len(array), np.int64), np.ones(len(array), np.int64)
    if pa.types.is_dictionary(kind):
        return _dictionary_sizes(array)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return Sizes(_view_lengths(array), ones)
    if is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return Sizes(pc.binary_length(array).fill_null(0).to_numpy().astype(np.int64), ones)
    if pa.types.is_struct(kind):
        parts = [row_sizes(part) for part in array.flatten()]
        return Sizes(sum((p.bytes for p in parts), zeros), sum((p.values for p in parts), ones))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return _list_sizes(array)
    if pa.types.is_nested(kind) or pa.types.is_run_end_encoded(kind):
        raise TypeError(f"{kind} where a text was expected")
    return Sizes(zeros, ones)


def without_dictionaries(kind: Any) -> Any:
    """Return the Arrow type with plain values for dictionaries, in lists and objects too."""
    import pyarrow as pa

    def plain(field: Any) -> Any:
        return field.with_type(without_dictionaries(field.type))

    if pa.types.is_dictionary(kind):
        return without_dictionaries(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        form = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return form(plain(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([plain(kind.field(i)) for i in range(kind.num_fields)])
    return kind


def is_string(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _dictionary_sizes(array: Any) -> Sizes:
    entries = row_sizes(array.dictionary)
    valid = array.indices.is_valid().to_numpy(zero_copy_only=False)
    indices = array.indices.fill_null(0).to_numpy()[valid]
    sizes = Sizes(np.zeros(len(array), np.int64), np.ones(len(array), np.int64))
    for of_rows, of_entries in zip(sizes, entries, strict=True):
        of_rows[valid] = of_entries[indices]
    return sizes


def _view_lengths(array: Any) -> Array:
    """Return the lengths of views: of 16 bytes each, the first four are the length."""
    views = np.frombuffer(array.buffers()[1], np.int32)[0::4]
    lengths: Array = views[array.offset : array.offset + len(array)].astype(np.int64)
    lengths[~array.is_valid().to_numpy(zero_copy_only=False)] = 0
    return lengths


def _list_sizes(array: Any) -> Sizes:
    offsets = array.offsets.to_numpy().astype(np.int64)
    begin, end = int(offsets[0]), int(offsets[-1])
    inner = row_sizes(array.values.slice(begin, end - begin))
    ends = offsets - begin
    until = [np.concatenate([[0], np.cumsum(sizes)]) for sizes in inner]
    bytes_, values = (sums[ends[1:]] - sums[ends[:-1]] for sums in until)
    return Sizes(bytes_, 1 + values)
