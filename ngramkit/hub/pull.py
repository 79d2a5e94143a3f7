"""A copy of an artifact on the Hub, all of it or nothing."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ngramkit.errors import ArtifactError
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.container import sha256_of
from ngramkit.formats.kinds import open_artifact
from ngramkit.formats.manifest import NAME, read_manifest
from ngramkit.formats.outputs import ARTIFACTS, CARD, RECIPE
from ngramkit.formats.replacing import Replacement, exists, tidy
from ngramkit.progress import SILENT, Reporter
from ngramkit.public import public
from ngramkit.remote.hub import HubName, fetch_from_hub, fetch_manifest
from ngramkit.results import Result


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
        """Open the copy."""
        return open_artifact(self.path)


@public
def pull(
    source: str,
    out: str | Path | None = None,
    *,
    reporter: Reporter = SILENT,
    force: bool = False,
) -> Pulled:
    """Download USER/NAME[@REVISION] to `out` (default: artifacts/NAME), proven before it is there.

    Nothing is done where `out` is exactly that already. Raises UsageError where `out` holds
    something else and `force` is off, or something that ngramkit did not write, else as
    `ngramkit.remote.hub.fetch_from_hub`.
    """
    name = HubName.parse(source)
    out = Path(out) if out is not None else ARTIFACTS / name.repository.partition("/")[2]
    if out.exists() and not force:
        commit = _require_pulled(name, out, reporter)
    else:
        with Replacement(out, force=force) as new:
            new.empty()
            fetched = fetch_from_hub(name, reporter=reporter)
            for file in _file_names(fetched.path):
                shutil.copyfile((fetched.path / file).resolve(), new.partial / file)
            new.put_in_place()
        commit = fetched.commit
    manifest = read_manifest(out)
    counts = dict(manifest.counts)
    return Pulled(out, name.repository, commit, manifest.kind, manifest.bytes, counts)


def _require_pulled(name: HubName, out: Path, reporter: Reporter) -> str | None:
    """Return the commit of the artifact called `name`. Raises UsageError unless `out` holds the
    very bytes of it."""
    try:
        local = read_manifest(out)
    except ArtifactError as error:
        raise exists(out) from error
    if local != fetch_manifest(name)[1]:
        raise exists(out)
    fetched = fetch_from_hub(name, reporter=reporter)
    for file in _file_names(fetched.path):
        if not (out / file).is_file() or sha256_of(out / file) != sha256_of(fetched.path / file):
            raise exists(out)
    tidy(out)
    reporter.note(f"{out} is up to date")
    return fetched.commit


def _file_names(folder: Path) -> list[str]:
    """Return the names of an artifact's files: manifest, card and recipe where they exist, too."""
    texts = [name for name in (CARD, RECIPE) if (folder / name).exists()]
    return [*read_manifest(folder).files, NAME, *texts]
