"""Names of GGUF files: a path, a file of a Hub repository, or a short name that a package
brings."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from ngramkit.errors import InputError, UsageError, hub_errors
from ngramkit.models import is_gguf, packaged

HUB = re.compile(r"hf:([\w.-]+/[\w.-]+?)(?:@([\w./-]+))?:([^:]+\.gguf)", re.IGNORECASE)


def find_gguf(name: str, revision: str | None = None) -> Path | None:
    """Return the GGUF file, fetched where the Hub's cache lacks it; None for other models' names.

    A short name at a revision means the Hub. Raises UsageError for an hf: name without a file, and
    for a revision of a local file; InputError where there is no such file, NetworkError without a
    network.
    """
    if not is_gguf(name) or (revision is not None and packaged(name) is not None):
        return None
    if not name.lower().startswith("hf:"):
        if revision is not None:
            raise UsageError(f"{name} is a file: it has no revisions", option="revision")
        path = packaged(name) or Path(name).expanduser()
        if not path.is_file():
            raise InputError(f"there is no file {path}", "check the path")
        return path
    match = HUB.fullmatch(name)
    if match is None:
        raise UsageError(
            f"{name} names no file of the Hub", "hf:OWNER/NAME:FILE.gguf", option="model"
        )
    repository, at, file = match.groups()
    if revision not in (None, at) and at is not None:
        raise UsageError(f"{name} is asked for at {revision}", "name one revision", option="model")
    from huggingface_hub import hf_hub_download

    with hub_errors(repository, "model"):
        return Path(hf_hub_download(repository, file, revision=at or revision))


def require_package(what: str) -> None:
    """Raise InputError where the package `what`, which reads GGUF's weights, is not installed."""
    if importlib.util.find_spec(what) is None:
        raise InputError(
            f"the weights of a GGUF file are read by the package {what}, which is not installed",
            "pip install 'ngramkit[gguf]'",
        )
