"""An artifact by whatever it is called: a folder, hf://USER/NAME[@REVISION], or a URL.

What is not on this machine is fetched and proven whole before it is opened, see
ngramkit.remote.pull and ngramkit.remote.staging.
"""

from __future__ import annotations

from pathlib import Path

from ngramkit.formats import kinds
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.outputs import ARTIFACTS, short_name
from ngramkit.progress import SILENT, Reporter
from ngramkit.remote import pull
from ngramkit.remote.pull import Fetched
from ngramkit.remote.urls import as_path, as_url, shown


def fetch(source: str | Path, *, reporter: Reporter = SILENT) -> Fetched:
    """Its folder: `source` itself, or one in the Hub's cache or in ours.

    Raises as `ngramkit.remote.pull.fetch` and `ngramkit.remote.staging.stage`.
    """
    url = as_url(source)
    if url is not None:
        from ngramkit.remote.staging import stage  # its own imports cost a local start a tenth

        folder, manifest = stage(url, reporter=reporter)
        return Fetched(folder, manifest.checksum)
    if pull.is_remote(source):
        return pull.fetch(source, reporter=reporter)
    return Fetched(as_path(source))


def open_fetched(source: str | Path, *, reporter: Reporter = SILENT) -> tuple[Artifact, Fetched]:
    """The artifact, of its own class, and where it came from. Raises as `fetch` and
    `kinds.open_artifact`."""
    fetched, url = fetch(source, reporter=reporter), as_url(source)
    artifact = kinds.open_artifact(fetched.path)
    artifact.origin = None if url is None else shown(url)  # without what is secret of it
    return artifact, fetched


def called_after(source: str | Path | Artifact) -> Path:
    """What is made of an artifact is called after this path, where nobody says: its own folder's;
    of one that was fetched, its name in artifacts/."""
    if isinstance(source, Artifact):
        if source.origin is None:
            return source.path
        source = source.origin
    url = as_url(source)
    if url is not None:
        return ARTIFACTS / short_name(url)
    if pull.is_remote(source):
        return ARTIFACTS / pull.Source.parse(str(source)).repository.partition("/")[2]
    return as_path(source)
