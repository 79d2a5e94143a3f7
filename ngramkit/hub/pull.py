"""`pull`: an atomic, verified copy of an artifact on the Hub."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ngramkit.basics.arguments import check_types
from ngramkit.basics.errors import ArtifactError, UsageError, hub_errors
from ngramkit.basics.machine import expand_home
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import Reporter
from ngramkit.basics.results import Result
from ngramkit.basics.untrusted import owner_only
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.history import LOG, History, copied_log, copy_of, restore_history
from ngramkit.formats.manifest import MANIFEST_FILE, Manifest, read_manifest
from ngramkit.formats.opening import open_artifact_folder
from ngramkit.formats.outputs import ARTIFACTS, CARD, RECIPE
from ngramkit.formats.replacing import PRIVATE, Replacement, clear_killed_run, exists_error
from ngramkit.formats.safetensors import sha256_of
from ngramkit.remote.fetch import HubName, fetch_from_hub, fetch_manifest


@dataclass(frozen=True)
class Pulled(Result):
    """A copy of an artifact on the Hub; `revision` is its commit."""

    path: Path
    repository: str
    revision: str | None
    kind: str
    bytes: int
    counts: Mapping[str, int]

    def open(self) -> Artifact:
        return open_artifact_folder(self.path)


def pull(
    source: str,
    out: str | Path | None = None,
    *,
    reporter: Reporter = NOTEBOOK_BARS,
    force: bool = False,
) -> Pulled:
    """Download and verify USER/NAME[@REVISION] to `out` (default: artifacts/NAME).

    Does nothing if `out` already holds it. A history is parsed and rewritten, readable only by this
    user. Raises UsageError if `out` holds something else without `force`, foreign files or other
    requests; NetworkError if the Hub refuses or is unreachable; ArtifactError for a missing or
    damaged artifact.
    """
    check_types(bool, force=force)
    name = HubName.parse(source)
    out = expand_home(out) if out is not None else ARTIFACTS / name.repository.partition("/")[2]
    if out.exists() and not force:
        commit, manifest = _require_already_pulled(name, out, reporter)
    else:
        with Replacement(out, force=force) as new:
            folder, manifest = fetch_manifest(name)
            commit = folder.name
            if manifest.kind == History.kind:
                new.empty(PRIVATE)
                _fetch_history(name, commit, manifest, new.partial, reporter)
            else:
                new.empty(PRIVATE if manifest.private else 0o777)
                cached = fetch_from_hub(HubName(name.repository, commit), reporter=reporter)
                for file in _files_to_copy(cached):
                    shutil.copyfile((cached / file).resolve(), new.partial / file)
            new.put_in_place()
    counts = dict(manifest.counts)
    return Pulled(out, name.repository, commit, manifest.kind, manifest.bytes, counts)


def _require_already_pulled(name: HubName, out: Path, reporter: Reporter) -> tuple[str, Manifest]:
    """Return commit and manifest. Raises UsageError unless `out` holds exactly that."""
    try:
        local = read_manifest(out)
    except ArtifactError as error:
        raise exists_error(out) from error
    folder, manifest = fetch_manifest(name)
    if manifest.kind == History.kind:
        if local.kind != History.kind or copy_of(History.open(out))[0] != manifest:
            raise UsageError(
                f"cannot write {out}: it holds other requests",
                "Choose another out, and join the two: ngramkit history merge",
                option="out",
            )
    elif local != manifest:
        raise exists_error(out)
    else:
        cached = fetch_from_hub(name, reporter=reporter)
        for file in _files_to_copy(cached):
            there = out / file
            if not there.is_file() or sha256_of(there) != sha256_of(cached / file):
                raise exists_error(out)
    clear_killed_run(out)
    reporter.note(f"{out} is up to date")
    return folder.name, manifest


def _fetch_history(
    name: HubName, commit: str, manifest: Manifest, folder: Path, reporter: Reporter
) -> None:
    """Bypass the Hub's cache, which others may read and `history forget` does not clear."""
    from huggingface_hub import HfFileSystem, constants

    record = copied_log(name, manifest)
    reporter.stage(f"fetching {name.repository}", record.bytes, "bytes")
    with hub_errors(name.repository):
        hub = HfFileSystem(endpoint=constants.ENDPOINT, skip_instance_cache=True)
        there, remote = False, f"datasets/{name.repository}@{commit}/{LOG}"
        with suppress(FileNotFoundError):
            there = hub.info(remote)["size"] == record.bytes
        if not there:
            raise ArtifactError(
                f"cannot download {name.repository}: it lists {LOG} but does not hold it",
                "Report it to its owner, or give an earlier @REVISION.",
            )
        with open(folder / LOG, "wb", opener=owner_only) as file:
            hub.get_file(remote, outfile=file)
    reporter.advance(record.bytes)
    restore_history(folder, manifest)


def _files_to_copy(folder: Path) -> list[str]:
    texts = [name for name in (CARD, RECIPE) if (folder / name).exists()]
    return [*read_manifest(folder).files, MANIFEST_FILE, *texts]
