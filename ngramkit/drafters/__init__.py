"""Artifacts and the live context in, draft trees out.

`load_drafter` makes one by name. Drafters know token ids only: no text, no model, no tensors.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngramkit.errors import ArtifactError, UsageError

if TYPE_CHECKING:
    from ngramkit.drafters.base import Drafter
    from ngramkit.formats.artifact import Artifact


@dataclass(frozen=True)
class Entry:
    """Where a drafter's class is, and which of `load_drafter`'s artifacts it is called with."""

    home: str
    class_name: str
    artifacts: tuple[str, ...] = ()
    required: bool = True  # False: it drafts without them too, from the context
    learns: tuple[str, ...] = ()  # from finished requests, with these parameters


LEARNING = ("tokenizer", "history_tokens", "remember", "read_only", "background")
SOURCES = ("datastores", "frozen_table", "bigram", "history")

DRAFTERS = {
    "none": Entry("ngramkit.drafters.none", "NoDraft"),
    "rest": Entry("ngramkit.drafters.rest", "Rest", ("datastores",)),
    "cacheback": Entry(
        "ngramkit.drafters.cacheback", "Cacheback", ("frozen_table",), required=False
    ),
    "bigram": Entry("ngramkit.drafters.bigram", "Bigram", ("bigram",)),
    "unigram": Entry("ngramkit.drafters.unigram", "Unigram", ("unigram",)),
    "ngrammys": Entry("ngramkit.drafters.ngrammys", "Ngrammys", ("bigram",)),
    "blend": Entry("ngramkit.drafters.blend", "Blend", SOURCES, required=False, learns=LEARNING),
    "context": Entry("ngramkit.drafters.context", "Context"),
    "prompt-lookup": Entry("ngramkit.drafters.context", "PromptLookup"),
    "ssd": Entry(
        "ngramkit.drafters.ssd",
        "Ssd",
        ("history",),
        required=False,
        learns=(*LEARNING, "least_score"),
    ),
}


# What `load_drafter` calls an artifact -> its kind.
KINDS = {
    "datastores": "datastore",
    "frozen_table": "frozen-table",
    "bigram": "model-bigram",
    "unigram": "model-unigram",
    "history": "history",
}


def drafter_entry(name: str) -> Entry:
    """Raises UsageError, with the nearest name, where no drafter is called that."""
    if name in DRAFTERS:
        return DRAFTERS[name]
    near = difflib.get_close_matches(name, DRAFTERS, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    raise UsageError(f"no drafter is called {name!r}", f"{meant}There are: {', '.join(DRAFTERS)}")


def load_drafter(
    name: str,
    *,
    datastores: Sequence[Artifact | str | Path] = (),
    frozen_table: Artifact | str | Path | None = None,
    bigram: Artifact | str | Path | None = None,
    unigram: Artifact | str | Path | None = None,
    history: Artifact | str | Path | None = None,
    **parameters: Any,
) -> Drafter:
    """The drafter called `name`, over opened artifacts or their paths.

    `parameters` are those of the drafter's class. Artifacts that it has no use for are left
    alone. Raises UsageError for an unknown name or a missing artifact, ArtifactError where an
    artifact cannot be opened, is of another kind, or two are of different tokenizers.
    """
    entry = drafter_entry(name)
    given = {
        "datastores": [_opened(datastore) for datastore in datastores],
        "frozen_table": _opened(frozen_table),
        "bigram": _opened(bigram),
        "unigram": _opened(unigram),
        "history": _opened(history),
    }
    used = {artifact: given[artifact] for artifact in entry.artifacts}
    for artifact, value in used.items():
        if not value and entry.required:
            raise UsageError(
                f"the drafter {name} needs a {KINDS[artifact]}",
                f"build one, or give {artifact}",
                option=artifact,
            )
        _require_kind(value, KINDS[artifact])
    _require_one_tokenizer(used)
    factory = getattr(importlib.import_module(entry.home), entry.class_name)
    drafter: Drafter = factory(*used.values(), **parameters)
    return drafter


def _opened(artifact: Artifact | str | Path | None) -> Any:
    from ngramkit.formats.kinds import open_artifact

    return open_artifact(artifact) if isinstance(artifact, str | Path) else artifact


def _require_kind(value: Any, kind: str) -> None:
    artifacts: list[Artifact] = value if isinstance(value, list) else [value] if value else []
    for artifact in artifacts:
        if artifact.kind != kind:
            raise ArtifactError(
                f"{artifact.path} is a {artifact.kind}, not a {kind}", "check the path"
            )


def _require_one_tokenizer(used: dict[str, Any]) -> None:
    from ngramkit.formats.artifact import require_one_tokenizer

    artifacts: list[Artifact] = []
    for value in used.values():
        artifacts += value if isinstance(value, list) else [value] if value else []
    require_one_tokenizer(artifacts)
