"""Which drafter, and over which artifacts, when nobody says: for the command line and for Python.

Without a name it is blend. Without named artifacts a drafter gets those under artifacts/ that have
the tokenizer's ids: every datastore, the largest frozen table that adds to them, the model's own
tables before those of another model. What is needed and missing is made or refused, see
ngramkit.choose; what lies there is for the embedded model alone. What is taken and what is left
out is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngramkit.drafters.registry import DRAFTERS, DrafterSpec, drafter_options, load_drafter
from ngramkit.drafters.sources import Given, Opened, PastUse, Sources, opened
from ngramkit.errors import ArtifactError, UsageError
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.manifest import Manifest, TokenizerRecord
from ngramkit.formats.outputs import (
    ARTIFACTS,
    AUTOMATIC,
    Found,
    artifacts_in,
    corpus_name,
    default_place,
)
from ngramkit.formats.tokens import TokenStore
from ngramkit.kinds import KIND_OF_ROLE, KINDS, ROLES
from ngramkit.models import DEFAULT, HUB_IDS, chosen_model, resolve_model
from ngramkit.progress import SILENT, Reporter

if TYPE_CHECKING:
    from ngramkit.drafters.base import Drafter


DRAFTER = "blend"


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
    load_model: LoadModel | None = None,
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
    named = {role: getattr(sources, role) for role in KIND_OF_ROLE if role in entry.sources}
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
            if each.artifact.kind != KIND_OF_ROLE[role]:
                raise ArtifactError(
                    f"{each.name} is a {each.artifact.kind}, not a {KIND_OF_ROLE[role]}",
                    "check the path",
                )
    return found


def _found(
    name: str,
    tokenizer: TokenizerRecord,
    reporter: Reporter,
    load_model: LoadModel | None,
) -> dict[str, list[Opened]]:
    entry = DRAFTERS[name]
    roles = [role for role in KIND_OF_ROLE if role in entry.sources]
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
    load_model: LoadModel | None,
) -> Artifact | None:
    """None where the drafter does without, which is said."""
    try:
        return provide(KIND_OF_ROLE[role], tokenizer, reporter, load_model)
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


# Which artifacts that lie there fit a tokenizer, and which of them are taken.
#
# Every datastore that adds a corpus; of the other kinds one, the model's own before the largest.

SHOWN = 5  # artifacts in a line, and lines of what was left out


def candidates(tokenizer: TokenizerRecord) -> list[Found]:
    """Everything under artifacts/; what commands made by themselves for the embedded model only."""
    made = artifacts_in(AUTOMATIC) if tokenizer.id == DEFAULT else ()
    return [*artifacts_in(ARTIFACTS), *made]


def select(
    candidates: Iterable[Found], roles: Sequence[str], tokenizer: TokenizerRecord
) -> tuple[dict[str, list[Path]], list[str]]:
    """The folders to draft from by role, and a line for everything of those kinds left out."""
    taken: dict[str, list[Path]] = {role: [] for role in roles}
    left_out: list[str] = []
    others: list[str] = []  # tokenizers
    corpora: dict[Any, Path] = {}
    by_role: dict[str, list[tuple[Path, Manifest]]] = {role: [] for role in roles}
    for each in candidates:
        if each.manifest is None:
            left_out.append(f"{each.path} ({each.problem})")
        elif ROLES.get(each.manifest.kind) in by_role:
            if each.manifest.tokenizer.agrees(tokenizer):
                by_role[ROLES[each.manifest.kind]].append((each.path, each.manifest))
            else:
                others.append(each.manifest.tokenizer.id)
    for role, fitting in by_role.items():
        for path, manifest in sorted(
            fitting, key=lambda pair: _rank(pair[0], pair[1], tokenizer.id)
        ):
            same = corpora.get(_corpus_of(manifest)) if manifest.corpus else None
            if same is not None:
                left_out.append(f"{path} (of the same corpus as {same})")
            elif role != "datastores" and taken[role]:
                left_out.append(f"{path} ({taken[role][0]} is {_why(role)})")
            else:
                taken[role].append(path)
                corpora.setdefault(_corpus_of(manifest), path)
    if others:
        left_out.append(f"{len(others)} for other tokenizers ({listed(sorted(set(others)))})")
    return taken, _bounded(left_out)


def _rank(path: Path, manifest: Manifest, model: str) -> tuple[Any, ...]:
    """The model's own tables first, then the largest by tokens, then by bytes, then by name."""
    own = manifest.parameters.get("model") in (model, HUB_IDS.get(model))
    return (not own, -manifest.counts.get("tokens", 0), -manifest.bytes, str(path))


def _why(role: str) -> str:
    return "larger" if role == "frozen_table" else "the model's own, or larger"


def _corpus_of(manifest: Manifest) -> Any:
    """What tells corpora apart, as far as manifests do; frozen tables know no documents' order."""
    counts = {name: manifest.counts.get(name) for name in ("documents", "tokens")}
    return repr((sorted(manifest.corpus.items()), counts))


def listed(names: Sequence[str]) -> str:
    """Some of them in a line, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _bounded(lines: Sequence[str]) -> list[str]:
    more = [f"{len(lines) - SHOWN + 1} more"] if len(lines) > SHOWN else []
    return [*lines[: SHOWN - len(more)], *more]


# Artifacts that a command makes by itself, where a drafter needs one and there is none.
#
# For the embedded model from the standard library; for any other from a token store that is at
# hand, or read off the model where that takes seconds. Else an error names the command to run:
# data that nobody chose would speak for the drafter. What is made here lies under
# artifacts/automatic/, see ngramkit.formats.outputs.

CORPUS = "python-stdlib"  # what the embedded model was made for
# Bytes of weights times tokens of the vocabulary: a bigram table is one pass per token.
CHEAP = {"model-bigram": 2e11, "model-unigram": 2e14}

LoadModel = Callable[[], Any]  # gives a decode.load.LanguageModel


def provide(
    kind: str, tokenizer: TokenizerRecord, reporter: Reporter, load_model: LoadModel | None = None
) -> Artifact:
    """A new artifact of `kind`, or one that was made here before; says what it is made from.

    Raises ArtifactError, with the command to run, where it would take a corpus that nobody chose,
    a download or long work.
    """
    missing = f"no {kind} for {tokenizer.id} under {ARTIFACTS}/"
    if KINDS[kind].of_model:
        return _read_off(kind, tokenizer, missing, reporter, load_model)
    store = token_store_of(tokenizer)
    if store is not None:
        reporter.note(f"{missing}: building one from {store.path}")
    elif tokenizer.id == DEFAULT:
        reporter.note(f"{missing}: building one from {CORPUS}")
        store = _stdlib_store(reporter)
    else:
        raise ArtifactError(missing, f"run: {command(kind, tokenizer.id)}")
    corpus = corpus_name(store.manifest.corpus, store.path.name)
    place = default_place(corpus, tokenizer.id, kind, folder=AUTOMATIC)
    return _built(kind, store, place, reporter)


def command(kind: str, model: str) -> str:
    """What builds an artifact of `kind`."""
    corpus = "" if KINDS[kind].of_model else "--corpus CORPUS --model "
    return f"ngramkit {KINDS[kind].command} {corpus}{model}"


def token_store_of(tokenizer: TokenizerRecord) -> TokenStore | None:
    """The largest under artifacts/ that has the tokenizer's ids."""
    fitting = [
        (each.manifest.counts.get("tokens", 0), each.path)
        for each in artifacts_in(ARTIFACTS)
        if each.manifest is not None
        and each.manifest.kind == TokenStore.kind
        and each.manifest.tokenizer.agrees(tokenizer)
    ]
    return TokenStore.open(max(fitting)[1]) if fitting else None


def _stdlib_store(reporter: Reporter) -> TokenStore:
    from ngramkit.builders.tokens import tokenize
    from ngramkit.corpus.open import open_corpus

    place = default_place(CORPUS, DEFAULT, "tokens", folder=AUTOMATIC)
    return tokenize(open_corpus(CORPUS), DEFAULT, place, reporter=reporter, force=True)


def _built(kind: str, store: TokenStore, place: Path, reporter: Reporter) -> Artifact:
    """What is there already, of the same store, is kept."""
    if kind == "datastore":
        from ngramkit.builders.datastore import build_datastore

        return build_datastore(store, place, reporter=reporter, force=True)
    from ngramkit.builders.frozen import build_frozen

    return build_frozen(store, place, reporter=reporter, force=True)


def _read_off(
    kind: str,
    tokenizer: TokenizerRecord,
    missing: str,
    reporter: Reporter,
    load_model: LoadModel | None,
) -> Artifact:
    from ngramkit.builders.model_bigram import build_model_bigram
    from ngramkit.builders.model_unigram import build_model_unigram

    source = Path(resolve_model(tokenizer.id))
    weights = sum(file.stat().st_size for file in source.glob("*.safetensors"))
    if load_model is None or not 0 < weights * tokenizer.vocabulary <= CHEAP[kind]:
        raise ArtifactError(missing, f"run: {command(kind, tokenizer.id)}")
    reporter.note(f"{missing}: reading one off the model")
    model = load_model()
    place = default_place(tokenizer.id, kind, folder=AUTOMATIC)
    build: Any = build_model_bigram if kind == "model-bigram" else build_model_unigram
    options: Any = {"reporter": reporter, "force": True}
    return build(model.model, model.tokenizer, place, **options).table  # type: ignore[no-any-return]
