"""Creation of a drafter by its name, from artifacts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from ngramkit.basics.arguments import check_type
from ngramkit.basics.errors import ArtifactError, UsageError
from ngramkit.basics.kinds import KIND_OF_ROLE, TABLES, a_kind
from ngramkit.drafters.registry import DRAFTERS, drafter_entry
from ngramkit.drafters.sources import Given, Sources, given_sources
from ngramkit.drafters.spec import DrafterSpec
from ngramkit.formats.tokenizer_record import record_of

if TYPE_CHECKING:
    from ngramkit.drafters.base import Drafter
    from ngramkit.drafters.past_requests import PastRequests
    from ngramkit.formats.artifact import Artifact
    from ngramkit.formats.tokenizer_record import TokenizerRecord


def load_drafter(
    name: str,
    artifacts: Sources | Sequence[Given] | Given = (),
    *,
    datastores: Sequence[Artifact | str | Path] = (),
    frozen_table: Artifact | str | Path | None = None,
    bigram: Artifact | str | Path | None = None,
    unigram: Artifact | str | Path | None = None,
    past: PastRequests | None = None,
    tokenizer: TokenizerRecord | None = None,
    **options: Any,
) -> Drafter:
    """Create a drafter from opened artifacts or their paths, given in any order or by role.

    `name` may hold options, as `rest:max_match=8`; `options` are those of `drafters(name)`. `past`:
    past requests for ssd and blend, which finished requests join. `tokenizer`: for blend without
    artifacts; artifacts must have it. Unused sources are ignored.

    Raises TypeError for an unknown option, UsageError for an unknown name, a value out of bounds or
    a missing source, ArtifactError for an unreadable artifact, a wrong kind or different
    tokenizers.
    """
    check_type("name", name, [str])
    if past is not None and not hasattr(past, "refresh"):
        raise UsageError(
            f"past must be PastRequests, got {past!r:.60}",
            "Open them with PastUse(path).open(tokenizer).",
            option="past",
        )
    tokenizer = None if tokenizer is None else record_of(tokenizer)
    if ":" in name:
        spec = DrafterSpec.parse(name)
        name, options = spec.name, {**spec.options, **options}
    entry = drafter_entry(name)
    takes = [option.name for option in entry.options.listed()]
    for option in options:
        if option not in takes:
            known = f"{name} has the options {', '.join(takes)}" if takes else f"{name} has none"
            raise TypeError(
                f"load_drafter() got an unexpected keyword argument {option!r}; {known}"
            )
    sources = given_sources(
        artifacts, datastores=datastores, frozen_table=frozen_table, bigram=bigram, unigram=unigram
    )
    opened: dict[str, Any] = {
        "datastores": [_open_artifact(datastore) for datastore in sources.datastores],
        **{
            role: None if getattr(sources, role) is None else _open_artifact(getattr(sources, role))
            for role in TABLES
        },
        "past": past,
        "tokenizer": tokenizer,
    }
    require_sources(name, opened)
    _check_artifacts({role: opened[role] for role in entry.artifacts}, tokenizer)
    return make_drafter(DrafterSpec(name, options), opened)


def make_drafter(spec: DrafterSpec, sources: Mapping[str, Any]) -> Drafter:
    entry = DRAFTERS[spec.name]
    given = {name: sources[name] for name in entry.sources if name in sources}
    if spec.options:
        given["options"] = entry.options(**spec.options)
    drafter: Drafter = resolve_name(entry.home)(**given)
    return drafter


def require_sources(name: str, given: Mapping[str, Any], past: str = "past") -> None:
    """Raise UsageError if `given` lacks a required source; `past` is its key for past requests."""
    entry = drafter_entry(name)
    for source in entry.sources if entry.required else ():
        word = past if source == "past" else source
        if not given.get(word):
            need = f"a {KIND_OF_ROLE[source]}" if source in KIND_OF_ROLE else "past requests"
            raise UsageError(f"cannot use {name}: it needs {need}", f"Give {word}.", option=word)


def _open_artifact(artifact: Artifact | str | Path) -> Any:
    from ngramkit.formats.artifact import Artifact
    from ngramkit.formats.opening import open_artifact_folder

    if isinstance(artifact, Artifact):
        return artifact
    if not isinstance(artifact, str | Path):
        raise UsageError(f"an artifact must be a path or an opened artifact, got {artifact!r:.60}")
    return open_artifact_folder(artifact)


def _check_artifacts(by_role: Mapping[str, Any], tokenizer: TokenizerRecord | None) -> None:
    from ngramkit.formats.artifact import require_one_tokenizer

    artifacts: list[Artifact] = []
    for role, value in by_role.items():
        of_role = value if isinstance(value, list) else [value] if value else []
        for artifact in of_role:
            require_kind(artifact.where, artifact.kind, role)
        artifacts += of_role
    require_one_tokenizer(artifacts)
    if tokenizer is not None:
        for artifact in artifacts:
            artifact.tokenizer.require(tokenizer, str(artifact.where))


def require_kind(where: object, kind: str, role: str) -> None:
    """Raise ArtifactError unless `kind` is the role's."""
    if kind != KIND_OF_ROLE[role]:
        raise ArtifactError(
            f"{where} must be a {KIND_OF_ROLE[role]}, got {a_kind(kind)}", "Check the path."
        )
