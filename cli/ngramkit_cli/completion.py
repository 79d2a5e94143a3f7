"""Shell completion: names of drafters, models, corpora, engines, formats and templates; artifacts.

Typer keeps the ones that begin with the typed text. Without a match, the shell completes files.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from pathlib import Path

Named = list[tuple[str, str]]  # (completion, description)


def drafters() -> Named:
    from ngramkit.drafters.registry import DRAFTERS

    return [(name, entry.looks_up) for name, entry in DRAFTERS.items()]


def engines() -> Named:
    from ngramkit.engines.config import ENGINES

    return [(name, engine.distribution) for name, engine in ENGINES.items()]


def corpora() -> Named:
    from ngramkit.corpus.open import NAMED

    return [(corpus.name, corpus.hub or "embedded") for corpus in NAMED.values()]


def log_formats() -> Named:
    from ngramkit.logs.read import FORMATS

    return [(name, each.title) for name, each in FORMATS.items()]


def templates() -> Named:
    from ngramkit.corpus.chat import KNOWN

    return [(name, "") for name in ("auto", "own", *KNOWN)]


def models(incomplete: str) -> Named:
    """Return the short names, and the models in the typed folder."""
    from ngramkit.basics.models import DEFAULT_MODEL, GGUF, HUB_IDS, describe_model

    folder = _typed_folder(incomplete)
    here = [
        (folder + path.name, "a model here")
        for path in sorted(Path(folder or ".").glob("*"))
        if path.suffix == GGUF or (path / "config.json").is_file()
    ]
    return [
        (name, describe_model(name)) for name in (DEFAULT_MODEL, *HUB_IDS)
    ] + _names_without_quotes(here)


def artifacts(*kinds: str) -> Callable[[str], Named]:
    """Return a completion of artifacts of `kinds`, in artifacts/ or the typed folder."""

    def complete(incomplete: str) -> Named:
        from ngramkit.formats.outputs import ARTIFACTS, artifacts_in

        return _names_without_quotes(
            (folder + found.path.name, found.manifest.kind)
            for folder in dict.fromkeys([f"{ARTIFACTS}/", _typed_folder(incomplete)])
            for found in artifacts_in(Path(folder or "."))
            if found.manifest is not None and (not kinds or found.manifest.kind in kinds)
        )

    return complete


def _typed_folder(incomplete: str) -> str:
    return incomplete[: incomplete.rfind("/") + 1]


def _names_without_quotes(names: Iterable[tuple[str, str]]) -> Named:
    """Return the names that a shell takes literally; a folder may be named `$(...)`."""
    return [(name, what) for name, what in names if shlex.quote(name) == name]
