"""The header of a GGUF file: metadata and tensor locations.

    "GGUF", u32 version (2 or 3), u64 tensors, u64 pairs
    pairs:   key (string), u32 type, value
    tensors: name (string), u32 dimensions, u64 each, u32 type, u64 offset
    a string is u64 bytes, then UTF-8; an array is u32 type, u64 length, then its values

Source: ggml's docs/gguf.md; little-endian only. Files are untrusted: every length and tensor must
fit the file. The package `gguf` trusts lengths, so it only reads weights.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ngramkit.basics.errors import InputError, reason

EXTRA = "'ngramkit[gguf]'"
MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_METADATA_BYTES = 1 << 28  # the largest vocabularies take a tenth of it
FRONT_BYTES = 1 << 16  # enough for the metadata before the tokenizer's
MAX_PAIRS, MAX_TENSORS, MAX_KEY_BYTES, MAX_DIMENSIONS = 1 << 16, 1 << 18, 1 << 16, 4
STRING, ARRAY = 8, 9
NUMBERS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?",
    10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
# Tensor type (ggml.h): (numbers in a block, bytes of a block).
BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18),
    21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8),
    28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17),
}  # fmt: skip
T = TypeVar("T")


@dataclass(frozen=True)
class Tensor:
    """A tensor; `shape` begins with the fastest dimension."""

    name: str
    shape: tuple[int, ...]
    type: int

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Header:
    """A header; metadata values are numbers, bools, str, lists of str, numeric arrays.

    The methods raise InputError for another type.
    """

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    def text(self, key: str) -> str:
        return self._value(key, str, "")

    def whole(self, key: str) -> int:
        return self._value(key, int, -1)

    def texts(self, key: str) -> list[str]:
        return self._value(key, list, [])

    def _value(self, key: str, kind: type[T], default: T) -> T:
        value = self.metadata.get(key, default)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise damaged_gguf(self.path, f"{key!r:.80} is not of type {kind.__name__}")
        return value


def damaged_gguf(path: Path, why: str) -> InputError:
    return InputError(f"{path} is damaged: {why}", "Download the model again.")


def read_header(path: Path) -> Header:
    """Read the header; raise InputError if it is not GGUF, damaged or unreadable."""
    reader, size = _open_header(path, MAX_METADATA_BYTES)
    try:
        return reader.header(size)
    except UnicodeDecodeError as error:
        raise damaged_gguf(path, "a text in it is not UTF-8") from error


def read_front(path: Path) -> dict[str, Any]:
    """Read the metadata before the tokenizer's, up to the first damaged value.

    Raises InputError for a file that is not GGUF or unreadable.
    """
    return _open_header(path, FRONT_BYTES)[0].front()


def _open_header(path: Path, most: int) -> tuple[_Reader, int]:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            content = file.read(min(size, most))
    except OSError as error:
        raise InputError(f"cannot read {path}: {reason(error)}", "Check the path.") from error
    if content[:4] != MAGIC:
        raise InputError(
            f"cannot read {path}: it is not a GGUF file",
            "Give a .gguf file, a model folder or a Hub id.",
        )
    return _Reader(path, content), size


class _Reader:
    def __init__(self, path: Path, content: bytes) -> None:
        self.path, self.content, self.at = path, content, len(MAGIC)

    def header(self, size: int) -> Header:
        tensors, pairs = self._counts()
        metadata: dict[str, Any] = {}
        for key, value in self._pairs(pairs):
            self._require(key not in metadata, f"the key {key!r:.80} occurs twice")
            metadata[key] = value
        listed = [self._tensor() for _ in range(tensors)]
        self._require_inside(metadata, listed, size)
        by_name = {tensor.name: tensor for tensor, _ in listed}
        self._require(len(by_name) == len(listed), "two tensors have one name")
        return Header(self.path, metadata, by_name)

    def front(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        with suppress(InputError, UnicodeDecodeError):
            _, pairs = self._counts()
            for key, value in self._pairs(pairs):
                if key.startswith("tokenizer."):
                    break
                found[key] = value
        return found

    def _counts(self) -> tuple[int, int]:
        version = self._number("<I")
        if version not in VERSIONS:
            raise InputError(
                f"{self.path} must have GGUF version 2 or 3, got {version}",
                "Convert the model again with a newer llama.cpp (little-endian).",
            )
        tensors, pairs = self._number("<Q"), self._number("<Q")
        self._require(tensors <= MAX_TENSORS, f"it lists {tensors:,} tensors")
        self._require(pairs <= MAX_PAIRS, f"it lists {pairs:,} pairs of metadata")
        return tensors, pairs

    def _pairs(self, count: int) -> Iterator[tuple[str, Any]]:
        for _ in range(count):
            yield self._string(MAX_KEY_BYTES), self._value(self._number("<I"))

    def _require(self, holds: bool, breach: str) -> None:
        if not holds:
            raise damaged_gguf(self.path, breach)

    def _take(self, count: int) -> bytes:
        end = self.at + count
        self._require(end <= len(self.content), "it ends too early")
        part = self.content[self.at : end]
        self.at = end
        return part

    def _number(self, form: str) -> int:
        return int(struct.unpack(form, self._take(struct.calcsize(form)))[0])

    def _string(self, most: int = MAX_METADATA_BYTES) -> str:
        length = self._number("<Q")
        self._require(length <= most, f"a text of {length:,} bytes")
        return self._take(length).decode("utf-8")

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            return self._array()
        return self._numbers(kind, 1)[0].item()

    def _array(self) -> Any:
        kind, length = self._number("<I"), self._number("<Q")
        if kind != STRING:
            return self._numbers(kind, length)
        room = (len(self.content) - self.at) // 8
        self._require(length <= room, f"a list of {length:,} texts that it has no room for")
        return [self._string() for _ in range(length)]

    def _numbers(self, kind: int, length: int) -> Any:
        self._require(kind in NUMBERS, f"a value of the unknown type {kind}")
        dtype = np.dtype(NUMBERS[kind])
        return np.frombuffer(self._take(length * dtype.itemsize), dtype)

    def _tensor(self) -> tuple[Tensor, int]:
        name, count = self._string(MAX_KEY_BYTES), self._number("<I")
        self._require(0 < count <= MAX_DIMENSIONS, f"a tensor of {count:,} dimensions")
        shape = tuple(self._number("<Q") for _ in range(count))
        kind, offset = self._number("<I"), self._number("<Q")
        self._require(min(shape) > 0, f"the tensor {name!r:.80} is empty")
        return Tensor(name, shape, kind), offset

    def _require_inside(
        self, metadata: Mapping[str, Any], listed: list[tuple[Tensor, int]], size: int
    ) -> None:
        step = metadata.get("general.alignment", 32)
        sound = isinstance(step, int) and 8 <= step <= 1 << 20 and not step & (step - 1)
        self._require(sound, f"an alignment of {step!r:.20}")
        begin = -(-self.at // step) * step
        for tensor, offset in listed:
            name = f"the tensor {tensor.name!r:.80}"
            self._require(tensor.type in BLOCKS, f"{name} has the unknown type {tensor.type}")
            numbers, bytes_ = BLOCKS[tensor.type]
            self._require(
                tensor.shape[0] % numbers == 0, f"{name} does not consist of whole blocks"
            )
            end = begin + offset + tensor.size // numbers * bytes_
            self._require(offset % step == 0 and end <= size, f"{name} ends after the file")
