"""Artifacts as a hostile author would make them: any values, every checksum true."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.formats.safetensors import NAMES, Array

Arrays = dict[str, Array]


def read_arrays(file: Path) -> Arrays:
    """Return copies of a file's arrays, by a decoder of its own."""
    raw = file.read_bytes()
    begin = 8 + int.from_bytes(raw[:8], "little")
    types = {name: dtype for dtype, name in NAMES.items()}
    found = {}
    for name, entry in json.loads(raw[8:begin]).items():
        first, last = entry["data_offsets"]
        values = np.frombuffer(raw[begin + first : begin + last], types[entry["dtype"]])
        found[name] = values.reshape(entry["shape"]).copy()
    return found


def write_bytes(file: Path, header: Any, data: bytes) -> None:
    """Write any header before any bytes."""
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    text += b" " * (-len(text) % 8)
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write_arrays(file: Path, arrays: Arrays) -> None:
    """Write arrays without checks and without waiting for the disk."""
    header, data = {}, b""
    for name in sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name)):
        array = arrays[name]
        span = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": NAMES[array.dtype], "shape": [*array.shape], "data_offsets": span}
        data += array.tobytes()
    write_bytes(file, header, data)


def data_file(folder: Path) -> Path:
    """Return the first file of arrays."""
    return min(folder.glob("*.safetensors"))


def sign(
    folder: Path,
    change: Callable[[dict[str, Any]], None] | None = None,
    *,
    listed: bool = True,
) -> None:
    """Make every checksum true again; `change` may change the manifest before.

    Where the files that it lists are as they were, `listed` is False.
    """
    path = folder / "manifest.json"
    body = json.loads(path.read_text())
    for name in body["files"] if listed else ():
        raw = (folder / name).read_bytes()
        body["files"][name] = {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    if change is not None:
        change(body)
    body.pop("checksum", None)
    text = json.dumps(body, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    body["checksum"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(body))


def craft(folder: Path, change: Callable[[Arrays], None]) -> None:
    """Apply `change` to the arrays of the first file, then make every checksum true."""
    file = data_file(folder)
    arrays = read_arrays(file)
    change(arrays)
    write_arrays(file, arrays)
    sign(folder)
