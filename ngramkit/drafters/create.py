"""Creation of a drafter by its name, from artifacts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from ngramkit.basics.arguments import check_type
from ngramkit.basics.errors import UsageError, WrongKindError
from ngramkit.basics.kinds import KIND_OF_ROLE, a_kind
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.drafters.registry import DRAFTERS, drafter_entry
from ngramkit.drafters.sources import Given, Sources, given_sources
from ngramkit.drafters.spec import DrafterSpec
from ngramkit.formats.artifact import Artifact, require_one_tokenizer
from ngramkit.formats.tokenizer_record import TokenizerRecord, record_of

if TYPE_CHECKING:
    from ngramkit.drafters.base import Drafter
    from ngramkit.drafters.past_requests import PastRequests


def load_drafter(
    name: str,
    artifacts: Sources | Sequence[Given] | Given = (),
    *,
    datastores: Sequence[Given] = (),
    frozen_table: Given | None = None,
    bigram: Given | None = None,
    unigram: Given | None = None,
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
    require_sources(name, {**vars(sources), "past": past, "tokenizer": tokenizer})
    by_role = open_given(sources, entry.artifacts)
    opened = [artifact for several in by_role.values() for artifact in several]
    require_one_tokenizer(opened)
    if tokenizer is not None:
        for artifact in opened:
            artifact.tokenizer.require(tokenizer, artifact.where)
    return make_drafter(DrafterSpec(name, options), by_role, past, tokenizer)


def open_given(
    sources: Sources, roles: Iterable[str], reporter: Reporter = SILENT
) -> dict[str, list[Artifact]]:
    """Open the artifacts of these roles.

    Raises ArtifactError for a missing one or a wrong kind, UsageError for one given twice.
    """
    from ngramkit.remote.fetch import fetch_artifact

    by_role: dict[str, list[Artifact]] = {}
    for role in roles:
        given = getattr(sources, role)
        for source in given if role == "datastores" else () if given is None else (given,):
            artifact = fetch_artifact(source, reporter=reporter)
            require_kind(artifact.where, artifact.kind, role)
            opened = by_role.setdefault(role, [])
            if artifact.manifest in [each.manifest for each in opened]:
                raise UsageError(
                    f"{role} must differ, got {artifact.where} twice", "Name it once.", option=role
                )
            opened.append(artifact)
    return by_role


def make_drafter(
    spec: DrafterSpec,
    artifacts: Mapping[str, Sequence[Artifact]],
    past: PastRequests | None,
    tokenizer: TokenizerRecord | None,
) -> Drafter:
    """Create a drafter from opened artifacts by role."""
    entry = DRAFTERS[spec.name]
    sources: dict[str, Any] = {"past": past, "tokenizer": tokenizer}
    sources |= {role: each if role == "datastores" else each[0] for role, each in artifacts.items()}
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


def require_kind(where: object, kind: str, role: str) -> None:
    """Raise WrongKindError unless `kind` is the role's."""
    if kind != KIND_OF_ROLE[role]:
        raise WrongKindError(
            f"{where} must be a {KIND_OF_ROLE[role]}, got {a_kind(kind)}", "Check the path."
        )
