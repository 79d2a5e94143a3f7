"""An artifact that is built on this machine and kept behind a URL: `out="s3://bucket/x"`.

It is built in a work folder of the cache (`remote.file_cache`), as any other: a build that was
killed goes on there. Then its files are uploaded, each there whole or not at all, and the manifest
last, so that before it there is no artifact. Two processes that write the same leave one whole
artifact; of two that write different ones at a time, the one that ends last notices. The files
become blobs of the cache.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar, cast

from ngramkit.basics.arguments import check_types
from ngramkit.basics.errors import ArtifactError, InputError, NgramkitError, UsageError
from ngramkit.basics.machine import Lock
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.terminal_text import visible
from ngramkit.basics.untrusted import read_json
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.manifest import NAME, Manifest
from ngramkit.formats.opening import open_folder
from ngramkit.formats.outputs import CARD, RECIPE, WRITTEN, ours_in, remove
from ngramkit.formats.proofs import vouch
from ngramkit.formats.replacing import locked, require_place
from ngramkit.formats.resumable_writer import write_text
from ngramkit.remote.file_cache import (  # fmt: skip
    Cache,
    Entry,
    fetch_texts,
    find_remote,
    link_blobs,
    local_name,
    put_texts,
    put_whole,
    stage,
    staged_folder,
)
from ngramkit.remote.urls import UrlFolder, as_path, as_url, require_whole_writes

Made = TypeVar("Made", bound=Artifact)
UPLOADS = "uploads.json"  # beside the work folder: the files that have arrived


def require_out(out: str | Path | None, kind: str | None = None, *, force: bool = False) -> None:
    """Raise now what `build_at` would raise of `out` after all the work for an artifact of `kind`;
    None is no place yet."""
    check_types(Path, out=out)
    check_types(bool, force=force)
    url = None if out is None else as_url(out)
    if url is not None or (out is not None and re.match(r"hf:/", str(out), re.IGNORECASE)):
        require_whole_writes(url or str(out))
    elif out is not None:
        require_place(as_path(out), kind, force=force)


def build_at(
    build: Callable[..., Made],
    out: str | Path | None,
    *,
    reporter: Reporter = SILENT,
    force: bool = False,
) -> Made:
    """Call `build(FOLDER, reporter=, force=)` so that its artifact ends up at `out`, a path or URL.

    For a path, FOLDER is `out`; None leaves the choice to `build`. For a URL it is a work folder of
    this machine. `build` keeps an artifact of the same plan that is there; with `force` it replaces
    anything else, which it refuses without. Raises what `build` raises, UsageError where the URL's
    storage cannot be written to or holds another artifact, NetworkError where it refuses.
    """
    url = None if out is None else as_url(out)
    if url is None:
        if re.match(r"hf:/", str(out), re.IGNORECASE):
            require_whole_writes(str(out))
        return build(None if out is None else as_path(out), reporter=reporter, force=force)
    require_whole_writes(url)
    place, cache = UrlFolder.at(url, "out"), Cache.chosen()
    key = hashlib.sha256(place.url.encode()).hexdigest()[:16]
    work = cache.folder / "work" / key / local_name(place)
    work.parent.mkdir(exist_ok=True)
    relabelled, done = _Relabelled(reporter, work, str(place)), work.with_name("published")
    with locked(work.parent / "lock", busy=f"another process is building {place}"):
        if done.exists():  # a process was killed while it moved that to the cache
            remove(ours_in(done))
        with _stand_in(place, work) as stood_in, _errors_relabelled(work, str(place)):
            try:
                made = build(work, reporter=relabelled, force=force)
            except ArtifactError:
                if not stood_in or not (work / NAME).exists():
                    raise
                # The manifest there is that of this very plan, and its files are not here.
                folder, _ = stage(place.url, reporter=reporter)
            else:
                _publish(place, made, force, relabelled)
                folder = _move_to_cache(place, cache, made, done, reporter)
        opened = open_folder(folder)
    opened.origin = str(place)
    return cast("Made", opened)


@contextmanager
def _stand_in(place: UrlFolder, work: Path) -> Iterator[bool]:
    """Put the manifest at the URL into the work folder, so that a builder sees what is there.

    Yields True where that was done; False where a build of this machine waits to be uploaded, or
    nothing is at the URL.
    """
    _clear_stand_in(work)  # of a process that was killed
    stands_in = not work.exists() and fetch_texts(place, work)
    try:
        yield stands_in
    finally:
        if stands_in:
            _clear_stand_in(work)


def _clear_stand_in(work: Path) -> None:
    if work.exists() and not any(work.glob("*.safetensors")):
        with suppress(OSError, UsageError):
            remove(ours_in(work))


def _publish(place: UrlFolder, made: Artifact, force: bool, reporter: Reporter) -> None:
    """Upload the files that are missing; another artifact's manifest is deleted first, and the new
    one comes last."""
    manifest, work = made.manifest, made.path
    remote = find_remote(place)
    other = remote is not None and remote[1] != manifest
    if other and not force:
        hint = "choose another out, or replace it with force=True"
        raise UsageError(f"{place} exists", hint, option=("out", "force"))
    uploads, contents = _Uploads(work.with_name(UPLOADS), manifest), place.contents()
    if remote is None:
        _require_ours_only(place, contents)
    missing = [entry for entry in manifest.files.items() if not uploads.arrived(entry[0], contents)]
    if remote is not None and not other and not missing:
        put_texts(place, work, CARD, RECIPE)
        return
    if other:
        place.remove(NAME)
    reporter.stage(f"uploading {place}", sum(record.bytes for _, record in missing), "bytes")

    def upload(entry: Entry) -> None:
        uploads.add(entry[0], place.put(work / entry[0], entry[0]))
        reporter.advance(entry[1].bytes)

    with ThreadPoolExecutor(place.uploads) as pool:
        list(pool.map(upload, missing))  # after the first error no more are begun
    put_texts(place, work, CARD, RECIPE)
    place.put(work / NAME, NAME)
    _require_ours(place, manifest, uploads)
    if remote is not None:
        for name in remote[1].files.keys() - manifest.files.keys():
            place.remove(name)


def _require_ours(place: UrlFolder, manifest: Manifest, uploads: _Uploads) -> None:
    """Raise InputError where another writer has replaced a file that was uploaded."""
    contents, remote = place.contents(), find_remote(place)
    whole = all(uploads.arrived(name, contents) for name in manifest.files)
    if not whole or remote is None or remote[1] != manifest:
        raise InputError(
            f"somebody else wrote to {place} at the same time",
            "run the same command again when they are done",
        )


def _require_ours_only(place: UrlFolder, contents: Mapping[str, str]) -> None:
    """Raise UsageError where a folder without a manifest holds files that no killed upload of an
    artifact leaves."""
    begun = any(name.endswith(".safetensors") for name in contents)
    foreign = [name for name in contents if not (begun and WRITTEN.fullmatch(name))]
    if foreign:
        raise UsageError(
            f"{place} holds {visible(foreign[0], 80)}, which ngramkit did not write",
            "choose another out",
            option="out",
        )


class _Uploads:
    """The files of the artifact `manifest` that have arrived, remembered in `file`.

    What `file` says of another artifact is ignored.
    """

    def __init__(self, file: Path, manifest: Manifest) -> None:
        self._file, self._checksum = file, manifest.checksum
        self._contents: dict[str, str] = {}
        self._writing = Lock()
        with suppress(OSError, ArtifactError, TypeError, AttributeError):
            body = read_json(file)
            if body.get("checksum") == self._checksum:
                self._contents = dict(body["files"])

    def arrived(self, name: str, contents: Mapping[str, str]) -> bool:
        """Return whether the storage lists the file as it did right after the upload."""
        return name in self._contents and self._contents[name] == contents.get(name)

    def add(self, name: str, content: str) -> None:
        with self._writing:
            self._contents[name] = content
            body = {"checksum": self._checksum, "files": self._contents}
            write_text(self._file, json.dumps(body))


def _move_to_cache(
    place: UrlFolder, cache: Cache, made: Artifact, done: Path, reporter: Reporter
) -> Path:
    """Make the files blobs of the cache; return the folder that `stage` would return.

    Where they do not fit, they stay where they are.
    """
    manifest, work = made.manifest, made.path
    contents = {record.sha256: (name, record.bytes) for name, record in manifest.files.items()}
    missing = {sha: each for sha, each in contents.items() if cache.find(sha, each[1]) is None}
    try:
        cache.make_room(sum(size for _, size in missing.values()), set(contents), str(place))
    except InputError as error:
        reporter.note(f"{error}: it stays in {work} as well")
        return work
    work.rename(done)
    folder = staged_folder(cache, place, manifest)
    for sha256, (name, _) in missing.items():
        cache.adopt(sha256, done / name)
    link_blobs(cache, folder, manifest)
    for name in (CARD, RECIPE, NAME):
        if (done / name).is_file():
            put_whole(folder / name, (done / name).read_bytes())
    vouch(folder, manifest)  # `made` was opened, so all of it has been checked
    remove(ours_in(done))
    (work.with_name(UPLOADS)).unlink(missing_ok=True)
    return folder


class _Relabelled(Reporter):
    """A reporter that calls the work folder by its URL, `name`."""

    def __init__(self, reporter: Reporter, folder: Path, name: str) -> None:
        self.reporter, self._folder, self._name = reporter, str(folder), name

    def stage(self, name: str, total: float | None = None, unit: str = "tokens") -> None:
        self.reporter.stage(name.replace(self._folder, self._name), total, unit)

    def advance(self, amount: float, **counts: float) -> None:
        self.reporter.advance(amount, **counts)

    def note(self, text: str) -> None:
        self.reporter.note(text.replace(self._folder, self._name))

    def fetched(self, source: str, commit: str) -> None:
        self.reporter.fetched(source, commit)


@contextmanager
def _errors_relabelled(folder: Path, name: str) -> Iterator[None]:
    """Call the work folder by its URL in errors, too."""
    try:
        yield
    except NgramkitError as error:
        error.args = (str(error).replace(str(folder), name), *error.args[1:])
        error.hint = error.hint.replace(str(folder), name)
        raise
