"""Which drafter, and over which artifacts, when nobody says: for the command line and for Python.

Without a name it is blend. Without named artifacts a drafter gets those under artifacts/ that have
the tokenizer's ids: every datastore, the largest frozen table that adds to them, the model's own
tables before those of another model. What is needed and missing is made or refused, see
ngramkit.automatic; what lies there is for the embedded model alone. What is taken and what is left
out is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngramkit import automatic
from ngramkit.drafters import DRAFTERS, drafter_options, load_drafter
from ngramkit.drafters.spec import DrafterSpec
from ngramkit.errors import ArtifactError, UsageError
from ngramkit.fitting import candidates, listed, select
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.manifest import TokenizerRecord
from ngramkit.models import chosen_model
from ngramkit.progress import SILENT, Reporter
from ngramkit.sources import ROLES, Given, Opened, PastUse, Sources, opened

if TYPE_CHECKING:
    from ngramkit.drafters.base import Drafter

DRAFTER = "blend"
KINDS = {role: kind for kind, role in ROLES.items()}


@dataclass(frozen=True)
class DrafterChoice:
    """A drafter's name and options, and all that it is made from; `load` makes one."""

    label: str  # what results call it: its name, and the options that were given
    spec: DrafterSpec
    tokenizer: TokenizerRecord
    artifacts: Mapping[str, Any] = field(default_factory=dict)  # by role, opened
    names: Sequence[str] = ()  # of the artifacts, as they were named or found
    revisions: Mapping[str, str] = field(default_factory=dict)  # hf:// source -> commit
    past: PastUse | None = None  # None: it does not learn from finished requests
    made: Callable[[], Drafter] | None = None  # in place of all that: an object of the caller's

    @property
    def learns(self) -> bool:
        """From finished requests."""
        return self.past is not None

    @property
    def listens(self) -> bool:
        """Whether little is left of it where no model tells it Evidence."""
        return self.made is None and DRAFTERS[self.spec.name].listens

    @property
    def opened(self) -> list[Artifact]:
        """The artifacts, in the order of `names`."""
        found: list[Artifact] = []
        for value in self.artifacts.values():
            found += value if isinstance(value, list) else [value]
        return found

    def load(self, *, forgetful: bool = False) -> Drafter:
        """A drafter that has seen nothing but its past requests; `forgetful`: remembers none."""
        if self.made is not None:
            return self.made()
        past = self.past.open(self.tokenizer, forgetful=forgetful) if self.past else None
        sources = {**self.artifacts, "past": past, "tokenizer": self.tokenizer}
        return load_drafter(self.spec.name, **sources, **self.spec.options)

    def with_default(self, option: str, value: Any) -> DrafterChoice:
        """`option` is `value` where the drafter has it and nobody has set it."""
        if self.made is not None or option in self.spec.options:
            return self
        if option not in {each.name for each in drafter_options(self.spec.name)}:
            return self
        options = {**self.spec.options, option: value}
        return replace(self, spec=DrafterSpec(self.spec.name, options))

    def __repr__(self) -> str:
        return f"<DrafterChoice {self.label} over {listed(self.names) or 'the live context'}>"


def choose_drafter(
    drafter: str | None = None,
    tokenizer: Any = None,
    artifacts: Sources | Sequence[Given] | Given = (),
    *,
    reporter: Reporter = SILENT,
    load_model: automatic.LoadModel | None = None,
) -> DrafterChoice:
    """`drafter` is `NAME` or `NAME:OPTION=VALUE,...`; None: blend.

    `tokenizer` decides which artifacts fit: a record, a tokenizer, a loaded model or the name of
    one; None: as `ngramkit.models.chosen_model`. `artifacts`: what to draft from, in place of what
    is found; past requests only where they are named. `load_model` gives the loaded model, where
    a table may be read off it. The reporter is told what was taken and what was left out.

    Raises UsageError for an unknown drafter or option, ArtifactError where an artifact is of
    another tokenizer, or one is needed, missing, and not to be made here.
    """
    spec, tokenizer = DrafterSpec.parse(drafter or DRAFTER), _record(tokenizer)
    entry, sources = DRAFTERS[spec.name], Sources.of(artifacts)
    named = {role: getattr(sources, role) for role in KINDS if role in entry.sources}
    if any(named.values()):
        found = _named(named, reporter)
    else:
        found = _found(spec.name, tokenizer, reporter, load_model)
    each_opened = [each for several in found.values() for each in several]
    choice = DrafterChoice(
        str(spec),
        spec,
        tokenizer,
        artifacts={role: _as_given(role, several) for role, several in found.items()},
        names=[each.name for each in each_opened],
        revisions={each.name: each.commit for each in each_opened if each.commit},
    )
    for artifact in choice.opened:
        artifact.tokenizer.require(tokenizer, str(artifact.path))
    if "past" in entry.sources and (sources.past.path or entry.required):
        choice = _with_past(choice, sources.past, reporter)
    default = "" if drafter else " (default)"
    over = listed([_described(each) for each in each_opened])
    reporter.note(f"drafter: {spec}{default}{over and ' over '}{over}")
    return choice


def asked_drafters(drafters: Any) -> list[Any]:
    """Of one drafter or several, named or made by the caller, a list.

    Raises UsageError for a name or an option that there is not, before anything is read in vain.
    """
    asked = [drafters] if isinstance(drafters, str) or callable(drafters) else list(drafters)
    for each in asked:
        if isinstance(each, str):
            DrafterSpec.parse(each)
    return asked


def given_drafter(drafter: Any, tokenizer: TokenizerRecord) -> DrafterChoice:
    """A drafter of the caller's own, or a function that makes one, in place of a chosen one."""
    is_one = hasattr(drafter, "draft") and not isinstance(drafter, type)
    name = type(drafter).__name__ if is_one else getattr(drafter, "__name__", "drafter")
    made = (lambda: drafter) if is_one else drafter
    return DrafterChoice(name, DrafterSpec(name), tokenizer, made=made)


def distinct(choices: Iterable[DrafterChoice]) -> list[DrafterChoice]:
    """Each label once: what is named twice is one; of one's own, the second is `NAME-2`."""
    found: dict[str, DrafterChoice] = {}
    for choice in choices:
        label, number = choice.label, 2
        while choice.made is not None and label in found:
            label, number = f"{choice.label}-{number}", number + 1
        found.setdefault(label, replace(choice, label=label))
    return list(found.values())


def _record(given: Any) -> TokenizerRecord:
    """Of a record, a TextTokenizer, a LanguageModel or a model's name."""
    if given is None or isinstance(given, str | Path):
        from ngramkit.corpus.tokenizer import load_tokenizer

        given = load_tokenizer(chosen_model(None if given is None else str(given)).name)
    found = getattr(getattr(given, "tokenizer", given), "record", given)
    if not isinstance(found, TokenizerRecord):
        raise UsageError(
            f"tokenizer is a {type(given).__name__}", "give a loaded tokenizer, a model or its name"
        )
    return found


def _as_given(role: str, several: Sequence[Opened]) -> Any:
    """As `load_drafter` takes it."""
    return [each.artifact for each in several] if role == "datastores" else several[0].artifact


def _named(named: Mapping[str, Any], reporter: Reporter) -> dict[str, list[Opened]]:
    found: dict[str, list[Opened]] = {}
    for role, given in named.items():
        several = list(given) if role == "datastores" else [given] if given is not None else []
        if several:
            found[role] = [opened(each, reporter) for each in several]
    for role, artifacts in found.items():
        for each in artifacts:
            if each.artifact.kind != KINDS[role]:
                raise ArtifactError(
                    f"{each.name} is a {each.artifact.kind}, not a {KINDS[role]}", "check the path"
                )
    return found


def _found(
    name: str,
    tokenizer: TokenizerRecord,
    reporter: Reporter,
    load_model: automatic.LoadModel | None,
) -> dict[str, list[Opened]]:
    entry = DRAFTERS[name]
    roles = [role for role in KINDS if role in entry.sources]
    taken, left_out = select(candidates(tokenizer), roles, tokenizer)
    for line in left_out:
        reporter.note(f"left out: {line}")
    found = {role: [opened(path) for path in paths] for role, paths in taken.items() if paths}
    of_corpora = [role for role in roles if role in ("datastores", "frozen_table")]
    wanted = of_corpora[:1] if len(roles) > 1 else roles
    if wanted and not any(role in found for role in of_corpora or roles):
        role = wanted[0]
        made = _provided(role, entry.required, tokenizer, reporter, load_model)
        if made is not None:
            found = {role: [Opened(made, str(made.path))], **found}
    return found


def _provided(
    role: str,
    required: bool,
    tokenizer: TokenizerRecord,
    reporter: Reporter,
    load_model: automatic.LoadModel | None,
) -> Artifact | None:
    """None where the drafter does without, which is said."""
    try:
        return automatic.provide(KINDS[role], tokenizer, reporter, load_model)
    except ArtifactError as error:
        if required:
            raise
        reporter.note(f"{error}: drafting from the text itself; {error.hint}")
        return None


def _with_past(choice: DrafterChoice, past: PastUse, reporter: Reporter) -> DrafterChoice:
    there = past.history(choice.tokenizer)
    if past.path is None:
        return replace(choice, past=past)
    if there is None:
        reporter.note(f"there is no history at {past.path} yet: no past requests")
    return replace(choice, past=past, names=[*choice.names, str(past.path)])


def _described(each: Opened) -> str:
    tokens = each.artifact.manifest.counts.get("tokens")
    return each.name if tokens is None else f"{each.name} ({tokens:,} tokens)"
