"""Whether an artifact is whole: every file's size and sha256, every value.

Files are hashed and values checked at the same time, on as many threads as there are cores; nothing
is held but what a part of the check counts in. Knows no kind: an artifact brings its own parts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ngramkit.errors import ArtifactError
from ngramkit.formats.container import FileRecord, WrongFileError, sha256_of
from ngramkit.formats.files import Identity
from ngramkit.formats.proofs import recall, remember
from ngramkit.machine import cores
from ngramkit.progress import SILENT, Reporter

if TYPE_CHECKING:
    from ngramkit.formats.artifact import Artifact, Part

SAID = 1.0  # seconds from which on a check is worth a line
SMALL = 1 << 18  # bytes of all files together; below, threads cost more than they bring

log = logging.getLogger("ngramkit")


def admit(artifact: Artifact, reporter: Reporter = SILENT) -> dict[str, Identity]:
    """Which files the artifact consists of, once they are known to be whole.

    Known from before, it costs microseconds; else everything is checked and remembered.
    Raises ArtifactError at the first breach.
    """
    checksum, found = artifact.manifest.checksum, artifact.identities()
    if not found:  # a history: it grows, and is checked as it is read
        return found
    copies = recall(checksum)
    if copies is not None and found in copies:
        return found
    started = time.perf_counter()
    reporter.stage(f"checking {artifact.path}", artifact.manifest.bytes, "bytes")
    for _ in check_whole(artifact, reporter, values=copies is None):
        pass
    if artifact.identities() != found:
        raise ArtifactError(f"{artifact.path} was replaced while it was checked", "open it again")
    remember(checksum, found)
    seconds = time.perf_counter() - started
    if seconds > SAID:
        log.info("checked %s once, byte by byte: %.1f s", artifact.path, seconds)
    return found


def check_whole(
    artifact: Artifact, reporter: Reporter = SILENT, *, values: bool = True
) -> Iterator[str]:
    """One line for everything that holds: sizes, checksums and, unless they are known, values.

    Raises ArtifactError at the first breach, of a checksum before that of a value.
    """
    artifact.identities()
    files = sorted(artifact.manifest.files.items())

    def checksum(entry: tuple[str, FileRecord]) -> None:
        name, record = entry
        if sha256_of(artifact.path / name) != record.sha256:
            raise WrongFileError(artifact.path / name, "its checksum is not the listed one")
        reporter.advance(record.bytes)

    if artifact.manifest.bytes < SMALL:
        yield from _in_turn(artifact, files, checksum, values)
        return
    pool = ThreadPoolExecutor(cores())
    try:
        hashed = [pool.submit(checksum, entry) for entry in files]
        proven = [pool.submit(part) for part in _parts(artifact)] if values else []
        for (name, _), done in zip(files, hashed, strict=True):
            done.result()
            yield f"{name}: size"
            yield f"{name}: checksum"
        for part in proven:
            yield from part.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _in_turn(
    artifact: Artifact,
    files: list[tuple[str, FileRecord]],
    checksum: Callable[[tuple[str, FileRecord]], None],
    values: bool,
) -> Iterator[str]:
    """For what is checked before a thread would have begun."""
    for entry in files:
        checksum(entry)
        yield f"{entry[0]}: size"
        yield f"{entry[0]}: checksum"
    for part in _parts(artifact) if values else ():
        yield from part()


def _parts(artifact: Artifact) -> list[Part]:
    """Those of the artifact; the one that fails where its arrays cannot even be told apart."""
    try:
        return artifact.parts()
    except ArtifactError as error:
        breach = error

    def fails() -> list[str]:
        raise breach

    return [fails]
