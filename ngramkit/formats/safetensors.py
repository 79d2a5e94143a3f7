"""Named arrays in one file: the safetensors format, read through a memory map.

The bytes, in order:

    u64, little-endian   n, the length of the header
    n bytes              JSON: {name: {"dtype", "shape", "data_offsets": [begin, end]}, ...},
                         padded with spaces to a multiple of 8
    the rest             the arrays, little-endian, C order; offsets count from here

Arrays are ordered by descending element size, then by name, without gaps, so every array is
aligned; otherwise the file is damaged. A decoder in four lines:

    n = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + n])
    begin, end = header[name]["data_offsets"]
    values = numpy.frombuffer(raw[8 + n + begin : 8 + n + end], "<u2")
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import mmap
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ngramkit.basics.errors import ArtifactError, reason
from ngramkit.basics.limits import LIMITS
from ngramkit.basics.untrusted import (
    TRY_AGAIN,
    Identity,
    file_identity,
    not_linked,
    open_plain,
    parse_json,
    whole_number,
)
from ngramkit.kernels.arrays import Array as Array

DTYPES = {
    "U8": "<u1", "U16": "<u2", "U32": "<u4", "U64": "<u8",
    "I32": "<i4", "I64": "<i8", "F16": "<f2", "F32": "<f4",
}  # fmt: skip
READ = {name: np.dtype(dtype) for name, dtype in DTYPES.items()}
NAMES = {dtype: name for name, dtype in READ.items()}
CHUNK_BYTES = 1 << 24  # size of a hashed and written block


class WrongFileError(ArtifactError):
    def __init__(self, file: Path, why: str) -> None:
        super().__init__(f"{file} is damaged: {why}", TRY_AGAIN)
        self.file = file


@dataclass(frozen=True)
class FileRecord:
    bytes: int
    sha256: str


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> FileRecord:
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, object] = {}
    offset = 0
    for name in order:
        array = arrays[name]
        end = offset + array.nbytes
        dtype = NAMES[array.dtype.newbyteorder("<")]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)

    digest = hashlib.sha256()
    with open(path, "wb", opener=not_linked) as file:
        head = len(text).to_bytes(8, "little") + text
        digest.update(head)
        file.write(head)
        for name in order:
            array = arrays[name]
            little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
            raw = little.reshape(-1).view(np.uint8).data
            for begin in range(0, len(raw), CHUNK_BYTES):
                digest.update(raw[begin : begin + CHUNK_BYTES])
                file.write(raw[begin : begin + CHUNK_BYTES])
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    return FileRecord(size, digest.hexdigest())


def write_arrays_atomically(path: Path, arrays: Mapping[str, Array]) -> FileRecord:
    """Write as `write_arrays`, but atomically, even if others write the same file."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        record = write_arrays(temporary, arrays)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return record


def open_arrays(path: Path, identity: Identity | None = None) -> dict[str, Array]:
    """Return read-only views of one memory map.

    Raises ArtifactError if it is missing, damaged or not the file of `identity`.
    """
    try:
        file = open_plain(path, hint=TRY_AGAIN)
    except FileNotFoundError as error:
        raise ArtifactError(f"cannot read {path}: it is missing", TRY_AGAIN) from error
    with file:
        status = os.fstat(file.fileno())
        if status.st_size < 8:
            raise _damaged_file(path, "its header is cut short")
        try:
            mapped = mmap.mmap(file.fileno(), status.st_size, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            code = getattr(error, "errno", None)
            if code == errno.ENOMEM:
                raise MemoryError(f"cannot map {path}") from error
            full = code in (errno.EMFILE, errno.ENFILE)
            hint = "Allow more open files: ulimit -n" if full else TRY_AGAIN
            raise ArtifactError(f"cannot map {path}: {reason(error)}", hint) from error
    header, start = _read_header(path, mapped)
    spans = {name: _parse_span(path, name, entry) for name, entry in header.items()}
    _require_gapless(path, spans.values(), len(mapped) - start)
    # Plain ndarrays: numpy's memmap costs microseconds at every slice.
    try:
        arrays: dict[str, Array] = {
            name: np.ndarray(s.shape, s.dtype, mapped, start + s.begin) for name, s in spans.items()
        }
    except ValueError as error:  # a dimension of 0 next to one that is too large
        raise _damaged_file(path, "its shapes are invalid") from error
    if identity not in (None, file_identity(status)):
        raise ArtifactError(
            f"cannot read {path}: it was replaced after it was opened", "Open it again."
        )
    return arrays


def _read_header(path: Path, raw: mmap.mmap) -> tuple[dict[str, Any], int]:
    length = int.from_bytes(raw[:8], "little")
    if length > min(LIMITS.header_bytes, len(raw) - 8):
        raise _damaged_file(path, "its header is cut short")
    if length % 8:
        raise _damaged_file(path, "its arrays would not be aligned")
    header = parse_json(
        raw[8 : 8 + length], f"{path} is damaged: its header", strict=True,
        error=ArtifactError, hint=TRY_AGAIN,
    )  # fmt: skip
    if not isinstance(header, dict):
        raise _damaged_file(path, "its header is not a JSON object")
    header.pop("__metadata__", None)
    return header, 8 + length


class Span(NamedTuple):
    begin: int  # bytes after the header
    end: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def _parse_span(path: Path, name: str, entry: Any) -> Span:
    try:
        dtype, shape = READ[entry["dtype"]], _whole_numbers(entry["shape"])
        begin, end = _whole_numbers(entry["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged_file(path, f"the entry of {name!r:.40} is invalid") from error
    if end - begin != math.prod(shape) * dtype.itemsize:
        raise _damaged_file(path, f"the size of {name!r:.40} does not fit its shape")
    if begin % dtype.itemsize:
        raise _damaged_file(path, f"{name!r:.40} is not aligned")
    return Span(begin, end, dtype, tuple(shape))


def _whole_numbers(value: Any) -> list[int]:
    if not isinstance(value, list) or len(value) > LIMITS.dimensions:
        raise TypeError("not a short list")
    if not all(map(whole_number, value)):
        raise ValueError("not whole numbers")
    return value


def _require_gapless(path: Path, spans: Iterable[Span], size: int) -> None:
    at = 0
    for span in sorted(spans, key=lambda span: span[:2]):
        if span.begin != at:
            raise _damaged_file(path, f"its arrays overlap or leave a gap at byte {at:,}")
        at = span.end
    if at != size:
        raise _damaged_file(path, f"it has {size:,} bytes of arrays, not {at:,}")


def _damaged_file(path: object, why: str) -> ArtifactError:
    return ArtifactError(f"{path} is damaged: {why}", TRY_AGAIN)


def require(holds: bool | np.bool_, path: object, breach: str) -> None:
    if not holds:
        raise _damaged_file(path, breach)


def sha256_of(path: Path) -> str:
    """Return a file's sha256 in hex, without holding the GIL."""
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
