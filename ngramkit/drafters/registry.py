"""Artifacts and the live context in, draft trees out.

`load_drafter` makes one by name, `drafter_options` says what can be set about it. Drafters know
token ids only: no text, no model, no tensors.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngramkit.drafters.base import Described, DraftTree, Evidence, TokenArray
from ngramkit.errors import ArtifactError, UsageError, meant
from ngramkit.kinds import KIND_OF_ROLE

if TYPE_CHECKING:
    from ngramkit.drafters.base import Drafter
    from ngramkit.drafters.options import DrafterOption
    from ngramkit.drafters.past_requests import PastRequests
    from ngramkit.formats.artifact import Artifact
    from ngramkit.formats.manifest import TokenizerRecord


@dataclass(frozen=True)
class Entry:
    """Where a drafter's class is, and which of `load_drafter`'s sources it is made from."""

    home: str
    class_name: str
    looks_up: str
    sources: tuple[str, ...] = ()
    required: bool = True  # False: it drafts without them too, from the context
    references: bool = False  # whether it drafts from references too, see drafters.references
    listens: bool = False  # little or nothing is left of it where no model tells it Evidence

    @property
    def artifacts(self) -> tuple[str, ...]:
        """Those of its sources that are artifacts."""
        return tuple(source for source in self.sources if source in KIND_OF_ROLE)


EVERYTHING = ("datastores", "frozen_table", "bigram", "past", "tokenizer")

DRAFTERS = {
    "none": Entry("ngramkit.drafters.registry", "NoDraft", "Nothing: one token a pass."),
    "blend": Entry(
        "ngramkit.drafters.blend",
        "Blend",
        "Everything at hand, as one calibrated probability: artifacts, the text so far, past "
        "requests, what the model itself held likely.",
        EVERYTHING,
        required=False,
        references=True,
    ),
    "rest": Entry(
        "ngramkit.drafters.rest",
        "Rest",
        "The longest end of the text that a corpus holds; what followed it, most frequent first "
        "(REST, arXiv:2311.08252).",
        ("datastores",),
    ),
    "cacheback": Entry(
        "ngramkit.drafters.cacheback",
        "Cacheback",
        "What followed the last tokens lately in this text, then most often in a corpus "
        "(Cacheback, arXiv:2511.21699).",
        ("frozen_table",),
        required=False,
    ),
    "ngrammys": Entry(
        "ngramkit.drafters.ngrammys",
        "Ngrammys",
        "What followed the last tokens earlier in this text, then the model's own bigrams "
        "(N-Grammys, arXiv:2411.03786).",
        ("bigram",),
    ),
    "bigram": Entry(
        "ngramkit.drafters.ngrammys",
        "Bigram",
        "What the model holds likely after the last token alone (its part of N-Grammys).",
        ("bigram",),
    ),
    "unigram": Entry(
        "ngramkit.drafters.ngrammys",
        "Unigram",
        "The tokens that the model's embeddings make likely anywhere (likewise).",
        ("unigram",),
    ),
    "context": Entry(
        "ngramkit.drafters.context",
        "Context",
        "What followed the last tokens earlier in this text, by count (likewise).",
        references=True,
    ),
    "prompt-lookup": Entry(
        "ngramkit.drafters.context",
        "PromptLookup",
        "The earliest place of the last tokens in this text: one chain, as transformers does it.",
        references=True,
    ),
    "recycling": Entry(
        "ngramkit.drafters.recycling",
        "Recycling",
        "What the model held likely after each token when it last saw it, as a fixed tree "
        "(Token Recycling, arXiv:2408.08696).",
        listens=True,
    ),
    "automaton": Entry(
        "ngramkit.drafters.automaton",
        "Automaton",
        "What followed the longest match in this text or a corpus, as one line; else recycling "
        "(SAM-Decoding, arXiv:2411.10666).",
        ("datastores",),
        required=False,
        listens=True,
    ),
    "ssd": Entry(
        "ngramkit.drafters.ssd",
        "Ssd",
        "What followed in the model's own past requests, as far as that has come true.",
        ("past",),
        references=True,
    ),
}


def drafter_entry(name: str) -> Entry:
    """Raises UsageError, with the nearest name, where no drafter is called that."""
    if name in DRAFTERS:
        return DRAFTERS[name]
    raise UsageError(f"no drafter is called {name!r}", meant(name, DRAFTERS))


def drafter_options(name: str) -> list[DrafterOption]:
    """What can be set about the drafter called `name`. Raises UsageError for an unknown name."""
    from ngramkit.drafters.options import options_of

    return options_of(_class_of(drafter_entry(name)))


def load_drafter(
    name: str,
    *,
    datastores: Sequence[Artifact | str | Path] = (),
    frozen_table: Artifact | str | Path | None = None,
    bigram: Artifact | str | Path | None = None,
    unigram: Artifact | str | Path | None = None,
    past: PastRequests | None = None,
    tokenizer: TokenizerRecord | None = None,
    **options: Any,
) -> Drafter:
    """The drafter called `name`, over opened artifacts or their paths; `name` may hold options too,
    as `rest:max_match=8`.

    `past`: the requests that ssd and blend draft from, and that theirs join. `tokenizer`: whose ids
    these are, for blend where no artifact tells. `options` are those of `drafter_options`. Sources
    that it has no use for are left alone.

    Raises UsageError for an unknown name or option, a value out of bounds or a missing source,
    ArtifactError where an artifact cannot be opened, is of another kind, or two are of different
    tokenizers.
    """
    if ":" in name:
        spec = DrafterSpec.parse(name)
        name, options = spec.name, {**spec.options, **options}
    entry = drafter_entry(name)
    given = {
        "datastores": [_opened(datastore) for datastore in datastores],
        "frozen_table": _opened(frozen_table),
        "bigram": _opened(bigram),
        "unigram": _opened(unigram),
        "past": past,
        "tokenizer": tokenizer,
    }
    used = {source: given[source] for source in entry.sources}
    for source, value in used.items():
        if not value and entry.required:
            raise UsageError(
                f"the drafter {name} needs {_described(source)}", f"give {source}", option=source
            )
    for artifact in entry.artifacts:
        _require_kind(used[artifact], KIND_OF_ROLE[artifact])
    _require_one_tokenizer(used[artifact] for artifact in entry.artifacts)
    _require_known(name, options)
    drafter: Drafter = _class_of(entry)(**used, **options)
    return drafter


def _class_of(entry: Entry) -> Any:
    return getattr(importlib.import_module(entry.home), entry.class_name)


def _described(source: str) -> str:
    return f"a {KIND_OF_ROLE[source]}" if source in KIND_OF_ROLE else "past requests"


def _require_known(name: str, options: Iterable[str]) -> None:
    known = [option.name for option in drafter_options(name)]
    for option in options:
        if option not in known:
            raise UsageError(f"the drafter {name} has no option {option!r}", meant(option, known))


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


def _require_one_tokenizer(used: Iterable[Any]) -> None:
    from ngramkit.formats.artifact import require_one_tokenizer

    artifacts: list[Artifact] = []
    for value in used:
        artifacts += value if isinstance(value, list) else [value] if value else []
    require_one_tokenizer(artifacts)


# The drafter that never drafts: what every other one is measured against.


class NoDraft(Described):
    """Every pass yields one token."""

    def start(self, prompt: TokenArray) -> None: ...

    def draft(self, budget: int) -> DraftTree:
        return DraftTree.empty()

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None: ...

    def finish(self) -> None: ...


# A drafter and its options in one text: `rest:max_match=8,continuation=12`.
#
# The options are those that its constructor declares (see `drafter_options`).


@dataclass(frozen=True)
class DrafterSpec:
    """A drafter's name and the options that were given, as values."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> DrafterSpec:
        """`NAME` or `NAME:OPTION=VALUE,OPTION=VALUE`.

        >>> DrafterSpec.parse("rest:max_match=8")
        DrafterSpec(name='rest', options={'max_match': 8})

        Raises UsageError, naming the right ones, for an unknown name or option, an option given
        twice, and a value that is out of bounds.
        """
        name, colon, rest = text.partition(":")
        drafter_entry(name)
        known = {option.name: option for option in drafter_options(name)}
        options: dict[str, Any] = {}
        for part in rest.split(",") if colon else ():
            key, equals, value = part.partition("=")
            key = key.strip().replace("-", "_")
            if not equals or not key:
                raise UsageError(
                    f"{part.strip()!r} is no option of the drafter {name}",
                    f"write {name}:OPTION=VALUE,...; {_listed(known)}",
                )
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                meant = f"did you mean {near[0]}? " if near else ""
                raise UsageError(
                    f"the drafter {name} has no option {key!r}", f"{meant}{_listed(known)}"
                )
            if key in options:
                raise UsageError(f"{key} is given twice to the drafter {name}", "give it once")
            options[key] = known[key].read(value.strip())
        return cls(name, options)

    def __str__(self) -> str:
        """What `parse` reads."""
        given = ",".join(f"{key}={_text(value)}" for key, value in self.options.items())
        return f"{self.name}:{given}" if given else self.name


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _listed(known: Mapping[str, Any]) -> str:
    return f"it has: {', '.join(known)}" if known else "it has none"
