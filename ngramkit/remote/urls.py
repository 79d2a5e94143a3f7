"""URLs of storages, read and written by fsspec: s3://, gs://, https://, hf://datasets/... .

`hf://USER/NAME` is an artifact of the Hub (ngramkit.remote.fetch) and no URL of a storage; `file://`
is the path itself. Nothing of a URL but its path is shown or written anywhere: user names,
passwords and signatures stay out. A `UrlFolder` is a folder there, whose files are read in part,
fetched and proven, or written whole.
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
from ngramkit.basics.terminal_text import visible, without_secrets
from ngramkit.formats.safetensors import FileRecord

# Two letters and more: C:// is a drive.
URL = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
COLLAPSED = re.compile(r"([a-z][a-z0-9+.-]+):/(?!/)", re.IGNORECASE)  # what Path makes of one
HUB_STORAGE = re.compile(r"hf://(datasets|buckets)/[^/]", re.IGNORECASE)
CLOUD = "pip install 'ngramkit[cloud]'"
PACKAGES = {
    **dict.fromkeys(("s3", "s3a", "gs", "gcs", "http", "https"), CLOUD),
    "az": "pip install adlfs", "abfs": "pip install adlfs",
}  # fmt: skip
# Protocols of fsspec that read this machine, or what runs on it.
NOT_REMOTE = {
    "local", "dir", "reference", "simplecache", "filecache", "blockcache", "generic",
    "data", "cached", "jupyter", "git", "zip", "tar", "libarchive",
}  # fmt: skip
BLOCK = 8 << 20  # bytes read at a time
PART = 16 << 20  # bytes of a part of a large upload to S3, of which PARTS are in memory
PARTS = 4
MOST_PARTS = 9000  # S3 takes 10,000
# Storages in which a written file is there whole or not at all.
ATOMIC = {"s3", "s3a", "gs", "gcs", "az", "abfs", "memory"}
# Storages whose clients try again by themselves, unless the checksum of what came differs.
RETRYING = {"s3", "s3a", "gs", "gcs", "hf"}
TRIES = 3
AT_A_TIME = 8  # transfers
# Fields of a listing that depend on a file's content alone, by storage.
CONTENT = ("ETag", "md5Hash", "crc32c", "content_md5", "xet_hash", "blob_id")


def is_url(name: str) -> bool:
    """Return whether the name has a scheme of two letters or more."""
    return URL.match(name) is not None


def as_url(given: str | Path) -> str | None:
    """Return the URL of a storage; None for paths, file:// and hf://USER/NAME.

    >>> as_url(Path("s3://bucket/x")), as_url("hf://me/x"), as_url("file:///x"), as_url("a/b")
    ('s3://bucket/x', None, None, None)
    """
    text = COLLAPSED.sub(r"\1://", str(given), count=1) if isinstance(given, Path) else given
    protocol = text.partition("://")[0].lower()
    if not is_url(text) or protocol == "file" or (protocol == "hf" and not HUB_STORAGE.match(text)):
        return None
    return text


def as_path(given: str | Path) -> Path:
    """Return a name that is no URL of a storage as a path: file:///a/b%20c is /a/b c.

    Raises UsageError for a file:// of another host, or without an absolute path.
    """
    text = COLLAPSED.sub(r"\1:///", str(given), count=1) if isinstance(given, Path) else given
    if not text.lower().startswith("file:"):
        return Path(given)
    split = urlsplit(text)
    if split.netloc not in ("", "localhost") or not split.path.startswith("/"):
        raise UsageError("a file:// names an absolute path of this machine", "file:///FOLDER/FILE")
    return Path(unquote(split.path))


def open_storage(url: str, option: str = "") -> tuple[Any, str]:
    """Return the fsspec file system behind `url`, with no listing cached, and the path there.

    Raises UsageError, naming `option`, for a storage that is unknown or needs a package.
    """
    from fsspec.core import url_to_fs

    protocol = url.partition("://")[0].lower()
    if protocol == "hf" and not HUB_STORAGE.match(url):
        raise UsageError(
            f"{label(url)} is no storage of the Hub",
            "hf://datasets/USER/NAME/... or hf://buckets/USER/NAME/...; a whole dataset is hf:ID",
            option=option,
        )
    if protocol in NOT_REMOTE or "::" in url:
        raise UsageError(f"{protocol}:// is not read", "give the path itself", option=option)
    try:
        storage, path = url_to_fs(url)
    except ImportError as error:
        hint = PACKAGES.get(protocol) or reason(error)
        raise UsageError(f"{protocol}:// needs one more package", hint, option=option) from error
    except ValueError as error:
        hint = "s3://, gs://, https:// and hf://datasets/... are read"
        raise UsageError(f"nothing here reads {protocol}://", hint, option=option) from error
    # The client's log is shown by -vv alone: its errors are in ours.
    for client in ("gcsfs", "s3fs", "fsspec", "aiobotocore", "botocore"):
        if not logging.getLogger(client).handlers:
            logging.getLogger(client).addHandler(logging.NullHandler())
    storage.invalidate_cache()
    return storage, str(path)


def has_magic(path: str) -> bool:
    """Return whether the path is a glob; the ? of a web address begins its query."""
    return glob.has_magic(path.partition("?")[0] if path.startswith("http") else path)


def plain_path(name: str) -> Path:
    """Return the name without scheme, user, web host and query, fit for a screen."""
    plain = without_secrets(name)
    if is_url(name):
        split = urlsplit(plain)
        bucket = "" if split.scheme.startswith("http") else split.netloc.rpartition("@")[2]
        plain = bucket + split.path
    return Path(visible(plain.lstrip("/")) or "file")


def label(url: str) -> str:
    """Return the last part of a URL; of a glob, all parts from the folder before it on."""
    return path_label(PurePosixPath(plain_path(url)).parts)


def path_label(parts: Sequence[str]) -> str:
    """Return the last part of a path; of a glob, all parts from the folder before it on.

    >>> path_label(["home", "me", "chats", "*.jsonl"]), path_label(["me", "notes.txt"])
    ('chats/*.jsonl', 'notes.txt')
    """
    wild = next((i for i, part in enumerate(parts) if glob.has_magic(part)), None)
    return "/".join(parts[-1:] if wild is None else parts[max(wild - 1, 0) :])


def url_label(url: str) -> str:
    """Return the URL for a screen: without user, password and query.

    >>> url_label("s3://key:secret@bucket/x?signature=1")
    's3://bucket/x'
    """
    return visible(without_secrets(url).rstrip("/"))


class NotAsListedError(ArtifactError):
    """A file that is not as its manifest lists it."""


def require_whole_writes(url: str) -> None:
    """Raise UsageError for a storage whose files could be seen half-written."""
    protocol = url.partition(":")[0].lower()
    if protocol in ATOMIC or url.lower().startswith("hf://buckets/"):
        return
    hint = "s3://, gs://, az:// and hf://buckets/... are written to"
    if protocol == "hf":
        hint = "write to a folder, then `ngramkit push` it; or to hf://buckets/USER/NAME/..."
    raise UsageError(f"nothing is written to {url_label(url)}", hint, option="out")


@dataclass(frozen=True)
class UrlFolder:
    """A folder behind a URL."""

    url: str
    protocol: str
    storage: Any  # an fsspec file system
    path: str  # of the folder, as the storage calls it

    @classmethod
    def at(cls, url: str, option: str = "") -> UrlFolder:
        """Open the storage of a URL. Raises as `open_storage`."""
        storage, path = open_storage(url, option)
        url = url.rstrip("/")  # one place, one work folder
        return cls(url, url.partition("://")[0].lower(), storage, path.rstrip("/"))

    def __str__(self) -> str:
        """Return the URL without what is secret of it."""
        return url_label(self.url)

    @property
    def uploads(self) -> int:
        """Uploads at a time. The Hub's file system caches listings and is for one thread; its
        client sends parts of a file in parallel."""
        return 1 if self.protocol == "hf" else AT_A_TIME

    def read(self, name: str, most: int) -> bytes | None:
        """Return the file's bytes; None where there is none. Raises InputError for more than
        `most`."""
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
        """Write the file to `target`; `advance` is called with the bytes of each block.

        Raises NotAsListedError where it is missing or not as `record` lists it; `target` is then
        of no use.
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
            raise self._wrong(name, "sha256")

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
            raise self._wrong(name, "size")
        return block

    def _wrong(self, name: str, what: str) -> NotAsListedError:
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
                retried = self.protocol in RETRYING and "Checksum" not in type(error).__name__
                if retried or not left:
                    raise
                time.sleep(0.2)
        raise AssertionError

    def put(self, file: Path, name: str) -> str:
        """Upload `file`, whole or not at all; return what `contents` says of it.

        Raises NetworkError where the storage refuses or has other bytes afterwards.
        """
        size = file.stat().st_size
        options: dict[str, Any] = {}
        if self.protocol in ("s3", "s3a"):
            part = max(PART, math.ceil(size / MOST_PARTS))
            options = {"chunksize": part, "max_concurrency": PARTS}
        with storage_errors(f"{self}/{name}", "written"):
            self.storage.put_file(str(file), f"{self.path}/{name}", **options)
            self.storage.invalidate_cache()
            info = self.storage.info(f"{self.path}/{name}")
        if info.get("size") != size:
            raise NetworkError(f"{self}/{name} did not arrive whole", "run the same command again")
        return content_of(info)

    def contents(self) -> dict[str, str]:
        """Return {name: size and the storage's own digest} of the folder's files."""
        with storage_errors(str(self)):
            self.storage.invalidate_cache()
            try:
                entries = self.storage.ls(self.path, detail=True)
            except FileNotFoundError:
                return {}
        files = [entry for entry in entries if entry.get("type") == "file"]
        named = {str(file["name"]).rpartition("/")[2]: content_of(file) for file in files}
        return {name: content for name, content in named.items() if name}  # a folder's own mark

    def remove(self, name: str) -> None:
        """Delete the file, if it is there."""
        with storage_errors(f"{self}/{name}", "written"):
            try:
                self.storage.rm_file(f"{self.path}/{name}")
            except FileNotFoundError:
                return


def content_of(info: Mapping[str, Any]) -> str:
    """Return the part of a listing's entry that depends on the content alone."""
    digests = [str(info[key]).strip('"') for key in CONTENT if info.get(key)]
    return " ".join([str(info.get("size")), *digests])
