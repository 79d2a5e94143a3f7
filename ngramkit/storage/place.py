"""A folder behind a URL: its files read in part, fetched and proven, or written whole.

Knows files by name, size and sha256; not what is in them.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngramkit.errors import ArtifactError, InputError, NetworkError, UsageError
from ngramkit.formats.container import FileRecord
from ngramkit.storage.errors import storage_errors
from ngramkit.storage.urls import open_storage, shown

BLOCK = 8 << 20  # bytes read at a time
PART = 16 << 20  # bytes of a part of a large upload to S3, of which PARTS are in memory
PARTS = 4
MOST_PARTS = 9000  # S3 takes 10,000
# Here a written file is there whole or not at all. Of other storages nobody knows.
ATOMIC = {"s3", "s3a", "gs", "gcs", "az", "abfs", "memory"}
# Their clients try again by themselves, but where what came has another checksum.
RETRYING = {"s3", "s3a", "gs", "gcs", "hf"}
TRIES = 3
AT_A_TIME = 8  # transfers
# What a listing says of a file's content, whoever wrote it and when, by storage.
CONTENT = ("ETag", "md5Hash", "crc32c", "content_md5", "xet_hash", "blob_id")


class NotAsListedError(ArtifactError):
    """What came is not what the manifest lists."""


def require_writable(url: str) -> None:
    """Raises UsageError where files could be seen half-written, or are written otherwise."""
    protocol = url.partition(":")[0].lower()
    if protocol in ATOMIC or url.lower().startswith("hf://buckets/"):
        return
    hint = "s3://, gs://, az:// and hf://buckets/... are written to"
    if protocol == "hf":
        hint = "write to a folder, then `ngramkit push` it; or to hf://buckets/USER/NAME/..."
    raise UsageError(f"nothing is written to {shown(url)}", hint, option="out")


@dataclass(frozen=True)
class Place:
    url: str
    protocol: str
    storage: Any  # an fsspec file system
    path: str  # of the folder, as the storage calls it

    @classmethod
    def at(cls, url: str, option: str = "") -> Place:
        """Raises as `open_storage`."""
        storage, path = open_storage(url, option)
        url = url.rstrip("/")  # one place, one work folder
        return cls(url, url.partition("://")[0].lower(), storage, path.rstrip("/"))

    def __str__(self) -> str:
        """The URL without what is secret of it."""
        return shown(self.url)

    @property
    def uploads(self) -> int:
        """How many at a time. The Hub's file system remembers listings, and is of one thread; its
        client sends parts of a file side by side."""
        return 1 if self.protocol == "hf" else AT_A_TIME

    def read(self, name: str, most: int) -> bytes | None:
        """The whole file; None where there is none. Raises InputError where it is larger."""
        with storage_errors(f"{self}/{name}"):
            try:
                raw = self._range(name, 0, most + 1)
            except FileNotFoundError:
                return None
        if len(raw) > most:
            raise InputError(f"{self}/{name} has more than {most:,} bytes", "check the URL")
        return raw

    def fetch(
        self, name: str, record: FileRecord, target: Path, advance: Callable[[float], None]
    ) -> None:
        """Writes the file to `target`; `advance` is told the bytes.

        Raises NotAsListedError where it is missing or not what `record` says; what has been written
        is then of no use.
        """
        digest = hashlib.sha256()
        with target.open("xb") as file:
            for begin in range(0, record.bytes, BLOCK):
                end = min(begin + BLOCK, record.bytes)
                block = self._block(name, begin, end, record.bytes)
                digest.update(block)
                file.write(block)
                advance(len(block))
                if len(block) == record.bytes:
                    break
            file.flush()
            os.fsync(file.fileno())
        if digest.hexdigest() != record.sha256:
            raise self.wrong(name, "sha256")

    def _block(self, name: str, begin: int, end: int, size: int) -> bytes:
        with storage_errors(f"{self}/{name}"):
            try:
                block = self._range(name, begin, end)
            except FileNotFoundError as error:
                raise NotAsListedError(
                    f"{self} lists {name} but does not hold it", "build it again"
                ) from error
        whole = begin == 0 and len(block) == size  # a web server may know no ranges
        if len(block) != end - begin and not whole:
            raise self.wrong(name, "size")
        return block

    def wrong(self, name: str, what: str) -> NotAsListedError:
        return NotAsListedError(
            f"{self}/{name} is not what its manifest says ({what} differs)",
            "build it again; if somebody is writing there, wait until they are done",
        )

    def _range(self, name: str, begin: int, end: int) -> bytes:
        for left in reversed(range(TRIES)):
            try:
                return bytes(self.storage.cat_file(f"{self.path}/{name}", start=begin, end=end))
            except (FileNotFoundError, PermissionError):
                raise
            except Exception as error:
                tried = self.protocol in RETRYING and "Checksum" not in type(error).__name__
                if tried or not left:
                    raise
                time.sleep(0.2)
        raise AssertionError

    def put(self, file: Path, name: str) -> str:
        """Uploads `file`; it is there whole or not at all. Returns what `contents` says of it.

        Raises NetworkError where the storage refuses or has other bytes afterwards.
        """
        size = file.stat().st_size
        options: dict[str, Any] = {}
        if self.protocol in ("s3", "s3a"):
            part = max(PART, math.ceil(size / MOST_PARTS))
            options = {"chunksize": part, "max_concurrency": PARTS}
        with storage_errors(f"{self}/{name}", "write"):
            self.storage.put_file(str(file), f"{self.path}/{name}", **options)
            self.storage.invalidate_cache()
            found = self.storage.info(f"{self.path}/{name}")
        if found.get("size") != size:
            raise NetworkError(f"{self}/{name} did not arrive whole", "run the same command again")
        return content_of(found)

    def contents(self) -> dict[str, str]:
        """Name -> size and the storage's own digest, of every file right in the folder."""
        with storage_errors(str(self)):
            self.storage.invalidate_cache()
            try:
                found = self.storage.ls(self.path, detail=True)
            except FileNotFoundError:
                return {}
        files = [each for each in found if each.get("type") == "file"]
        named = {str(each["name"]).rpartition("/")[2]: content_of(each) for each in files}
        return {name: content for name, content in named.items() if name}  # a folder's own mark

    def remove(self, name: str) -> None:
        """What is gone already is no error."""
        with storage_errors(f"{self}/{name}", "write"):
            try:
                self.storage.rm_file(f"{self.path}/{name}")
            except FileNotFoundError:
                return


def content_of(info: Mapping[str, Any]) -> str:
    """What a listing says of one file's content; equal contents give equal ones."""
    said = [str(info[key]).strip('"') for key in CONTENT if info.get(key)]
    return " ".join([str(info.get("size")), *said])
