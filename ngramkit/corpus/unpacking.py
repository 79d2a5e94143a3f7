"""Files of bounded size: a compressed file of kilobytes may unpack to gigabytes.

An Arrow IPC stream (format/Message.fbs) is a sequence of

    0xFFFFFFFF, i32 bytes of metadata, metadata (a flatbuffer), body

Before Arrow 0.15 the leading 0xFFFFFFFF was missing. A compressed buffer begins with its unpacked
size (i64), or -1 if it is not compressed; pyarrow allocates that size unchecked.
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

from ngramkit.basics.errors import InputError, reason
from ngramkit.basics.untrusted import open_stream
from ngramkit.formats.safetensors import Array

MAX_DOCUMENT = 64 << 20  # bytes
MAX_RATIO = 16  # unpacked Arrow data per byte of the file, or of the largest document
UNPACKED_BLOCK_BYTES = 1 << 20
HOW_TO_SHRINK = "Leave it out, or raise max_document."
MAX_LAYERS = 2  # compressions of one file; servers compress compressed files again
GZIP, ZSTD = b"\x1f\x8b", re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
UNSUPPORTED_COMPRESSIONS = {
    b"\xfd7zXZ\0": "xz", b"BZh": "bzip2", b"PK\x03\x04": "zip", b"7z\xbc\xaf": "7z"
}  # fmt: skip
BOM = b"\xef\xbb\xbf"
WIDE = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}  # by byte order mark
SUFFIXES = (".gz", ".zst")
MAGIC = b"ARROW1\0\0"  # beginning of an Arrow IPC file, before its stream


class DamagedError(ValueError):
    """Compressed data that cannot be unpacked."""


ERRORS = (EOFError, gzip.BadGzipFile, zlib.error, DamagedError)  # while reading a damaged file


def read_whole(file: IO[bytes], most: int, where: str, head: bytes = b"") -> bytes:
    """Read a file whose beginning is `head`; raise InputError beyond `most` bytes."""
    raw = head + file.read(most + 1 - len(head)) if len(head) <= most else head
    if len(raw) > most:
        raise too_large(where, most)
    return raw


def non_blank_lines(
    file: IO[bytes], most: int, where: str, hint: str = HOW_TO_SHRINK, head: bytes = b""
) -> Iterator[tuple[int, bytes]]:
    r"""Yield (number, line) of non-blank lines, without a byte order mark.

    Zero bytes before a line are skipped: a rotated log may begin with a hole. `head` was read
    before. Raises InputError if a line has more than `most` bytes.

    >>> import io
    >>> list(non_blank_lines(io.BytesIO(b"\n\na\n \nb"), 10, "x"))
    [(3, b'a'), (5, b'b')]
    """
    number, line, blank = 1, bytearray(), re.compile(rb"\s*")
    block = head or file.read(UNPACKED_BLOCK_BYTES)
    require_utf_8(block, where)
    at = len(BOM) * block.startswith(BOM)
    while block:
        while at < len(block):
            if not line:
                after = blank.match(block, at).end()  # type: ignore[union-attr]
                number += block.count(b"\n", at, after)
                at = after
            end = block.find(b"\n", at)
            line += block[at : end if end >= 0 else len(block)]
            if len(line) > most:
                raise too_large(f"{where}, line {number}", most, hint)
            if end < 0:
                break
            if line:
                if whole_line := bytes(line).lstrip(b"\0"):
                    yield number, whole_line
                line = bytearray()
                number += 1
            at = end + 1
        block, at = file.read(UNPACKED_BLOCK_BYTES), 0
    if whole_line := bytes(line).lstrip(b"\0"):
        yield number, whole_line


def require_utf_8(start: bytes, where: str) -> None:
    if start[:2] in WIDE:
        raise InputError(f"{where} must be UTF-8, got {WIDE[start[:2]]}", "Convert it to UTF-8.")


def too_large(where: str, most: int, hint: str = HOW_TO_SHRINK) -> InputError:
    return InputError(
        f"cannot read {where}: a document of more than {most:,} bytes", hint, option="max_document"
    )


# Compressed streams. They raise one of ERRORS if they were cut short.


def decompress(raw: IO[bytes], path: Path) -> IO[bytes]:
    """Return a stream of unpacked bytes, or `raw` itself. Raises InputError if unsupported."""
    file = raw
    if not hasattr(file, "peek") and not file.seekable():
        file = io.BufferedReader(cast("io.RawIOBase", file))
    for layer in range(MAX_LAYERS + 1):
        start = _beginning(file)
        for mark, what in UNSUPPORTED_COMPRESSIONS.items():
            if start.startswith(mark):
                raise InputError(
                    f"cannot unpack {path}: it is compressed as {what}",
                    "Unpack it, or compress it as gzip or zstd.",
                )
        if start.startswith(GZIP):
            file = cast("IO[bytes]", gzip.GzipFile(fileobj=file, mode="rb"))
        elif ZSTD.match(start):
            file = cast("IO[bytes]", io.BufferedReader(_Zstd(file)))
        elif not start and not layer and path.suffix.lower() == ".zst":
            raise EOFError("the file is empty")
        else:
            return file
    raise InputError(
        f"cannot unpack {path}: it is compressed more than {MAX_LAYERS} times", "Unpack it."
    )


def _beginning(file: Any) -> bytes:
    if hasattr(file, "peek"):
        return bytes(file.peek(8)[:8])
    start: bytes = file.read(8)
    file.seek(0)
    return start


def open_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with open_stream(path) as raw, decompress(raw, path) as file:
        yield from non_blank_lines(file, MAX_DOCUMENT, str(path), "Leave it out.")


def damaged_file(what: str, error: Exception) -> InputError:
    if "ictionary" in str(error):
        return InputError(
            f"cannot unpack {what}: it was compressed with a zstd dictionary",
            "Unpack it with `zstd -d -D DICTIONARY`.",
        )
    return InputError(f"{what} is damaged: {reason(error)}", "Fetch it again.")


class _Zstd(io.RawIOBase):
    """The plain bytes of zstd frames; references back over 128 MiB are refused."""

    def __init__(self, raw: IO[bytes]) -> None:
        import pyarrow as pa

        self._plain = pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return int(self._plain.readinto(buffer))
        except OSError as error:
            if type(error) is OSError and error.errno is None:  # pyarrow's own, not the file's
                raise DamagedError(str(error)) from error
            raise


# Messages of an Arrow IPC stream.


class MessageError(ValueError):
    """An Arrow stream with damaged messages."""


def require_bounded(file: IO[bytes], size: int, most: int) -> None:
    """Check every message from `file`'s position, which is kept.

    Raises MessageError for damage, an end beyond `size` bytes, or buffers that would unpack to more
    than `most` bytes.
    """
    place = file.tell()
    try:
        while header := _next_metadata(file, size):
            field, body = _table_field(header, _follow_offset(header), 3), file.tell()
            length = int(struct.unpack_from("<q", header, field)[0]) if field else 0
            end = _require_inside(body, length, size)
            unpacked = sum(
                _unpacked_size(file, body, end, *each) for each in _compressed_buffers(header)
            )
            if unpacked > most:
                raise MessageError(f"a batch would unpack to {unpacked:,} bytes")
            file.seek(end)
    except (struct.error, IndexError) as error:
        raise MessageError("a message refers to bytes outside itself") from error
    finally:
        file.seek(place)


def _next_metadata(file: IO[bytes], size: int) -> bytes:
    """Read the next metadata; b"" at the end."""
    start = file.read(4)
    if start == b"\xff\xff\xff\xff":
        start = file.read(4)
    length = int.from_bytes(start, "little", signed=True) if len(start) == 4 else 0
    _require_inside(file.tell(), length, size)
    return file.read(length)


def _require_inside(place: int, length: int, size: int) -> int:
    if length < 0 or place + length > size:
        raise MessageError("a message ends beyond the file")
    return place + length


def _table_field(header: bytes, table: int, number: int) -> int:
    """Return the offset of a flatbuffer table's field, 0 if missing."""
    (back,) = struct.unpack_from("<i", header, table)
    vtable = table - back
    if vtable < 0:
        raise MessageError("a message refers to bytes outside itself")
    (length,) = struct.unpack_from("<H", header, vtable)
    if 6 + 2 * number > length:
        return 0
    (place,) = struct.unpack_from("<H", header, vtable + 4 + 2 * number)
    return table + place if place else 0


def _follow_offset(header: bytes, place: int = 0) -> int:
    return place + int(struct.unpack_from("<I", header, place)[0])


def _compressed_buffers(header: bytes) -> Iterator[tuple[int, int]]:
    """Yield (offset, length) of compressed buffers."""
    dictionary, batch = 2, 3  # the kinds of messages that have buffers
    message = _follow_offset(header)
    kind, content = _table_field(header, message, 1), _table_field(header, message, 2)
    if not kind or not content:
        return
    table = _follow_offset(header, content)
    if header[kind] == dictionary:
        content = _table_field(header, table, 1)
        if not content:
            return
        table = _follow_offset(header, content)
    elif header[kind] != batch:
        return
    listed = _table_field(header, table, 2)
    if not listed or not _table_field(header, table, 3):  # nothing is compressed
        return
    vector = _follow_offset(header, listed)
    (count,) = struct.unpack_from("<I", header, vector)
    for i in range(count):
        offset, length = struct.unpack_from("<qq", header, vector + 4 + 16 * i)
        if length:
            yield offset, length


def _unpacked_size(file: IO[Any], body: int, end: int, offset: int, length: int) -> int:
    if min(offset, length) < 0 or body + offset + length > end or length < 8:
        raise MessageError("a buffer ends beyond its message")
    file.seek(body + offset)
    (size,) = struct.unpack("<q", file.read(8))
    if size < -1:
        raise MessageError(f"a buffer would unpack to {size:,} bytes")
    return length if size == -1 else int(size)


# Sizes of Arrow's rows as Python objects.


class Sizes(NamedTuple):
    bytes: Array  # int64[n], of the texts
    values: Array  # int64[n]: texts, numbers, lists and objects


def row_sizes(array: Any) -> Sizes:
    """Return the sizes of a pyarrow.Array's rows, or raise TypeError."""
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
        raise TypeError(f"it must be a text, got {kind}")
    return Sizes(zeros, ones)


def table_row(where: str, batch: Any, most: int) -> dict[str, Any]:
    """Return the one row of a pyarrow.RecordBatch. Raises InputError beyond `most` bytes."""
    batch.validate(full=True)  # pyarrow otherwise trusts offsets
    row = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        storage = getattr(column, "storage", column)  # JSON is a text
        if row_sizes(storage).bytes.sum() > most:
            raise too_large(where, most)
        row[name] = storage.to_pylist()[0]
    return row


def without_dictionaries(kind: Any) -> Any:
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
    """Return the lengths of views: the first i32 of 16 bytes."""
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
