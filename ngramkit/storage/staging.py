"""Artifacts behind URLs, on this machine: what the cache lacks is fetched, proven, and linked.

A manifest is read each time, so what is opened is what the URL holds now. Its files come by their
sha256, several at a time, into ngramkit.storage.cache. Nobody there is trusted: names that leave a
folder, sizes and sums that differ are refused, and every value is checked, once (formats.checks).
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from ngramkit.errors import ArtifactError
from ngramkit.formats.container import FileRecord, WrongFileError
from ngramkit.formats.json_text import AGAIN, MOST, parse_json
from ngramkit.formats.kinds import kind_of, open_artifact
from ngramkit.formats.manifest import NAME, Manifest, parse_manifest
from ngramkit.formats.outputs import CARD, RECIPE
from ngramkit.formats.places import short_name
from ngramkit.progress import SILENT, Reporter
from ngramkit.storage.cache import Cache
from ngramkit.storage.place import AT_A_TIME, NotAsListedError, Place

Entry = tuple[str, FileRecord]  # a name, and what the manifest says of that file
TRIES = 2
MOST_TEXT = 1 << 22  # bytes of a card or a recipe's record


def stage(url: str, *, reporter: Reporter = SILENT) -> tuple[Path, Manifest]:
    """The artifact at `url` as a folder of this machine, proven whole, and its manifest.

    Raises UsageError for a storage that is unknown or needs a package, NetworkError where it
    refuses or is out of reach, ArtifactError where there is no artifact or a damaged one,
    InputError where the cache has no room for it.
    """
    place, cache = Place.at(url), Cache.chosen()
    for left in reversed(range(TRIES)):
        raw, manifest = read_remote(place)
        folder = staged_folder(cache, place, manifest)
        try:
            _fetch(place, cache, manifest, reporter)
            _lay_out(place, cache, folder, raw, manifest)
            open_artifact(folder, reporter=reporter)
        except ArtifactError as error:
            if not left or not _may_pass(error, cache, manifest):
                raise
            continue
        reporter.fetched(str(place), manifest.checksum)
        return folder, manifest
    raise AssertionError


def _may_pass(error: ArtifactError, cache: Cache, manifest: Manifest) -> bool:
    """Whether it may be otherwise the next time: a bit that flipped on the way or on the disk, an
    upload that was going on, a blob that another process made room of."""
    if isinstance(error, WrongFileError):
        cache.drop(manifest.files[error.file.name].sha256)
    missing = any(not cache.blob(each.sha256).exists() for each in manifest.files.values())
    return missing or isinstance(error, NotAsListedError)


def read_remote(place: Place) -> tuple[bytes, Manifest]:
    """The manifest there, as it is written and as it is read. Raises ArtifactError without one."""
    found = find_remote(place)
    if found is None:
        raise ArtifactError(
            f"{place} holds no {NAME}, so it is not an ngramkit artifact", "check the URL"
        )
    kind_of(str(place), found[1].kind)  # known here, or nothing is fetched
    if not found[1].files:
        raise ArtifactError(
            f"{place} is a {found[1].kind}, which grows while it is used", "copy its folder"
        )
    return found


def find_remote(place: Place) -> tuple[bytes, Manifest] | None:
    """As `read_remote`; None where there is no manifest."""
    raw = place.read(NAME, MOST)
    if raw is None:
        return None
    where = f"{place}/{NAME}"
    body = parse_json(raw, where, strict=True, error=ArtifactError, hint=AGAIN)
    return raw, parse_manifest(where, body)


def staged_folder(cache: Cache, place: Place, manifest: Manifest) -> Path:
    """Of one URL and one manifest; its name is that of the URL's last part."""
    key = hashlib.sha256(f"{place.url}\0{manifest.checksum}".encode()).hexdigest()[:16]
    return cache.folder / "artifacts" / key / local_name(place)


def local_name(place: Place) -> str:
    return short_name(PurePosixPath(place.path).name) or "artifact"


def _fetch(place: Place, cache: Cache, manifest: Manifest, reporter: Reporter) -> None:
    missing = {
        record.sha256: (name, record)
        for name, record in manifest.files.items()
        if cache.find(record.sha256, record.bytes) is None
    }
    if not missing:
        return
    needed = sum(record.bytes for _, record in missing.values())
    cache.make_room(needed, {each.sha256 for each in manifest.files.values()}, str(place))
    reporter.stage(f"fetching {place}", needed, "bytes")

    def one(entry: Entry) -> None:
        name, record = entry
        cache.add(record.sha256, lambda path: place.fetch(name, record, path, reporter.advance))

    at_a_time(AT_A_TIME, one, missing.values())


def at_a_time(workers: int, work: Callable[[Entry], None], entries: Iterable[Entry]) -> None:
    """`work` on each, on `workers` threads; after the first error no more are begun."""
    pool = ThreadPoolExecutor(workers)
    try:
        for done in [pool.submit(work, entry) for entry in entries]:
            done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _lay_out(place: Place, cache: Cache, folder: Path, raw: bytes, manifest: Manifest) -> None:
    """The folder: links to blobs, the manifest last; card and recipe where the URL has them."""
    link_blobs(cache, folder, manifest)
    if (folder / NAME).exists():
        return
    for name in (CARD, RECIPE):
        text = place.read(name, MOST_TEXT)
        if text is not None:
            write_whole(folder / name, text)
    write_whole(folder / NAME, raw)


def link_blobs(cache: Cache, folder: Path, manifest: Manifest) -> None:
    """Each file's name in `folder` stands for its blob."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, record in manifest.files.items():
        blob = Path(os.path.relpath(cache.blob(record.sha256), folder))
        if not (folder / name).is_symlink() or (folder / name).readlink() != blob:
            temporary = _beside(folder / name)
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(blob)
            temporary.replace(folder / name)


def write_whole(path: Path, raw: bytes) -> None:
    temporary = _beside(path)
    temporary.write_bytes(raw)
    temporary.replace(path)


def _beside(path: Path) -> Path:
    """A name of this thread's own."""
    return path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
