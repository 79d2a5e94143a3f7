"""The cost of checking an artifact before its first opening, against reading its files.

Over the datastore of benchmarks._data. Both are read from the disk each time: the system is asked
to forget the pages first (`cold`), and an answer that came from memory nevertheless would only make
the reference faster. The disk's cache, and a host's, may still know them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks import Row, interleaved
from benchmarks._data import datastore

ROUNDS = 5
BLOCK = 1 << 20  # bytes


def rows() -> Iterator[Row]:
    from ngramkit.formats.artifact import verify_checksums_and_values
    from ngramkit.formats.safetensors import sha256_of

    with tempfile.TemporaryDirectory() as name:
        artifact = datastore(Path(name))
        files = [artifact.path / name for name in artifact.manifest.files]
        size, tokens = artifact.manifest.bytes, artifact.manifest.counts["tokens"]
        for state, forget in (("cold", True), ("in memory", False)):

            def fresh(work: Callable[[], object], forget: bool = forget) -> None:
                if forget:
                    cold(files)
                work()

            def check() -> list[str]:
                return list(
                    verify_checksums_and_values(type(artifact)(artifact.path, artifact.manifest))
                )

            def read_all() -> None:
                for file in files:
                    _read(file)

            def hash_all() -> None:
                for file in files:
                    sha256_of(file)

            tasks = [partial(fresh, work) for work in (check, read_all, hash_all)]
            checked, read, hashed = interleaved(*tasks, rounds=ROUNDS)
            yield Row(
                f"every byte and value of a datastore, {tokens:,} tokens, {state}",
                f"{checked:.2f} s, {size / checked / 1e6:,.0f} MB/s",
                f"{read:.2f} s, {size / read / 1e6:,.0f} MB/s, reading its files; "
                f"{hashed:.2f} s, {size / hashed / 1e6:,.0f} MB/s, hashing them on one core",
                read / checked,
                "1, what a disk gives",
            )


def cold(files: list[Path]) -> None:
    """Make the system forget the pages of these files, as far as nobody has them mapped."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _read(path: Path) -> None:
    block = bytearray(BLOCK)
    with path.open("rb", buffering=0) as file:
        while file.readinto(block):
            pass
