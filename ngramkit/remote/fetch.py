"""An artifact by whatever it is called: a folder, hf://USER/NAME[@REVISION], or a URL.

An artifact that is not on this machine is fetched and proven whole before it is opened, see
ngramkit.remote.hub and ngramkit.remote.staging.
"""

from __future__ import annotations

from pathlib import Path

from ngramkit.formats import kinds
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.outputs import ARTIFACTS, short_name
from ngramkit.progress import SILENT, Reporter
from ngramkit.remote.hub import Fetched, HubName, fetch_from_hub, is_hub_name
from ngramkit.remote.urls import as_path, as_url, shown


def fetch(source: str | Path, *, reporter: Reporter = SILENT) -> Fetched:
    """Return the artifact's folder: `source` itself, or one in the Hub's cache or in ours.

    Raises as `fetch_from_hub` and `ngramkit.remote.staging.stage`.
    """
    url = as_url(source)
    if url is not None:
        from ngramkit.remote.staging import stage  # its own imports cost a local start a tenth

        folder, manifest = stage(url, reporter=reporter)
        return Fetched(folder, manifest.checksum)
    if is_hub_name(source):
        return fetch_from_hub(HubName.parse(str(source)), reporter=reporter)
    return Fetched(as_path(source))


def open_fetched(source: str | Path | Artifact, *, reporter: Reporter = SILENT) -> Artifact:
    """Open an artifact, fetched first where it is remote; return one that is open as it is.

    Raises as `fetch` and `kinds.open_artifact`.
    """
    if isinstance(source, Artifact):
        return source
    artifact, url = kinds.open_artifact(fetch(source, reporter=reporter).path), as_url(source)
    if url is not None:
        artifact.origin = shown(url)  # without what is secret of it
    elif is_hub_name(source):
        artifact.origin = str(source)
    return artifact


def default_output(source: str | Path | Artifact) -> Path:
    """Return the path after which a result made of an artifact is named by default.

    That is the artifact's own folder; of one that was fetched, its name in artifacts/.
    """
    if isinstance(source, Artifact):
        if source.origin is None:
            return source.path
        source = source.origin
    url = as_url(source)
    if url is not None:
        return ARTIFACTS / short_name(url)
    if is_hub_name(source):
        return ARTIFACTS / HubName.parse(str(source)).repository.partition("/")[2]
    return as_path(source)
