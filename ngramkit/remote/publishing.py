"""Building artifacts to a URL: `out="s3://bucket/x"`.

The artifact is built in a work folder of the cache, where a killed build resumes, and uploaded with
the manifest last. If two processes write different artifacts, the last to finish raises an error.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

from ngramkit.basics.arguments import check_types
from ngramkit.basics.errors import ArtifactError, InputError, NgramkitError, UsageError
from ngramkit.basics.machine import Lock
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.terminal_text import visible
from ngramkit.basics.untrusted import read_json
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.manifest import MANIFEST_FILE, Manifest, build_id, read_manifest
from ngramkit.formats.opening import open_artifact_folder
from ngramkit.formats.outputs import (
    CARD,
    RECIPE,
    WRITTEN,
    entries_with_our_names,
    output_refusal,
    remove_entries,
)
from ngramkit.formats.proofs import write_proof_of_own_files
from ngramkit.formats.replacing import exists_error, hold_lock, replace_text, require_place
from ngramkit.formats.resumable_writer import Build, Made
from ngramkit.remote.url_cache import (  # fmt: skip
    Cache,
    Entry,
    find_remote_manifest,
    link_blobs,
    local_name,
    stage_artifact,
    staged_folder,
    upload_texts,
    write_atomically,
)
from ngramkit.remote.urls import UrlFolder, as_path, as_url, require_whole_writes

UPLOADS_FILE = "uploads.json"  # lists the uploaded files, next to the work folder


def require_out(out: str | Path | None, kind: str | None = None, *, force: bool = False) -> None:
    """Raise early what `build_at` would raise about `out` for an artifact of `kind`."""
    check_types(Path, out=out)
    check_types(bool, force=force)
    if _require_atomic_url(out) is None and out is not None:
        require_place(as_path(out), kind, force=force)


def _require_atomic_url(out: str | Path | None) -> str | None:
    """Return a URL whose storage writes files atomically, else raise UsageError; None for paths."""
    url = None if out is None else as_url(out)
    if url is not None or re.match(r"hf:/", str(out), re.IGNORECASE):
        require_whole_writes(url or str(out))
    return url


def manifest_at(place: str | Path) -> Manifest | None:
    """Return the manifest at a path or a URL, None without one or if it is damaged."""
    url = as_url(place)
    with suppress(ArtifactError):
        if url is None:
            return read_manifest(as_path(place))
        found = find_remote_manifest(UrlFolder.at(url, "out"))
        return None if found is None else found[1]
    return None


def require_same_or_force(
    place: str | Path, kind: str, is_same: Callable[[Manifest], bool], *, force: bool
) -> None:
    """Raise early what `build_at` would raise about `place`.

    `is_same` returns False for an artifact of `kind` that the build would replace.
    """
    require_out(place, kind, force=force)
    manifest = None if force else manifest_at(place)
    if manifest is not None and not is_same(manifest):
        raise exists_error(place)


def build_at(
    build: Build[Made], out: str | Path, *, reporter: Reporter = SILENT, force: bool = False
) -> Made:
    """Open the artifact at `out`, a path or a URL, or build it there.

    An artifact of the same plan is kept, another replaced only with `force`. Raises as `Build.at`;
    UsageError if the storage is not writable or holds another artifact, NetworkError if it refuses.
    """
    url = _require_atomic_url(out)
    if url is None:
        return build.at(as_path(out), reporter=reporter, force=force)
    place, cache, work = UrlFolder.at(url, "out"), Cache.chosen(), folder_to_build_in(out)
    done = work.with_name("published")
    with hold_lock(work.parent / "lock", busy=f"another process is building {place}"):
        if done.exists():  # left by a process killed while moving it to the cache
            remove_entries(entries_with_our_names(done))
        if work.exists() and not any(work.glob("*.safetensors")):  # as 0.2.0 left it after a kill
            remove_entries(entries_with_our_names(work))
        folder = None
        remote = None if work.exists() else _manifest_to_replace(place)
        if remote is not None and remote.build in map(build_id, build.plans):
            folder = _stage_unless_damaged(place, remote, force, reporter)
        elif remote is not None and not force:
            raise exists_error(place)
        if folder is None:
            with _errors_relabelled(work, str(place)):
                made = build.at(work, name=str(place), reporter=reporter, force=force)
                _publish_artifact(place, made, force, reporter)
                folder = _move_to_cache(place, cache, made, done, reporter)
        opened = open_artifact_folder(folder)
    opened.origin = str(place)
    return cast("Made", opened)


def _manifest_to_replace(place: UrlFolder) -> Manifest | None:
    try:
        found = find_remote_manifest(place)
    except ArtifactError as error:  # as for a folder
        raise output_refusal(
            f"cannot replace {place}: ngramkit did not write it ({error})"
        ) from error
    return None if found is None else found[1]


def _stage_unless_damaged(
    place: UrlFolder, manifest: Manifest, force: bool, reporter: Reporter
) -> Path | None:
    """Return the local folder of the artifact there; with `force`, None if it is damaged."""
    try:
        place.require_listed(manifest.files)  # a cached copy may be whole
        folder = stage_artifact(place.url, reporter=reporter)
    except ArtifactError as error:
        if not force:
            error.hint = "Wait if another process is writing there, or replace it with force=True."
            error.option = ("force",)
            raise
        reporter.note(f"building {place} again: {error}")
        return None
    reporter.note(f"{place} is up to date")
    return folder


def folder_to_build_in(out: str | Path) -> Path:
    """Return the path `out`, or the work folder of a URL."""
    url = as_url(out)
    if url is None:
        return as_path(out)
    place = UrlFolder.at(url, "out")
    key = hashlib.sha256(place.url.encode()).hexdigest()[:16]
    work = Cache.chosen().folder / "work" / key / local_name(place)
    work.parent.mkdir(exist_ok=True)
    return work


def _publish_artifact(place: UrlFolder, made: Artifact, force: bool, reporter: Reporter) -> None:
    """Upload missing files, then the manifest; another artifact's manifest is deleted first."""
    manifest, work = made.manifest, made.path
    remote = _manifest_to_replace(place)
    other = remote is not None and remote != manifest
    if other and not force:
        raise exists_error(place)
    uploads, contents = _Uploads(work.with_name(UPLOADS_FILE), manifest), place.contents()
    if remote is None:
        _require_no_foreign_files(place, contents)
    missing = [entry for entry in manifest.files.items() if not uploads.arrived(entry[0], contents)]
    if remote is not None and not other and not missing:
        upload_texts(place, work, CARD, RECIPE)
        return
    if other:
        place.remove(MANIFEST_FILE)
    if manifest.private:
        reporter.note(f"uploading private texts to {place}")
    reporter.stage(f"uploading {place}", sum(record.bytes for _, record in missing), "bytes")

    def upload(entry: Entry) -> None:
        uploads.add(entry[0], place.put(work / entry[0], entry[0]))
        reporter.advance(entry[1].bytes)

    with ThreadPoolExecutor(place.uploads) as pool:
        list(pool.map(upload, missing))  # stops at the first error
    upload_texts(place, work, CARD, RECIPE)
    place.put(work / MANIFEST_FILE, MANIFEST_FILE)
    _require_no_other_writer(place, manifest, uploads)
    if remote is not None:
        for name in remote.files.keys() - manifest.files.keys():
            place.remove(name)


def _require_no_other_writer(place: UrlFolder, manifest: Manifest, uploads: _Uploads) -> None:
    contents, remote = place.contents(), find_remote_manifest(place)
    whole = all(uploads.arrived(name, contents) for name in manifest.files)
    if not whole or remote is None or remote[1] != manifest:
        raise InputError(
            f"cannot write {place}: another process wrote there at the same time",
            "Run the same command again when it is done.",
        )


def _require_no_foreign_files(place: UrlFolder, contents: Mapping[str, str]) -> None:
    """Raise UsageError for files that no interrupted upload leaves."""
    begun = any(name.endswith(".safetensors") for name in contents)
    foreign = [name for name in contents if not (begun and WRITTEN.fullmatch(name))]
    if foreign:
        raise UsageError(
            f"cannot write {place}: it holds {visible(foreign[0], 80)}, which ngramkit did not "
            "write",
            "Choose another out.",
            option="out",
        )


class _Uploads:
    def __init__(self, file: Path, manifest: Manifest) -> None:
        self._file, self._checksum = file, manifest.checksum
        self._contents: dict[str, str] = {}
        self._writing = Lock()
        with suppress(OSError, ArtifactError, TypeError, AttributeError):
            body = read_json(file)
            if body.get("checksum") == self._checksum:
                self._contents = dict(body["files"])

    def arrived(self, name: str, contents: Mapping[str, str]) -> bool:
        return name in self._contents and self._contents[name] == contents.get(name)

    def add(self, name: str, content: str) -> None:
        with self._writing:
            self._contents[name] = content
            body = {"checksum": self._checksum, "files": self._contents}
            replace_text(self._file, json.dumps(body))


def _move_to_cache(
    place: UrlFolder, cache: Cache, made: Artifact, done: Path, reporter: Reporter
) -> Path:
    manifest, work = made.manifest, made.path
    try:
        missing = cache.evict_until_fits(manifest, str(place))
    except InputError as error:
        reporter.note(f"{error}: keeping a copy in {work}")
        return work
    work.rename(done)
    folder = staged_folder(cache, place, manifest)
    for name, record in missing:
        cache.adopt(record.sha256, done / name)
    link_blobs(cache, folder, manifest)
    for name in (CARD, RECIPE, MANIFEST_FILE):
        if (done / name).is_file():
            write_atomically(folder / name, (done / name).read_bytes())
    write_proof_of_own_files(folder, manifest)  # opening `made` has checked it
    remove_entries(entries_with_our_names(done))
    (work.with_name(UPLOADS_FILE)).unlink(missing_ok=True)
    return folder


@contextmanager
def _errors_relabelled(folder: Path, name: str) -> Iterator[None]:
    try:
        yield
    except NgramkitError as error:
        error.args = (str(error).replace(str(folder), name), *error.args[1:])
        error.hint = error.hint.replace(str(folder), name)
        raise
