"""The table of drafters: their names, what each is made from, and how one is made by name.

`load_drafter` makes one, `drafter_options` lists its options, `DrafterSpec` reads a name and
options from one text: `rest:max_match=8,continuation=12`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from ngramkit.basics.errors import ArtifactError, UsageError, meant
from ngramkit.basics.kinds import KIND_OF_ROLE, TABLES, a_kind
from ngramkit.basics.public import public, unknown_keyword
from ngramkit.basics.results import Result, Rows
from ngramkit.drafters.base import BaseDrafter, DraftTree, Evidence, TokenArray
from ngramkit.drafters.options import OPTIONS, DrafterOption
from ngramkit.drafters.sources import Given, Sources, given_sources
from ngramkit.formats.tokenizer_record import record_of

if TYPE_CHECKING:
    from ngramkit.drafters.base import Drafter
    from ngramkit.drafters.past_requests import PastRequests
    from ngramkit.formats.artifact import Artifact
    from ngramkit.formats.tokenizer_record import TokenizerRecord


@dataclass(frozen=True)
class Entry:
    """A drafter's class, and the parameters of `load_drafter` that it is made from."""

    home: str  # module:class
    looks_up: str
    sources: tuple[str, ...] = ()
    required: bool = True  # False: it drafts without its sources too, from the context
    references: bool = False  # it can draft from references, see drafters.references
    needs_evidence: bool = False  # it drafts little or nothing where no model gives it Evidence

    @property
    def artifacts(self) -> tuple[str, ...]:
        """Return those of its sources that are artifacts."""
        return tuple(source for source in self.sources if source in KIND_OF_ROLE)


DEFAULT_DRAFTER = "blend"  # where nobody says
EVERYTHING = ("datastores", "frozen_table", "bigram", "past", "tokenizer")

DRAFTERS = {
    "none": Entry("ngramkit.drafters.registry:NoDraft", "Nothing: one token a pass."),
    "blend": Entry(
        "ngramkit.drafters.blend:Blend",
        "Everything at hand, as one calibrated probability: artifacts, the text so far, past "
        "requests, the model's top-k.",
        EVERYTHING,
        required=False,
        references=True,
    ),
    "rest": Entry(
        "ngramkit.drafters.rest:Rest",
        "The longest context suffix found in the corpus; what followed it, most frequent first "
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
        "The model's likeliest tokens after the last token alone (its part of N-Grammys).",
        ("bigram",),
    ),
    "unigram": Entry(
        "ngramkit.drafters.ngrammys:Unigram",
        "The tokens that the model's embeddings make likely anywhere (likewise).",
        ("unigram",),
    ),
    "context": Entry(
        "ngramkit.drafters.context:Context",
        "What followed the last tokens earlier in this text, by count (likewise).",
        references=True,
    ),
    "prompt-lookup": Entry(
        "ngramkit.drafters.context:PromptLookup",
        "The earliest place of the last tokens in this text: one chain, as transformers does it.",
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
        "What followed the longest match in this text or a corpus, as one line; else recycling "
        "(SAM-Decoding, arXiv:2411.10666).",
        ("datastores",),
        required=False,
        needs_evidence=True,
    ),
    "ssd": Entry(
        "ngramkit.drafters.ssd:Ssd",
        "What followed in the model's own past requests, trusted as far as it was accepted.",
        ("past",),
        references=True,
    ),
}


def drafter_entry(name: str) -> Entry:
    """Return a drafter's entry. Raises UsageError, with the nearest name, where there is none."""
    if name in DRAFTERS:
        return DRAFTERS[name]
    raise UsageError(f"no drafter is called {name!r}", meant(name, DRAFTERS))


@dataclass(frozen=True)
class AboutDrafter(Result):
    """A drafter: what it looks up, the artifacts that it can draft from, its options."""

    name: str
    looks_up: str
    sources: tuple[str, ...]  # the words of `load_drafter` that it drafts from
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


@public
def drafters(name: str | None = None) -> Rows[AboutDrafter]:
    """Return what each drafter looks up, from which artifacts, and its options; of one that is
    named alone. Raises UsageError, with the nearest name, where there is none of that name."""
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
    """Return the options of the drafter called `name`. Raises UsageError for an unknown name."""
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
    """Make the drafter called `name`, over open artifacts or their paths; `name` may hold options
    too, as `rest:max_match=8`.

    `artifacts` are given in any order, their kinds say what they are for; or by their role. `past`:
    the requests that ssd and blend draft from, and that theirs join. `tokenizer`: whose ids these
    are, for blend where no artifact tells. `options` are those of `drafter_options`. Sources that
    the drafter has no use for are ignored.

    Raises TypeError for an unknown option, UsageError for an unknown name, a value out of bounds or
    a missing source, ArtifactError where an artifact cannot be opened, is of another kind, or two
    are of different tokenizers.
    """
    if not isinstance(name, str):
        raise TypeError(f"load_drafter() takes str as name, not {name!r:.60}")
    if past is not None and not hasattr(past, "refresh"):
        what = "a path" if isinstance(past, str | Path) else f"{past!r:.60}"
        hint = "give PastUse(path).open(tokenizer)"
        raise UsageError(f"past is {what}, no past requests", hint, option="past")
    tokenizer = None if tokenizer is None else record_of(tokenizer)
    if ":" in name:
        spec = DrafterSpec.parse(name)
        name, options = spec.name, {**spec.options, **options}
    entry = drafter_entry(name)
    takes = [option.name for option in drafter_options(name)]
    for option in options:
        if option not in takes:
            own = [word for word in inspect.signature(load_drafter).parameters if word != "options"]
            raise TypeError(unknown_keyword("load_drafter", option, [*own, *takes]))
    sources = given_sources(
        artifacts, datastores=datastores, frozen_table=frozen_table, bigram=bigram, unigram=unigram
    )
    opened = {
        "datastores": [_open(datastore) for datastore in sources.datastores],
        **{
            role: None if getattr(sources, role) is None else _open(getattr(sources, role))
            for role in TABLES
        },
        "past": past,
        "tokenizer": tokenizer,
    }
    require_sources(name, opened)
    used = {source: opened[source] for source in entry.sources}
    _check_artifacts({role: used[role] for role in entry.artifacts})
    drafter: Drafter = resolve_name(entry.home)(**used, **options)
    return drafter


def require_sources(name: str, given: Mapping[str, Any], past: str = "past") -> None:
    """Raise UsageError where `given`, by role, lacks what the drafter called `name` needs; past
    requests are called `past` there."""
    entry = drafter_entry(name)
    for source in entry.sources if entry.required else ():
        word = past if source == "past" else source
        if not given.get(word):
            need = f"a {KIND_OF_ROLE[source]}" if source in KIND_OF_ROLE else "past requests"
            raise UsageError(f"the drafter {name} needs {need}", f"give {word}", option=word)


def _open(artifact: Artifact | str | Path) -> Any:
    from ngramkit.formats.artifact import Artifact
    from ngramkit.formats.opening import open_folder

    if isinstance(artifact, Artifact):
        return artifact
    if not isinstance(artifact, str | Path):
        raise UsageError(f"{artifact!r:.60} is no artifact", "give its path, or open it first")
    return open_folder(artifact)


def _check_artifacts(by_role: Mapping[str, Any]) -> None:
    """Raise ArtifactError where one is of another kind, or two are of different tokenizers."""
    from ngramkit.formats.artifact import require_one_tokenizer

    artifacts: list[Artifact] = []
    for role, value in by_role.items():
        of_role = value if isinstance(value, list) else [value] if value else []
        for artifact in of_role:
            require_kind(artifact.where, artifact.kind, role)
        artifacts += of_role
    require_one_tokenizer(artifacts)


def require_kind(where: object, kind: str, role: str) -> None:
    """Raise ArtifactError where the artifact at `where` is of another kind than the role takes."""
    if kind != KIND_OF_ROLE[role]:
        raise ArtifactError(
            f"{where} is {a_kind(kind)}, not a {KIND_OF_ROLE[role]}", "check the path"
        )


@dataclass(frozen=True)
class DrafterSpec:
    """A drafter's name and the options that were given, as values."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> DrafterSpec:
        """Read `NAME` or `NAME:OPTION=VALUE,OPTION=VALUE`.

        >>> DrafterSpec.parse("rest:max_match=8")
        DrafterSpec(name='rest', options={'max_match': 8})

        Raises UsageError, naming the right ones, for an unknown name or option, an option given
        twice, and a value that is out of bounds.
        """
        name, colon, rest = text.partition(":")
        drafter_entry(name)
        if not colon:
            return cls(name)
        takes = {option.name: option for option in drafter_options(name)}
        options: dict[str, Any] = {}
        for part in rest.split(","):
            key, equals, value = part.partition("=")
            key = key.strip().replace("-", "_")
            if not equals or not key:
                raise UsageError(
                    f"{part.strip()!r} is no option of the drafter {name}",
                    f"write {name}:OPTION=VALUE,...; its options: {', '.join(takes) or 'none'}",
                )
            if key not in takes:
                raise UsageError(f"the drafter {name} has no option {key!r}", meant(key, takes))
            if key in options:
                raise UsageError(f"{key} is given twice to the drafter {name}", "give it once")
            options[key] = takes[key].read(value.strip())
        return cls(name, options)

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        options = ",".join(
            f"{key}={str(value).lower() if isinstance(value, bool) else value}"
            for key, value in self.options.items()
        )
        return f"{self.name}:{options}" if options else self.name


class NoDraft(BaseDrafter):
    """The drafter that never drafts: every pass yields one token. Others are compared with it."""

    def start(self, prompt: TokenArray) -> None:
        """Do nothing."""

    def draft(self, budget: int) -> DraftTree:
        return DraftTree.empty()

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        """Do nothing."""
