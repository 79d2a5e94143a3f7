"""URLs of storages, read and written by fsspec: s3://, gs://, https://, hf://datasets/... .

`hf://USER/NAME` is an artifact on the Hub (`remote.fetch`), `file://` a local path. User names,
passwords and signatures are never shown or stored.
"""

from __future__ import annotations

import glob
import hashlib
import logging
import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from ngramkit.basics.errors import (
    ArtifactError,
    InputError,
    NetworkError,
    UsageError,
    reason,
    storage_errors,
)
from ngramkit.basics.machine import expand_home
from ngramkit.basics.terminal_text import visible, without_secrets
from ngramkit.formats.safetensors import FileRecord

# At least two letters: C:// is a drive.
URL = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
COLLAPSED = re.compile(r"([a-z][a-z0-9+.-]+):/(?!/)", re.IGNORECASE)  # pathlib.Path drops a slash
HUB_STORAGE = re.compile(r"hf://(datasets|buckets)/[^/]", re.IGNORECASE)
INSTALL_CLOUD = "Run: pip install 'ngramkit[cloud]'"
PACKAGES = {
    **dict.fromkeys(("s3", "s3a", "gs", "gcs", "http", "https"), INSTALL_CLOUD),
    "az": "Run: pip install adlfs", "abfs": "Run: pip install adlfs",
}  # fmt: skip
# Protocols of fsspec that access the local machine.
LOCAL_PROTOCOLS = {
    "local", "dir", "reference", "simplecache", "filecache", "blockcache", "generic",
    "data", "cached", "jupyter", "git", "zip", "tar", "libarchive",
}  # fmt: skip
DOWNLOADED_BLOCK_BYTES = 8 << 20  # size of a read
S3_PART_BYTES, S3_CONCURRENT_PARTS = 16 << 20, 4  # for large uploads
S3_MAX_PARTS = 9000  # S3 allows 10,000
# Storages that write files atomically.
ATOMIC = {"s3", "s3a", "gs", "gcs", "az", "abfs", "memory"}
# Storages whose clients retry by themselves, except after a wrong checksum.
RETRYING = {"s3", "s3a", "gs", "gcs", "hf"}
BLOCK_TRIES = 3
CONCURRENT_TRANSFERS = 8
# Fields of a storage's listing that depend only on a file's content.
CONTENT_KEYS = ("ETag", "md5Hash", "crc32c", "content_md5", "xet_hash", "blob_id")


def is_url(name: str) -> bool:
    return URL.match(name) is not None


def as_url(given: str | Path) -> str | None:
    """Return a storage's URL; None for paths, file:// and hf://USER/NAME.

    >>> as_url(Path("s3://bucket/x")), as_url("hf://me/x"), as_url("file:///x"), as_url("a/b")
    ('s3://bucket/x', None, None, None)
    """
    text = COLLAPSED.sub(r"\1://", str(given), count=1) if isinstance(given, Path) else given
    protocol = text.partition("://")[0].lower()
    if not is_url(text) or protocol == "file" or (protocol == "hf" and not HUB_STORAGE.match(text)):
        return None
    return text


def as_path(given: str | Path) -> Path:
    """Convert a path or a file:// URL. Raises UsageError for another host or a relative URL."""
    text = COLLAPSED.sub(r"\1:///", str(given), count=1) if isinstance(given, Path) else given
    if not text.lower().startswith("file:"):
        return expand_home(given)
    split = urlsplit(text)
    if split.netloc not in ("", "localhost") or not split.path.startswith("/"):
        raise UsageError(
            "a file:// URL must have an absolute path on this machine", "Write file:///FOLDER/FILE."
        )
    return Path(unquote(split.path))


def open_storage(url: str, option: str = "") -> tuple[Any, str]:
    """Return the fsspec file system of `url` and the path in it.

    Raises UsageError for an unknown storage or a missing package.
    """
    from fsspec.core import url_to_fs

    protocol = url.partition("://")[0].lower()
    if protocol == "hf" and not HUB_STORAGE.match(url):
        raise UsageError(
            f"a Hub URL must be a dataset or a bucket, got {label_of_url(url)}",
            "Write hf://datasets/USER/NAME/... or hf://buckets/USER/NAME/...; hf:ID for a dataset.",
            option=option,
        )
    if protocol in LOCAL_PROTOCOLS or "::" in url:
        raise UsageError(
            f"cannot open {protocol}://: a URL must name remote storage only",
            "Give the path itself.",
            option=option,
        )
    try:
        storage, path = url_to_fs(url)
    except ImportError as error:
        hint = PACKAGES.get(protocol) or reason(error)
        raise UsageError(
            f"cannot open {protocol}://: a package is missing", hint, option=option
        ) from error
    except ValueError as error:
        hint = "Use s3://, gs://, https:// or hf://datasets/..."
        raise UsageError(f"unknown protocol {protocol}://", hint, option=option) from error
    # Clients' logs are shown only with -vv; their errors are part of ours.
    for client in ("gcsfs", "s3fs", "fsspec", "aiobotocore", "botocore"):
        if not logging.getLogger(client).handlers:
            logging.getLogger(client).addHandler(logging.NullHandler())
    storage.invalidate_cache()
    return storage, str(path)


def has_magic(path: str) -> bool:
    return glob.has_magic(path.partition("?")[0] if path.startswith("http") else path)


def plain_path(name: str) -> Path:
    """Return the name without scheme, user, web host and query, safe to print."""
    plain = without_secrets(name)
    if is_url(name):
        split = urlsplit(plain)
        bucket = "" if split.scheme.startswith("http") else split.netloc.rpartition("@")[2]
        plain = bucket + split.path
    return Path(visible(plain.lstrip("/")) or "file")


def label_of_url(url: str) -> str:
    return path_label(PurePosixPath(plain_path(url)).parts)


def path_label(parts: Sequence[str]) -> str:
    """Return the last part of a path; for a glob, all parts from the folder before it."""
    wild = next((i for i, part in enumerate(parts) if glob.has_magic(part)), None)
    return "/".join(parts[-1:] if wild is None else parts[max(wild - 1, 0) :])


def local_folder(name: str, given: str | Path) -> Path:
    """Convert the parameter `name` as `as_path`. Raises UsageError for a URL of another storage."""
    text = COLLAPSED.sub(r"\1://", str(given), count=1)
    if is_url(text) and not text.lower().startswith("file:"):
        raise UsageError(
            f"{name} must be a folder of this machine, got {url_label(text)}",
            "Give a folder. `ngramkit pull` copies a history from the Hub to one.",
            option=name,
        )
    return as_path(given)


def url_label(url: str) -> str:
    return visible(without_secrets(url).rstrip("/"))


class NotAsListedError(ArtifactError):
    """A file that is not as its manifest lists it."""


def require_whole_writes(url: str) -> None:
    """Raise UsageError for a storage that does not write files atomically."""
    protocol = url.partition(":")[0].lower()
    if protocol in ATOMIC or url.lower().startswith("hf://buckets/"):
        return
    hint = "Write to s3://, gs://, az:// or hf://buckets/..."
    if protocol == "hf":
        hint = "Write to a folder, then `ngramkit push` it; or to hf://buckets/USER/NAME/..."
    raise UsageError(f"cannot write to {url_label(url)}", hint, option="out")


@dataclass(frozen=True)
class UrlFolder:
    url: str
    protocol: str
    storage: Any  # fsspec file system
    path: str  # folder in the storage

    @classmethod
    def at(cls, url: str, option: str = "") -> UrlFolder:
        storage, path = open_storage(url, option)
        url = url.rstrip("/")  # so that a place has one work folder
        return cls(url, url.partition("://")[0].lower(), storage, path.rstrip("/"))

    def __str__(self) -> str:
        return url_label(self.url)

    @property
    def uploads(self) -> int:
        """The number of concurrent uploads; 1 on the Hub, whose file system is not thread-safe."""
        return 1 if self.protocol == "hf" else CONCURRENT_TRANSFERS

    def read(self, name: str, most: int) -> bytes | None:
        """Return the file's bytes; None if missing. Raises InputError for more than `most`."""
        with storage_errors(f"{self}/{name}"):
            try:
                raw = self._range(name, 0, most + 1)
            except FileNotFoundError:
                return None
        if len(raw) > most:
            raise InputError(
                f"cannot read {self}/{name}: it has more than {most:,} bytes", "Check the URL."
            )
        return raw

    def fetch(
        self, name: str, record: FileRecord, target: Path, advance: Callable[[float], None]
    ) -> None:
        """Download the file to `target`; `advance` gets the bytes of each block.

        Raises NotAsListedError if it is missing or differs from `record`.
        """
        digest = hashlib.sha256()
        with target.open("xb") as file:
            for begin in range(0, record.bytes, DOWNLOADED_BLOCK_BYTES):
                end = min(begin + DOWNLOADED_BLOCK_BYTES, record.bytes)
                block = self._block(name, begin, end, record.bytes)
                digest.update(block)
                file.write(block)
                advance(len(block))
                if len(block) == record.bytes:
                    break
            file.flush()
            os.fsync(file.fileno())
        if digest.hexdigest() != record.sha256:
            raise self._not_as_listed(name, "sha256")

    def _block(self, name: str, begin: int, end: int, size: int) -> bytes:
        with storage_errors(f"{self}/{name}"):
            try:
                block = self._range(name, begin, end)
            except FileNotFoundError as error:
                raise self._missing(name) from error
        whole = begin == 0 and len(block) == size  # some web servers ignore ranges
        if len(block) != end - begin and not whole:
            raise self._not_as_listed(name, "size")
        return block

    def require_listed(self, files: Mapping[str, FileRecord]) -> None:
        """Raise NotAsListedError if one of `files` is missing or has another size."""
        contents = self.contents()
        for name, record in files.items():
            if name not in contents:
                raise self._missing(name)
            if contents[name].partition(" ")[0] != str(record.bytes):
                raise self._not_as_listed(name, "size")

    def _missing(self, name: str) -> NotAsListedError:
        return NotAsListedError(
            f"cannot read {self}: it lists {name} but does not hold it", "Build it again."
        )

    def _not_as_listed(self, name: str, what: str) -> NotAsListedError:
        return NotAsListedError(
            f"cannot use {self}/{name}: it differs from its manifest ({what})",
            "Build it again, or wait if another process is writing there.",
        )

    def _range(self, name: str, begin: int, end: int) -> bytes:
        for left in reversed(range(BLOCK_TRIES)):
            try:
                return bytes(self.storage.cat_file(f"{self.path}/{name}", start=begin, end=end))
            except (FileNotFoundError, PermissionError):
                raise
            except Exception as error:
                retried = self.protocol in RETRYING and "Checksum" not in type(error).__name__
                if retried or not left:
                    raise
                time.sleep(0.2)
        raise AssertionError

    def put(self, file: Path, name: str) -> str:
        """Upload `file` atomically; return its entry of `contents`.

        Raises NetworkError if the storage refuses or lists another size.
        """
        size = file.stat().st_size
        options: dict[str, Any] = {}
        if self.protocol in ("s3", "s3a"):
            part = max(S3_PART_BYTES, math.ceil(size / S3_MAX_PARTS))
            options = {"chunksize": part, "max_concurrency": S3_CONCURRENT_PARTS}
        with storage_errors(f"{self}/{name}", "write"):
            self.storage.put_file(str(file), f"{self.path}/{name}", **options)
            self.storage.invalidate_cache()
            info = self.storage.info(f"{self.path}/{name}")
        if info.get("size") != size:
            raise NetworkError(f"cannot upload all of {self}/{name}", "Run the same command again.")
        return content_of(info)

    def contents(self) -> dict[str, str]:
        """Return the listed size and digest of each file."""
        with storage_errors(str(self)):
            self.storage.invalidate_cache()
            try:
                entries = self.storage.ls(self.path, detail=True)
            except FileNotFoundError:
                return {}
        files = [entry for entry in entries if entry.get("type") == "file"]
        named = {str(file["name"]).rpartition("/")[2]: content_of(file) for file in files}
        named.pop("", None)  # the folder's own entry
        return named

    def remove(self, name: str) -> None:
        with storage_errors(f"{self}/{name}", "write"):
            try:
                self.storage.rm_file(f"{self.path}/{name}")
            except FileNotFoundError:
                return


def content_of(info: Mapping[str, Any]) -> str:
    digests = [str(info[key]).strip('"') for key in CONTENT_KEYS if info.get(key)]
    return " ".join([str(info.get("size")), *digests])
