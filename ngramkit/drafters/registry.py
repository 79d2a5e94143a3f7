"""The table of drafters, and the functions that create one by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from ngramkit.basics.arguments import check_type
from ngramkit.basics.errors import ArtifactError, UsageError, meant
from ngramkit.basics.kinds import KIND_OF_ROLE, TABLES, a_kind
from ngramkit.basics.results import Result, Rows
from ngramkit.drafters.base import BaseDrafter, DraftTree, Evidence, TokenArray
from ngramkit.drafters.options import OPTIONS, DrafterOption
from ngramkit.drafters.sources import Given, Sources, given_sources
from ngramkit.formats.tokenizer_record import record_of

if TYPE_CHECKING:
    from ngramkit.drafters.base import Drafter
    from ngramkit.drafters.past_requests import PastRequests
    from ngramkit.drafters.spec import DrafterSpec
    from ngramkit.formats.artifact import Artifact
    from ngramkit.formats.tokenizer_record import TokenizerRecord


@dataclass(frozen=True)
class Entry:
    home: str  # module:class
    looks_up: str
    sources: tuple[str, ...] = ()
    required: bool = True  # False: without its sources it drafts from the context
    references: bool = False  # it can draft from references, see drafters.references
    needs_evidence: bool = False  # without a model's Evidence it drafts little or nothing

    @property
    def artifacts(self) -> tuple[str, ...]:
        return tuple(source for source in self.sources if source in KIND_OF_ROLE)


DEFAULT_DRAFTER = "blend"
EVERYTHING = ("datastores", "frozen_table", "bigram", "past", "tokenizer")

DRAFTERS = {
    "none": Entry("ngramkit.drafters.registry:NoDraft", "Nothing: one token a pass."),
    "blend": Entry(
        "ngramkit.drafters.blend:Blend",
        "All sources, mixed to one calibrated probability: artifacts, the text so far, past "
        "requests, the model's top-k.",
        EVERYTHING,
        required=False,
        references=True,
    ),
    "rest": Entry(
        "ngramkit.drafters.rest:Rest",
        "The longest suffix of the context in a corpus, and what followed it, most frequent first "
        "(REST, arXiv:2311.08252).",
        ("datastores",),
    ),
    "cacheback": Entry(
        "ngramkit.drafters.cacheback:Cacheback",
        "What followed the last tokens most recently in this text, then most often in a corpus "
        "(Cacheback, arXiv:2511.21699).",
        ("frozen_table",),
        required=False,
    ),
    "ngrammys": Entry(
        "ngramkit.drafters.ngrammys:Ngrammys",
        "What followed the last tokens earlier in this text, then the model's own bigrams "
        "(N-Grammys, arXiv:2411.03786).",
        ("bigram",),
    ),
    "bigram": Entry(
        "ngramkit.drafters.ngrammys:Bigram",
        "The model's most likely tokens after the last token (part of N-Grammys).",
        ("bigram",),
    ),
    "unigram": Entry(
        "ngramkit.drafters.ngrammys:Unigram",
        "The tokens that the model's embeddings make likely anywhere (part of N-Grammys).",
        ("unigram",),
    ),
    "context": Entry(
        "ngramkit.drafters.context:Context",
        "What followed the last tokens earlier in this text, by count (part of N-Grammys).",
        references=True,
    ),
    "prompt-lookup": Entry(
        "ngramkit.drafters.context:PromptLookup",
        "The earliest match of the last tokens in this text, as one chain, as in transformers.",
        references=True,
    ),
    "recycling": Entry(
        "ngramkit.drafters.recycling:Recycling",
        "The model's top-k after each token when it was last verified, as a fixed tree "
        "(Token Recycling, arXiv:2408.08696).",
        needs_evidence=True,
    ),
    "automaton": Entry(
        "ngramkit.drafters.automaton:Automaton",
        "What followed the longest match in this text or a corpus, as one chain; recycling if "
        "there is no match (SAM-Decoding, arXiv:2411.10666).",
        ("datastores",),
        required=False,
        needs_evidence=True,
    ),
    "ssd": Entry(
        "ngramkit.drafters.ssd:Ssd",
        "What followed in past requests of the model, trusted by how often it was accepted.",
        ("past",),
        references=True,
    ),
}


def drafter_entry(name: str) -> Entry:
    if name in DRAFTERS:
        return DRAFTERS[name]
    raise UsageError(f"unknown drafter {name!r}", meant(name, DRAFTERS))


@dataclass(frozen=True)
class AboutDrafter(Result):
    """A drafter: what it looks up, its sources and its options."""

    name: str
    looks_up: str
    sources: tuple[str, ...]  # parameters of `load_drafter`
    options: tuple[DrafterOption, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as `ngramkit drafters --json` prints them."""
        described = [
            {
                "name": option.name,
                "type": option.type.__name__,
                "default": option.default,
                "bounds": option.bounds,
                "help": option.help,
            }
            for option in self.options
        ]
        return {
            "name": self.name,
            "looks_up": self.looks_up,
            "artifacts": [role for role in self.sources if role in KIND_OF_ROLE],
            "options": described,
        }


def drafters(name: str | None = None) -> Rows[AboutDrafter]:
    """Return the drafters, or one by name: what they look up, their sources and options.

    Raises UsageError for an unknown name.
    """
    return Rows(
        AboutDrafter(
            each,
            drafter_entry(each).looks_up,
            drafter_entry(each).sources,
            tuple(drafter_options(each)),
        )
        for each in ([name] if name is not None else DRAFTERS)
    )


def drafter_options(name: str) -> list[DrafterOption]:
    drafter_entry(name)
    return list(OPTIONS.get(name, ()))


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
    artifacts. Unused sources are ignored.

    Raises TypeError for an unknown option, UsageError for an unknown name, a value out of bounds or
    a missing source, ArtifactError for an unreadable artifact, a wrong kind or different
    tokenizers.
    """
    from ngramkit.drafters.spec import DrafterSpec

    check_type("name", name, [str])
    if past is not None and not hasattr(past, "refresh"):
        raise UsageError(
            f"past must be PastRequests, got {past!r:.60}",
            "open them with PastUse(path).open(tokenizer)",
            option="past",
        )
    tokenizer = None if tokenizer is None else record_of(tokenizer)
    if ":" in name:
        spec = DrafterSpec.parse(name)
        name, options = spec.name, {**spec.options, **options}
    entry = drafter_entry(name)
    takes = [option.name for option in drafter_options(name)]
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
        "datastores": [_open(datastore) for datastore in sources.datastores],
        **{
            role: None if getattr(sources, role) is None else _open(getattr(sources, role))
            for role in TABLES
        },
        "past": past,
        "tokenizer": tokenizer,
    }
    require_sources(name, opened)
    _check_artifacts({role: opened[role] for role in entry.artifacts})
    return make_drafter(DrafterSpec(name, options), opened)


def make_drafter(spec: DrafterSpec, sources: Mapping[str, Any]) -> Drafter:
    entry = DRAFTERS[spec.name]
    given = {name: sources[name] for name in entry.sources if name in sources}
    drafter: Drafter = resolve_name(entry.home)(**given, **spec.options)
    return drafter


def require_sources(name: str, given: Mapping[str, Any], past: str = "past") -> None:
    """Raise UsageError if `given` lacks a required source; `past` is its key for past requests."""
    entry = drafter_entry(name)
    for source in entry.sources if entry.required else ():
        word = past if source == "past" else source
        if not given.get(word):
            need = f"a {KIND_OF_ROLE[source]}" if source in KIND_OF_ROLE else "past requests"
            raise UsageError(f"cannot use {name}: it needs {need}", f"give {word}", option=word)


def _open(artifact: Artifact | str | Path) -> Any:
    from ngramkit.formats.artifact import Artifact
    from ngramkit.formats.opening import open_folder

    if isinstance(artifact, Artifact):
        return artifact
    if not isinstance(artifact, str | Path):
        raise UsageError(f"an artifact must be a path or an opened artifact, got {artifact!r:.60}")
    return open_folder(artifact)


def _check_artifacts(by_role: Mapping[str, Any]) -> None:
    from ngramkit.formats.artifact import require_one_tokenizer

    artifacts: list[Artifact] = []
    for role, value in by_role.items():
        of_role = value if isinstance(value, list) else [value] if value else []
        for artifact in of_role:
            require_kind(artifact.where, artifact.kind, role)
        artifacts += of_role
    require_one_tokenizer(artifacts)


def require_kind(where: object, kind: str, role: str) -> None:
    """Raise ArtifactError unless `kind` is the role's."""
    if kind != KIND_OF_ROLE[role]:
        raise ArtifactError(
            f"{where} must be a {KIND_OF_ROLE[role]}, got {a_kind(kind)}", "check the path"
        )


class NoDraft(BaseDrafter):
    def start(self, prompt: TokenArray) -> None:
        """Do nothing."""

    def draft(self, budget: int) -> DraftTree:
        return DraftTree.empty()

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        """Do nothing."""
