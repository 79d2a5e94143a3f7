"""An artifact on the Hub to a folder: all of it, proven, in place of what was there; or nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

from ngramkit.errors import ArtifactError
from ngramkit.formats.container import sha256_of
from ngramkit.formats.manifest import NAME, read_manifest
from ngramkit.formats.outputs import CARD, RECIPE
from ngramkit.formats.replacing import Replacement, exists, tidy
from ngramkit.hub import Fetched, Source, fetch, manifest_of, quiet
from ngramkit.hub_errors import hub_errors
from ngramkit.progress import SILENT, Reporter


def pull(source: str, out: Path, *, reporter: Reporter = SILENT, force: bool = False) -> Fetched:
    """Copies a fetched artifact to `out`; nothing is done where exactly that is there already.

    Raises UsageError where `out` holds something else and `force` is off, or something that is not
    ours, else as `fetch`.
    """
    wanted = Source.parse(source)
    if out.exists() and not force:
        return _pulled_before(wanted, out, reporter)
    with Replacement(out, force=force) as new:
        new.empty()
        fetched = fetch(f"hf://{wanted}", reporter=reporter)
        for name in _names(fetched.path):
            shutil.copyfile((fetched.path / name).resolve(), new.partial / name)
        new.put_in_place()
    return Fetched(out, fetched.commit)


def _pulled_before(wanted: Source, out: Path, reporter: Reporter) -> Fetched:
    """Raises UsageError unless `out` holds the very bytes of what is `wanted`."""
    try:
        here = read_manifest(out)
    except ArtifactError as error:
        raise exists(out) from error
    quiet()
    with hub_errors(wanted.repository):
        there = manifest_of(wanted)[1]
    if here != there:
        raise exists(out)
    fetched = fetch(f"hf://{wanted}", reporter=reporter)
    for name in _names(fetched.path):
        if not (out / name).is_file() or sha256_of(out / name) != sha256_of(fetched.path / name):
            raise exists(out)
    tidy(out)
    reporter.note(f"{out} is up to date")
    return Fetched(out, fetched.commit)


def _names(folder: Path) -> list[str]:
    """The files of a fetched artifact, the manifest and what there is of card and recipe."""
    return [
        *read_manifest(folder).files,
        NAME,
        *(n for n in (CARD, RECIPE) if (folder / n).exists()),
    ]
