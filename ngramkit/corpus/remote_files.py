"""Files at a URL as a corpus."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Self

from ngramkit.basics.errors import InputError, storage_errors
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.corpus import unpacking
from ngramkit.corpus.files import (
    ABOUT,
    DESCRIPTIONS,
    HIDDEN,
    OTHER_KINDS,
    TABLES,
    FileSource,
    has_readable_suffix,
    is_hidden,
    note_left_out,
    reader_suffix,
    require_columns,
    require_readable_suffix,
)
from ngramkit.corpus.rows import ReaderOptions
from ngramkit.formats.manifest import MANIFEST_FILE
from ngramkit.remote.urls import has_magic, label_of_url, open_storage, plain_path

DATASETS = "hf://datasets/"
# Keys of a storage's listing that change with a file's content.
VERSION_KEYS = (
    "ETag", "etag", "md5Hash", "content_md5", "blob_id", "xet_hash", "LastModified", "mtime",
    "updated", "created",
)  # fmt: skip


@dataclass(frozen=True)
class RemoteSource(FileSource):
    """Files at a URL; `files` are the storage's sorted entries."""

    storage: Any  # an fsspec file system
    files: Sequence[Mapping[str, Any]]
    published: bool = False  # a dataset of the Hub

    @property
    def parts(self) -> int:
        return len(self.files)

    def path(self, part: int) -> Path:
        return plain_path(str(self.files[part]["name"]))

    @contextmanager
    def stream(self, part: int) -> Iterator[IO[bytes]]:
        name = str(self.files[part]["name"])
        with _storage_errors(str(plain_path(name))), self.storage.open(name, "rb") as raw:
            yield raw

    @property
    def progress(self) -> tuple[int, int | None]:
        is_known = all(isinstance(file.get("size"), int) for file in self.files)
        return super().progress if is_known else (self.reached_bytes[0], None)

    @cached_property
    def sizes(self) -> list[int]:
        return [int(file.get("size") or 0) for file in self.files]

    def choose(self, parts: Sequence[int]) -> Self:
        return replace(self, files=[self.files[i] for i in parts])

    def record(self) -> dict[str, Any]:
        lines = [json.dumps(_file_version(file), sort_keys=True) for file in self.files]
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        return {"files": len(self.files), "listing": digest, **self.reading.record()}


def remote_source(url: str, reading: ReaderOptions, reporter: Reporter = SILENT) -> RemoteSource:
    """Return a file, a folder or a glob at a URL as a source; read no file.

    Raises as `local_source`, UsageError for an unknown storage, NetworkError if it refuses.
    """
    storage, path = open_storage(url, "corpus")
    left_out: Counter[str] = Counter()
    with _storage_errors(label_of_url(url)):
        listed = _list_files(storage, path, left_out)
    files = list(_without_hidden_and_descriptions(url, path, listed, left_out))
    note_left_out(label_of_url(url), left_out, reporter)
    if not files:
        raise InputError(
            f"cannot read {label_of_url(url)}: no file matches", "Check the URL, and quote a glob."
        )
    paths = [plain_path(str(file["name"])) for file in files]
    for file, plain in zip(files, paths, strict=True):
        require_readable_suffix(plain, label_of_url(str(file["name"])))
    require_columns(paths, reading, label_of_url(url))
    return RemoteSource(
        label_of_url(url), storage, files, url.startswith(DATASETS), reading=reading
    )


def _without_hidden_and_descriptions(
    url: str, path: str, listed: Sequence[Mapping[str, Any]], left_out: Counter[str]
) -> Iterator[Mapping[str, Any]]:
    literal = re.split(r"[*?\[]", path)[0] if has_magic(path) else f"{path}/"
    fixed = literal.rfind("/") + 1
    names_hidden = is_hidden(Path(path[fixed:]))
    has_tables = any(reader_suffix(plain_path(str(file["name"]))) in TABLES for file in listed)
    for file in listed:
        below = Path(str(file["name"])[fixed:])
        card = below.name == "README.md" and url.startswith(DATASETS)
        if is_hidden(below) and not names_hidden:
            left_out[HIDDEN] += 1
        elif len(listed) > 1 and has_tables and (card or below.name in DESCRIPTIONS):
            left_out[ABOUT] += 1
        else:
            yield file


def _list_files(storage: Any, path: str, left_out: Counter[str]) -> list[Mapping[str, Any]]:
    """List a glob, a folder's files without artifacts, or one file."""
    if has_magic(path):
        entries = storage.glob(path, detail=True).values()
    else:
        entry = storage.info(path)
        if entry["type"] != "directory":
            return [entry]
        below = storage.find(path, detail=True)
        built = {name.rpartition("/")[0] for name in below if name.endswith(".safetensors")}
        built = {folder for folder in built if f"{folder}/{MANIFEST_FILE}" in below}
        entries = []
        for name, file in below.items():
            if name.rpartition("/")[0] in built:
                continue
            if has_readable_suffix(plain_path(name)):
                entries.append(file)
            elif not is_hidden(Path(name[len(path) :])):
                left_out[OTHER_KINDS] += 1
    files = [file for file in entries if file.get("type") == "file"]
    return sorted(files, key=lambda file: str(file["name"]))


def _file_version(file: Mapping[str, Any]) -> dict[str, Any]:
    """Return name, size and version; no signature in the URL."""
    version = {key: str(file[key]) for key in VERSION_KEYS if file.get(key)}
    return {"name": str(plain_path(str(file["name"]))), "size": file.get("size"), **version}


@contextmanager
def _storage_errors(what: str) -> Iterator[None]:
    with storage_errors(what):
        try:
            yield
        except unpacking.ERRORS as error:
            raise unpacking.damaged_file(what, error) from error
