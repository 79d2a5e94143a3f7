"""Files behind URLs as a corpus: s3://, gs://, https:// and whatever else fsspec opens; read only.

A URL is a file, a folder or a glob of the kinds that `local` reads. The record pins the listing:
each file's name, its size, and the version that the storage gives (ETag, md5, time of change).
Nothing of a URL but its path is written anywhere: user names, passwords and signatures stay out.
Knows fsspec; nothing of tokens or of which documents are kept.
"""

from __future__ import annotations

import glob
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from ngramkit.corpus import compressed
from ngramkit.corpus.document import Row
from ngramkit.corpus.files import FileOptions, is_read, require_read
from ngramkit.errors import InputError, NetworkError, UsageError, reason
from ngramkit.visible import visible

# Two letters and more: C:// is a drive.
URL = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
PACKAGES = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "http": "aiohttp",
    "https": "aiohttp", "az": "adlfs", "abfs": "adlfs",
}  # fmt: skip
# A listing's keys that change with a file's content, by storage.
VERSIONS = ("ETag", "etag", "md5Hash", "content_md5", "LastModified", "mtime", "updated", "created")
# Of this machine, or of what runs there: those are named as paths, or not at all.
NOT_REMOTE = {
    "file", "local", "dir", "reference", "simplecache", "filecache", "blockcache", "generic",
    "data", "cached", "jupyter", "git", "zip", "tar", "libarchive",
}  # fmt: skip


@dataclass(frozen=True)
class RemoteSource(FileOptions):
    """`files`: what the storage says of each, in the order of their names."""

    id: str
    storage: Any  # an fsspec file system
    files: Sequence[Mapping[str, Any]]

    @property
    def parts(self) -> int:
        return len(self.files)

    def record(self) -> dict[str, Any]:
        lines = [json.dumps(_pinned(file), sort_keys=True) for file in self.files]
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        return {"files": len(self.files), "listing": digest, **self.said()}

    def rows(self, part: int) -> Iterator[Row]:
        name, size = str(self.files[part]["name"]), self.files[part].get("size")
        path = _path(name)
        with _reading(str(path)), self.storage.open(name, "rb") as raw:
            yield from self.read(path, raw, size if isinstance(size, int) else 0)


def is_url(name: str) -> bool:
    return URL.match(name) is not None


def remote_source(url: str, *, column: str | None = None, join_turns: bool = False) -> RemoteSource:
    """Lists what `url` names; reads no file.

    Raises UsageError for a storage that is unknown or needs a package, InputError where nothing
    matches or a file is of a kind that is not read, NetworkError where the storage refuses.
    """
    storage, path = _storage(url)
    with _reading(_label(url)):
        files = _listed(storage, path)
    if not files:
        raise InputError(f"no file matches {_label(url)}", "check the URL, and quote a glob")
    for file in files:
        require_read(_path(str(file["name"])), _label(str(file["name"])))
    return RemoteSource(_label(url), storage, files, column=column, join_turns=join_turns)


def _storage(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    protocol = url.partition("://")[0].lower()
    if protocol in NOT_REMOTE or "::" in url:
        raise UsageError(f"{protocol}:// is not read", "give the path itself", option="corpus")
    try:
        storage, path = url_to_fs(url)
    except ImportError as error:
        package = PACKAGES.get(protocol)
        hint = f"pip install {package}" if package else reason(error)
        raise UsageError(f"{protocol}:// needs one more package", hint, option="corpus") from error
    except ValueError as error:
        raise UsageError(
            f"nothing here reads {protocol}://",
            "s3://, gs:// and https:// are read",
            option="corpus",
        ) from error
    return storage, str(path)


def _listed(storage: Any, path: str) -> list[Mapping[str, Any]]:
    """A glob's files; a folder's, of the kinds that are read; else the file itself."""
    if glob.has_magic(path.partition("?")[0] if path.startswith("http") else path):
        found = storage.glob(path, detail=True).values()
    else:
        one = storage.info(path)
        if one["type"] != "directory":
            return [one]
        below = storage.find(path, detail=True).values()
        found = [file for file in below if is_read(_path(str(file["name"])))]
    files = [file for file in found if file.get("type") == "file"]
    return sorted(files, key=lambda file: str(file["name"]))


def _pinned(file: Mapping[str, Any]) -> dict[str, Any]:
    """A file's name, size and version. A signature in its URL is none of these."""
    said = {key: str(file[key]) for key in VERSIONS if file.get(key)}
    return {"name": str(_path(str(file["name"]))), "size": file.get("size"), **said}


def _path(name: str) -> Path:
    """The name without scheme, user, web host and query, fit for a screen."""
    plain = name
    if is_url(name):
        split = urlsplit(name)
        bucket = "" if split.scheme.startswith("http") else split.netloc.rpartition("@")[2]
        plain = bucket + split.path
    return Path(visible(plain.lstrip("/")) or "file")


def _label(url: str) -> str:
    """The last part, and of a glob all from the folder before it on."""
    parts = PurePosixPath(_path(url)).parts
    wild = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
    begin = max(wild - 1, 0) if any(map(glob.has_magic, parts)) else len(parts) - 1
    return "/".join(parts[begin:])


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Errors of storages as ours; the package behind one may raise anything."""
    try:
        yield
    except (InputError, UsageError):
        raise
    except compressed.ERRORS as error:
        raise InputError(f"{what} is damaged: {reason(error)}", "fetch the file again") from error
    except FileNotFoundError as error:
        raise InputError(f"{what} is not there", "check the URL") from error
    except PermissionError as error:
        raise NetworkError(f"{what} may not be read", "log in to the storage") from error
    except Exception as error:
        raise NetworkError(
            f"{what} cannot be read: {visible(type(error).__name__)}",
            "try again, or fetch the files",
        ) from error
