"""Named arrays in one file: the safetensors format, read through a memory map.

The bytes, in order:

    u64, little-endian   n, the length of the header
    n bytes              JSON: {name: {"dtype", "shape", "data_offsets": [begin, end]}, ...},
                         padded with spaces to a multiple of 8
    the rest             the arrays, little-endian, C order; offsets count from here

Arrays lie widest element first and by name within a width, without holes, so every array is
aligned. A decoder in four lines:

    n = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + n])
    begin, end = header[name]["data_offsets"]
    values = numpy.frombuffer(raw[8 + n + begin : 8 + n + end], "<u2")

This module does not know what the arrays mean.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.errors import ArtifactError
from ngramkit.kernels.arrays import (
    Array as Array,  # every module of formats and above takes it from here
)

DTYPES = {
    "U8": "<u1",
    "U16": "<u2",
    "U32": "<u4",
    "U64": "<u8",
    "I32": "<i4",
    "I64": "<i8",
    "F16": "<f2",
    "F32": "<f4",
}
NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
MAX_HEADER = 1 << 20
CHUNK = 1 << 24  # bytes hashed and written at a time


@dataclass(frozen=True)
class FileRecord:
    """What a manifest says of one file."""

    bytes: int
    sha256: str


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> FileRecord:
    """Writes `arrays` and returns the file's record; the data is on the disk when it returns."""
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
    with path.open("wb") as file:
        head = len(text).to_bytes(8, "little") + text
        digest.update(head)
        file.write(head)
        for name in order:
            for block in _blocks(arrays[name]):
                digest.update(block)
                file.write(block)
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    return FileRecord(size, digest.hexdigest())


def _blocks(array: Array) -> Iterator[memoryview]:
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    raw = little.reshape(-1).view(np.uint8)
    return (raw[i : i + CHUNK].data for i in range(0, len(raw), CHUNK))


def open_arrays(path: Path) -> dict[str, Array]:
    """The file's arrays as read-only views of one memory map; costs the same at any size.

    Raises ArtifactError where the file is missing, truncated or not of this format.
    """
    try:
        raw = np.memmap(path, dtype=np.uint8, mode="r")
    except FileNotFoundError as error:
        raise ArtifactError(f"{path} is missing", "build or pull the artifact again") from error
    except ValueError as error:
        raise _damaged(path, "it is empty") from error
    header, start = _read_header(path, raw)
    return {name: _view(path, raw, start, name, entry) for name, entry in header.items()}


def _read_header(path: Path, raw: Array) -> tuple[dict[str, Any], int]:
    length = int.from_bytes(raw[:8].tobytes(), "little")
    if raw.size < 8 or length > min(MAX_HEADER, raw.size - 8):
        raise _damaged(path, "its header is cut short")
    try:
        header = json.loads(raw[8 : 8 + length].tobytes())
    except ValueError as error:
        raise _damaged(path, "its header is not JSON") from error
    if not isinstance(header, dict):
        raise _damaged(path, "its header is not a JSON object")
    header.pop("__metadata__", None)
    return header, 8 + length


def _view(path: Path, raw: Array, start: int, name: str, entry: Any) -> Array:
    try:
        dtype = np.dtype(DTYPES[entry["dtype"]])
        shape = tuple(int(n) for n in entry["shape"])
        begin, end = (int(n) for n in entry["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, f"the entry of {name!r} makes no sense") from error
    whole = min(shape, default=0) >= 0 and begin >= 0
    if not whole or end - begin != math.prod(shape) * dtype.itemsize:
        raise _damaged(path, f"the size of {name!r} does not fit its shape")
    if start + end > raw.size:
        missing = start + end - raw.size
        raise _damaged(path, f"{missing:,} bytes are missing at its end")
    # A plain ndarray, not memmap: numpy's subclass costs microseconds at every slice.
    return np.asarray(raw[start + begin : start + end]).view(dtype).reshape(shape)


def _damaged(path: Path, why: str) -> ArtifactError:
    return ArtifactError(f"{path} is damaged: {why}", "build or pull the artifact again")


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
