"""A local cache of artifacts at URLs, whose files are memory-mapped.

    FOLDER/blobs/SHA256        a read-only file; the mtime of SHA256.used is its last use
    FOLDER/artifacts/KEY/NAME  an artifact: its manifest, and links to its blobs
    FOLDER/work/KEY/NAME       an artifact that is built here before its upload
    FOLDER/incoming/           unfinished downloads

The manifest is read at every opening, so the URL's current artifact is opened. Evicted blobs stay
mapped until their process ends. fsspec's caches return unverified files.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ngramkit.basics.cache import private_folder
from ngramkit.basics.errors import ArtifactError, InputError
from ngramkit.basics.limits import LIMITS, SHA256
from ngramkit.basics.machine import expand_home, parse_size
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.untrusted import TRY_AGAIN, parse_json
from ngramkit.formats.history import History
from ngramkit.formats.manifest import MANIFEST_FILE, Manifest, parse_manifest
from ngramkit.formats.opening import kind_of, open_artifact_folder
from ngramkit.formats.outputs import CARD, RECIPE, short_name
from ngramkit.formats.replacing import hold_lock
from ngramkit.formats.safetensors import FileRecord, WrongFileError
from ngramkit.remote.urls import CONCURRENT_TRANSFERS, NotAsListedError, UrlFolder

DIR, SIZE = "NGRAMKIT_CACHE_DIR", "NGRAMKIT_CACHE_SIZE"
MAX_DOWNLOAD_SECONDS = 24 * 3600.0  # older incoming files are abandoned
DOWNLOAD_TRIES = 2
Entry = tuple[str, FileRecord]  # a file's name and its manifest record

_chosen: ContextVar[tuple[Path | None, int | None]] = ContextVar("cache", default=(None, None))


@contextmanager
def using_cache(folder: str | Path | None = None, size: int | str | None = None) -> Iterator[None]:
    """Cache remote files in `folder`, at most `size` bytes (or "20G"), inside the with block.

    None keeps a setting. Defaults: NGRAMKIT_CACHE_DIR and NGRAMKIT_CACHE_SIZE, else a folder of the
    user and half of its free space. Raises UsageError for an invalid size, InputError if
    `folder` is a file.
    """
    if folder and Path(folder).is_file():
        raise InputError(
            f"the cache must be a folder, got {folder}", "Give another.", option="cache_dir"
        )
    bound = None if size is None else parse_size(str(size))
    before = _chosen.get()
    bound = before[1] if bound is None else bound
    token = _chosen.set((Path(folder) if folder else before[0], bound))
    try:
        yield
    finally:
        _chosen.reset(token)


@dataclass(frozen=True)
class Cache:
    folder: Path
    bound: int | None  # bytes; None: half of the space that an empty cache would leave free

    @classmethod
    def chosen(cls) -> Cache:
        folder, size = _chosen.get()
        named = folder or (Path(os.environ[DIR]) if os.environ.get(DIR) else None)
        if size is None and os.environ.get(SIZE):
            size = parse_size(os.environ[SIZE])
        own = expand_home(named).absolute() if named else private_folder("staged")
        if own is None:
            raise InputError(
                "cannot download: there is no cache folder", "Give one.", option="cache_dir"
            )
        try:
            for part in ("blobs", "artifacts", "work", "incoming"):
                (own / part).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            why = f"{own} cannot be a cache: {error.strerror}"
            raise InputError(why, "Give another folder.", option="cache_dir") from error
        return cls(own, size)

    @property
    def size(self) -> int:
        """The bound of all blobs, in bytes."""
        if self.bound is not None:
            return self.bound
        return (shutil.disk_usage(self.folder).free + self.total_bytes()) // 2

    def total_bytes(self) -> int:
        return sum(size for _, size, _ in self._blobs())

    def find(self, record: FileRecord) -> Path | None:
        """Return the blob and mark it as used; None if it is missing or incomplete."""
        path = self.blob(record.sha256)
        try:
            if path.stat().st_size != record.bytes:
                return None
        except FileNotFoundError:
            return None
        _mark_of_use(path).touch()
        return path

    def blob(self, sha256: str) -> Path:
        return self.folder / "blobs" / sha256

    def add(self, sha256: str, fill: Callable[[Path], None]) -> Path:
        """Return the blob. If missing, one process calls `fill(path)` to write a verified file."""
        path = self.blob(sha256)
        with hold_lock(self.folder / "incoming" / f"{sha256}.lock"):
            if not path.exists():
                temporary = self.folder / "incoming" / f"{sha256}.{os.getpid()}"
                try:
                    fill(temporary)
                    self.adopt(sha256, temporary)
                finally:
                    temporary.unlink(missing_ok=True)
        return path

    def adopt(self, sha256: str, file: Path) -> None:
        """Move `file`, already verified to be that blob, into the cache."""
        file.chmod(0o400)
        file.replace(self.blob(sha256))
        _mark_of_use(self.blob(sha256)).touch()

    def evict_until_fits(self, manifest: Manifest, what: str) -> list[Entry]:
        """Return the listed files whose blobs are missing, each content once.

        Evicts the least recently used other blobs until they fit. Raises InputError if they cannot.
        """
        contents = {record.sha256: (name, record) for name, record in manifest.files.items()}
        missing = [each for each in contents.values() if self.find(each[1]) is None]
        if not missing:
            return []
        needed = sum(record.bytes for _, record in missing)
        with hold_lock(self.folder / "lock"):
            self._delete_abandoned_downloads()
            blobs = sorted(self._blobs(), key=lambda blob: blob[2])
            whole = needed + sum(size for path, size, _ in blobs if path.name in contents)
            bound = self.size
            if whole > bound:
                raise InputError(
                    f"cannot cache {what}: it has {whole:,} bytes, {self.folder} may hold "
                    f"{bound:,}",
                    "Give a larger cache_size, or a cache_dir on a larger disk.",
                    option=("cache_size", "cache_dir"),
                )
            total = sum(size for _, size, _ in blobs)
            for path, size, _ in blobs:
                if total + needed <= bound:
                    break
                if path.name not in contents:
                    path.unlink(missing_ok=True)
                    _mark_of_use(path).unlink(missing_ok=True)
                    total -= size
        return missing

    def _blobs(self) -> Iterator[tuple[Path, int, float]]:
        """Yield (path, bytes, time of last use)."""
        for path in (self.folder / "blobs").iterdir():
            if SHA256.fullmatch(path.name):
                with suppress(FileNotFoundError):
                    used = _mark_of_use(path)
                    at = used.stat().st_mtime if used.exists() else 0.0
                    yield path, path.stat().st_size, at

    def _delete_abandoned_downloads(self) -> None:
        for path in (self.folder / "incoming").iterdir():
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > MAX_DOWNLOAD_SECONDS:
                    path.unlink()


def _mark_of_use(blob: Path) -> Path:
    # Not the blob's own mtime, which is part of its identity (basics.untrusted).
    return blob.with_name(f"{blob.name}.used")


def stage_artifact(url: str, *, reporter: Reporter = SILENT) -> Path:
    """Download and verify the artifact at `url`; return its local folder.

    Raises UsageError for an unknown storage, NetworkError if it refuses or is unreachable,
    ArtifactError for a missing or damaged artifact, InputError if the cache is full.
    """
    place, cache = UrlFolder.at(url), Cache.chosen()
    for left in reversed(range(DOWNLOAD_TRIES)):
        raw, manifest = require_remote_manifest(place)
        folder = staged_folder(cache, place, manifest)
        try:
            _download_artifact(place, cache, manifest, reporter)
            link_blobs(cache, folder, manifest)
            if not (folder / MANIFEST_FILE).exists():
                _put_texts(place, folder, raw, CARD, RECIPE)
            open_artifact_folder(folder, reporter=reporter)
        except ArtifactError as error:
            if not left or not _is_worth_a_retry(error, cache, manifest):
                raise
            continue
        reporter.fetched(str(place), manifest.checksum)
        return folder
    raise AssertionError


def _is_worth_a_retry(error: ArtifactError, cache: Cache, manifest: Manifest) -> bool:
    """Return whether a transfer was damaged, an upload is running, or a blob was evicted."""
    if isinstance(error, WrongFileError):
        cache.blob(manifest.files[error.file.name].sha256).unlink(missing_ok=True)
    missing = any(not cache.blob(record.sha256).exists() for record in manifest.files.values())
    return missing or isinstance(error, NotAsListedError)


def require_remote_manifest(place: UrlFolder) -> tuple[bytes, Manifest]:
    """Return the raw and the parsed manifest. Raises ArtifactError if it is missing or unusable."""
    remote = find_remote_manifest(place)
    if remote is None:
        raise ArtifactError(
            f"cannot use {place}: it has no {MANIFEST_FILE}, so it is not an ngramkit artifact",
            "Check the URL.",
        )
    kind_of(str(place), remote[1].kind)  # before downloading anything
    if remote[1].kind == History.kind:
        raise ArtifactError(
            f"cannot open {place}: it is a history, which grows while it is used",
            "Copy its folder.",
        )
    return remote


def find_remote_manifest(place: UrlFolder) -> tuple[bytes, Manifest] | None:
    raw = place.read(MANIFEST_FILE, LIMITS.json_bytes)
    if raw is None:
        return None
    where = f"{place}/{MANIFEST_FILE}"
    body = parse_json(raw, where, strict=True, error=ArtifactError, hint=TRY_AGAIN)
    return raw, parse_manifest(where, body)


def staged_folder(cache: Cache, place: UrlFolder, manifest: Manifest) -> Path:
    key = hashlib.sha256(f"{place.url}\0{manifest.checksum}".encode()).hexdigest()[:16]
    return cache.folder / "artifacts" / key / local_name(place)


def local_name(place: UrlFolder) -> str:
    return short_name(PurePosixPath(place.path).name) or "artifact"


def _download_artifact(
    place: UrlFolder, cache: Cache, manifest: Manifest, reporter: Reporter
) -> None:
    missing = cache.evict_until_fits(manifest, str(place))
    if not missing:
        return
    reporter.stage(f"fetching {place}", sum(record.bytes for _, record in missing), "bytes")

    def fetch(entry: Entry) -> None:
        name, record = entry
        cache.add(record.sha256, lambda path: place.fetch(name, record, path, reporter.advance))

    with ThreadPoolExecutor(CONCURRENT_TRANSFERS) as pool:
        list(pool.map(fetch, missing))  # stops at the first error


def _put_texts(place: UrlFolder, folder: Path, manifest: bytes, *names: str) -> None:
    for name in names:
        text = place.read(name, LIMITS.text_bytes)
        if text is not None:
            write_atomically(folder / name, text)
    write_atomically(folder / MANIFEST_FILE, manifest)


def link_blobs(cache: Cache, folder: Path, manifest: Manifest) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, record in manifest.files.items():
        blob = Path(os.path.relpath(cache.blob(record.sha256), folder))
        if not (folder / name).is_symlink() or (folder / name).readlink() != blob:
            temporary = _temporary_path(folder / name)
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(blob)
            temporary.replace(folder / name)


def write_atomically(path: Path, raw: bytes) -> None:
    temporary = _temporary_path(path)
    temporary.write_bytes(raw)
    temporary.replace(path)


def _temporary_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")


# An artifact's texts at a URL: manifest, card, recipe.


def fetch_manifest_and_recipe(place: UrlFolder, folder: Path) -> None:
    """Download both into a new `folder`, if there is an artifact."""
    remote = find_remote_manifest(place)
    if remote is not None:
        folder.mkdir()
        _put_texts(place, folder, remote[0], RECIPE)


def upload_texts(place: UrlFolder, folder: Path, *names: str) -> None:
    for name in names:
        if (folder / name).is_file():
            text = (folder / name).read_bytes()
            if place.read(name, LIMITS.text_bytes) != text:
                place.put(folder / name, name)


def upload_text(place: UrlFolder, name: str, text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_text(text, encoding="utf-8")
        upload_texts(place, Path(folder), name)
