"""Files behind URLs as a corpus: s3://, gs://, hf://datasets/..., https:// and what fsspec opens.

A URL is a file, a folder or a glob of the kinds that `local` reads. The record pins the listing:
each file's name, its size, and the version that the storage gives (ETag, md5, time of change).
Knows listings and rows; nothing of tokens or of which documents are kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ngramkit.corpus import compressed
from ngramkit.corpus.document import Row
from ngramkit.corpus.files import FileOptions, is_read, require_read
from ngramkit.errors import InputError, reason
from ngramkit.formats.manifest import NAME
from ngramkit.storage.errors import storage_errors
from ngramkit.storage.urls import has_magic, label, open_storage, plain_path

# A listing's keys that change with a file's content, by storage.
VERSIONS = (
    "ETag", "etag", "md5Hash", "content_md5", "blob_id", "xet_hash", "LastModified", "mtime",
    "updated", "created",
)  # fmt: skip
ARRAYS = ".safetensors"


@dataclass(frozen=True)
class RemoteSource(FileOptions):
    """`files`: what the storage says of each, in the order of their names."""

    id: str
    storage: Any  # an fsspec file system
    files: Sequence[Mapping[str, Any]]

    @property
    def parts(self) -> int:
        return len(self.files)

    def only(self, part: int) -> RemoteSource:
        return replace(self, files=[self.files[part]])

    def record(self) -> dict[str, Any]:
        lines = [json.dumps(_pinned(file), sort_keys=True) for file in self.files]
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        return {"files": len(self.files), "listing": digest, **self.said()}

    def rows(self, part: int) -> Iterator[Row]:
        name, size = str(self.files[part]["name"]), self.files[part].get("size")
        path = plain_path(name)
        with _reading(str(path)), self.storage.open(name, "rb") as raw:
            yield from self.read(path, raw, size if isinstance(size, int) else 0)


def remote_source(url: str, *, column: str | None = None, join_turns: bool = False) -> RemoteSource:
    """Lists what `url` names; reads no file.

    Raises UsageError for a storage that is unknown or needs a package, InputError where nothing
    matches or a file is of a kind that is not read, NetworkError where the storage refuses.
    """
    storage, path = open_storage(url, "corpus")
    with _reading(label(url)):
        files = _listed(storage, path)
    if not files:
        raise InputError(f"no file matches {label(url)}", "check the URL, and quote a glob")
    for file in files:
        require_read(plain_path(str(file["name"])), label(str(file["name"])))
    return RemoteSource(label(url), storage, files, column=column, join_turns=join_turns)


def _listed(storage: Any, path: str) -> list[Mapping[str, Any]]:
    """A glob's files; a folder's, of the kinds that are read, but for those of artifacts; else the
    file itself."""
    if has_magic(path):
        found = storage.glob(path, detail=True).values()
    else:
        one = storage.info(path)
        if one["type"] != "directory":
            return [one]
        below = storage.find(path, detail=True)
        built = {name.rpartition("/")[0] for name in below if name.endswith(ARRAYS)}
        built = {folder for folder in built if f"{folder}/{NAME}" in below}
        found = [
            file
            for name, file in below.items()
            if is_read(plain_path(name)) and name.rpartition("/")[0] not in built
        ]
    files = [file for file in found if file.get("type") == "file"]
    return sorted(files, key=lambda file: str(file["name"]))


def _pinned(file: Mapping[str, Any]) -> dict[str, Any]:
    """A file's name, size and version. A signature in its URL is none of these."""
    said = {key: str(file[key]) for key in VERSIONS if file.get(key)}
    return {"name": str(plain_path(str(file["name"]))), "size": file.get("size"), **said}


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Errors of storages as ours."""
    with storage_errors(what):
        try:
            yield
        except compressed.ERRORS as error:
            raise InputError(f"{what} is damaged: {reason(error)}", "fetch it again") from error
