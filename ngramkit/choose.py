"""The choice of a drafter and its artifacts.

Without named artifacts, a drafter gets those that ngramkit.default_artifacts selects.

A missing artifact is built in artifacts/automatic/ only if that needs no choice of corpus, no
download and no long work; otherwise an error names the command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ngramkit.basics.errors import ArtifactError, InputError, NgramkitError
from ngramkit.basics.kinds import KIND_OF_ROLE, KINDS, a_kind
from ngramkit.basics.models import DEFAULT_MODEL, FILES_OF_MODELS, chosen_model, resolve_model
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.terminal_text import counted, join_some
from ngramkit.corpus.naming import corpus_name, selection_name, selection_text
from ngramkit.default_artifacts import select_default_artifacts
from ngramkit.drafters.checked import require_drafter
from ngramkit.drafters.create import make_drafter, open_given
from ngramkit.drafters.options import HISTORY_TOKENS
from ngramkit.drafters.registry import DEFAULT_DRAFTER, DRAFTERS
from ngramkit.drafters.sources import Given, PastUse, Sources, given_sources
from ngramkit.drafters.spec import DrafterSpec
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.opening import open_artifact_folder
from ngramkit.formats.outputs import ARTIFACTS, AUTOMATIC, artifacts_in, default_place
from ngramkit.formats.replacing import BusyError
from ngramkit.formats.tokenizer_record import TokenizerRecord, record_of
from ngramkit.formats.tokens import TokenStore

if TYPE_CHECKING:
    from ngramkit.drafters.base import Drafter
    from ngramkit.drafters.past_requests import PastRequests

FEW_TOKENS = 10_000  # a smaller corpus shares hardly any phrase with other texts
CORPUS = "python-stdlib"  # the embedded model's corpus
# Maximum bytes of weights times vocabulary for reading a table off the model unasked.
MAX_MODEL_WORK = {"model-bigram": 2e11, "model-unigram": 2e14}

T = TypeVar("T")
LoadModel = Callable[[], Any]  # returns a decode.load.LanguageModel


class MissingSourceError(ArtifactError):
    """A needed artifact is missing and not built here. `needs`: its kind, in words."""

    def __init__(self, message: str, hint: str = "", *, needs: str) -> None:
        super().__init__(message, hint)
        self.needs = needs


@dataclass(frozen=True)
class DrafterChoice:
    """A drafter's name, options and opened sources; `load` creates the drafter."""

    label: str  # its name in results, with the given options
    spec: DrafterSpec
    tokenizer: TokenizerRecord
    artifacts: Mapping[str, list[Any]] = field(default_factory=dict)  # opened Artifacts, by role
    past: PastUse | None = None  # None: uses no past requests
    absent: MissingSourceError | None = None  # the missing artifact

    @property
    def learns(self) -> bool:
        if self.past is not None:
            return self.past.store
        if self.spec.make is not None:
            return False
        options = DRAFTERS[self.spec.name].options(**self.spec.options)
        return bool(getattr(options, "keep", False))

    def missing(self, *, evidence: bool, learns: bool, references: bool = False) -> str | None:
        """Return what the drafter lacks, or None.

        `evidence`: it gets Evidence; `learns`: finished requests are remembered; `references`: some
        requests have them.
        """
        if self.spec.make is not None:
            return None
        if self.absent is not None:
            return f"needs {self.absent.needs}"
        entry = DRAFTERS[self.spec.name]
        if entry.needs_evidence and not evidence:
            return "needs the model's top-k (evidence)"
        if entry.required and "past" in entry.sources and not learns:
            past = None if self.past is None else self.past.history(self.tokenizer)
            empty = past is None or not past.log.read().requests
            if empty and not (entry.references and references):
                return "needs past requests (history)"
        return None

    @property
    def opened(self) -> list[Artifact]:
        return [each for several in self.artifacts.values() for each in several]

    def places(self, role: str) -> list[str]:
        """Return where the artifacts of a role are."""
        return [each.where for each in self.artifacts.get(role, ())]

    @property
    def histories(self) -> list[str]:
        """Return the folder of its history, if it has one."""
        return [] if self.past is None or self.past.path is None else [str(self.past.path)]

    @property
    def names(self) -> list[str]:
        return [*(artifact.where for artifact in self.opened), *self.histories]

    @property
    def builds(self) -> list[str]:
        builds = (f"{each.where} ({each.manifest.build[:12]})" for each in self.opened)
        return [*builds, *self.histories]

    @cached_property
    def recorded_past(self) -> PastRequests | None:
        """The past requests that all drafters of a replay or measurement begin with."""
        if self.past is None or not self.past.recorded:
            return None
        return self.past.open(self.tokenizer)

    def load(self, *, forgetful: bool = False) -> Drafter:
        """Create the drafter; with `forgetful` it adds no past requests."""
        if self.spec.make is not None:
            return require_drafter(self.spec.make())  # type: ignore[no-any-return]
        past = self.recorded_past
        if past is not None:
            past = past.copy(forgetful=forgetful or past.forgetful)
        elif self.past is not None:
            past = self.past.open(self.tokenizer, forgetful=forgetful)
        return make_drafter(self.spec, self.artifacts, past, self.tokenizer)

    @property
    def takes_references(self) -> bool:
        if self.spec.make is not None:
            return bool(getattr(self.load(), "takes_references", False))
        return DRAFTERS[self.spec.name].references

    def with_default(self, option: str, value: Any) -> DrafterChoice:
        """Return the choice with an option set, unless it was given or is unknown."""
        spec = self.spec
        if spec.make is not None or option in spec.options:
            return self
        if not hasattr(DRAFTERS[spec.name].options, option):
            return self
        return replace(self, spec=replace(spec, options={**spec.options, option: value}))

    def __repr__(self) -> str:
        return f"<DrafterChoice {self.label} over {join_some(self.names) or 'the live context'}>"


def choose_drafter(
    drafter: str | Drafter | Callable[[], Drafter] | None = None,
    tokenizer: Any = None,
    artifacts: Sources | Sequence[Given] | Given = (),
    *,
    datastores: Sequence[Given] = (),
    frozen_table: Given | None = None,
    bigram: Given | None = None,
    unigram: Given | None = None,
    history: str | Path | None = None,
    history_tokens: int = HISTORY_TOKENS,
    store: bool = True,
    reporter: Reporter = NOTEBOOK_BARS,
    load_model: LoadModel | None = None,
) -> DrafterChoice:
    """Choose a drafter, `NAME` or `NAME:OPTION=VALUE,...` (default: blend), and its artifacts.

    `drafter` may also be an object, or a function that creates one. `tokenizer`, which artifacts
    must match: a record, a tokenizer, a loaded model or a model's name (default: the model of
    `ngramkit use`). Artifacts: as in `decode` (default: those under artifacts/). `load_model`
    returns the model if a table may be read off it.

    Raises UsageError for an unknown drafter or option, ArtifactError for an artifact of another
    tokenizer or a missing one.
    """
    sources = given_sources(
        artifacts, datastores=datastores, frozen_table=frozen_table, bigram=bigram,
        unigram=unigram, history=history, history_tokens=history_tokens, store=store,
    )  # fmt: skip
    return choose_from_sources(drafter, _tokenizer_record(tokenizer), sources, reporter, load_model)


def choose_from_sources(
    drafter: Any,
    tokenizer: TokenizerRecord,
    sources: Sources,
    reporter: Reporter = SILENT,
    load_model: LoadModel | None = None,
    *,
    may_lack: bool = False,
) -> DrafterChoice:
    """Choose as `choose_drafter` does, from resolved sources; `drafter` may be a DrafterSpec.

    With `may_lack` the choice holds a MissingSourceError instead of raising it.
    """
    is_default = drafter is None or (isinstance(drafter, str) and not drafter)
    spec = DrafterSpec.parse(DEFAULT_DRAFTER if is_default else drafter)
    if spec.make is not None:
        return DrafterChoice(spec.label, spec, tokenizer)
    entry, past = DRAFTERS[spec.name], sources.past
    if "past" in entry.sources:
        past.require_usable(tokenizer)
    if any(getattr(sources, role) for role in entry.artifacts):
        by_role = open_given(sources, entry.artifacts, reporter)
    else:
        try:
            by_role = _use_defaults_or_build(spec.name, tokenizer, reporter, load_model)
        except MissingSourceError as error:
            if not may_lack:
                raise
            return DrafterChoice(spec.label, spec, tokenizer, absent=error)
        _note_small_or_partial(by_role, reporter)
    choice = DrafterChoice(spec.label, spec, tokenizer, by_role)
    for artifact in choice.opened:
        artifact.tokenizer.require(tokenizer, str(artifact.path))
    _note_unused_sources(spec.name, sources, reporter)
    if "past" in entry.sources and (past.path or past.grows or entry.required):
        if past.history(tokenizer) is None and past.path is not None:
            reporter.note(f"no history at {past.path} yet: no past requests")
        choice = replace(choice, past=past)
    default = " (default)" if is_default else ""
    over = join_some([_describe_artifact(artifact) for artifact in choice.opened])
    reporter.note(f"drafter: {spec}{default}{over and ' over '}{over}")
    return choice


def choose_again_if_built(choose_all: Callable[[], T], reporter: Reporter) -> T:
    """Choose again if artifacts were built meanwhile, so that each drafter knows all of them."""
    before = {found.path for found in artifacts_in(AUTOMATIC)}
    chosen = choose_all()
    if before == {found.path for found in artifacts_in(AUTOMATIC)}:
        return chosen
    reporter.note("artifacts were built: choosing all drafters again")
    return choose_all()


def drafts_private_texts(sources: Sources, choices: Iterable[DrafterChoice]) -> bool:
    """Return whether drafts may come from a history or a private artifact."""
    opened = (each for choice in choices for each in choice.opened)
    return sources.past.path is not None or any(each.manifest.private for each in opened)


def _note_unused_sources(drafter: str, sources: Sources, reporter: Reporter) -> None:
    if drafter == "none":  # the baseline shares the sources of other drafters
        return
    entry, past = DRAFTERS[drafter], sources.past
    for role, kind in KIND_OF_ROLE.items():
        if role not in entry.sources and getattr(sources, role):
            reporter.note(f"{drafter} does not draft from a {kind}: it is not used")
    if "past" not in entry.sources and past.path is not None:
        reporter.note(f"{drafter} does not learn from past requests: {past.path} is not used")
    searched = past.path or ("past" in entry.sources and (past.grows or entry.required))
    if past.tokens != HISTORY_TOKENS and not searched:
        reporter.note(f"history_tokens {past.tokens:,} is not used: no history is given")


def _tokenizer_record(given: Any) -> TokenizerRecord:
    if given is None or isinstance(given, str | Path):
        from ngramkit.corpus.tokenizer import load_tokenizer

        given = load_tokenizer(chosen_model(given).name)
    return record_of(getattr(given, "tokenizer", given))


def require_named(sources: Sources, reporter: Reporter = SILENT) -> None:
    """Raise ArtifactError for a missing named artifact or a wrong kind."""
    open_given(sources, KIND_OF_ROLE, reporter)


def _use_defaults_or_build(
    name: str, tokenizer: TokenizerRecord, reporter: Reporter, load_model: LoadModel | None
) -> dict[str, list[Artifact]]:
    entry = DRAFTERS[name]
    roles = [role for role in KIND_OF_ROLE if role in entry.sources]
    automatic = artifacts_in(AUTOMATIC) if tokenizer.id == DEFAULT_MODEL else ()
    taken, left_out = select_default_artifacts(
        [*artifacts_in(ARTIFACTS), *automatic], roles, tokenizer
    )
    for line in left_out:
        reporter.note(f"left out: {line}")
    by_role = {role: [*map(open_artifact_folder, paths)] for role, paths in taken.items() if paths}
    of_corpora = [role for role in roles if role in ("datastores", "frozen_table")]
    wanted = of_corpora[:1] if len(roles) > 1 else roles
    if not wanted or any(role in by_role for role in of_corpora or roles):
        return by_role
    role = wanted[0]
    try:
        artifact = build_missing(KIND_OF_ROLE[role], tokenizer, reporter, load_model)
    except ArtifactError as error:
        if entry.required:
            raise MissingSourceError(
                str(error), error.hint, needs=a_kind(KIND_OF_ROLE[role])
            ) from error
        reporter.note(f"{error}; drafting without one. {error.hint}")
        return by_role
    return {role: [artifact], **by_role}


def _note_small_or_partial(by_role: Mapping[str, Sequence[Artifact]], reporter: Reporter) -> None:
    """Report default artifacts of few tokens, or of a part of their corpus."""
    for artifact in (each for role in by_role for each in by_role[role]):
        manifest = artifact.manifest
        tokens = manifest.counts.get("tokens", FEW_TOKENS)
        if tokens < FEW_TOKENS and not KINDS[artifact.kind].of_model:
            reporter.note(
                f"{artifact.where} holds only {counted(tokens, 'token')}: hardly any draft will "
                "come from it"
            )
        if part := selection_text(manifest.corpus):
            reporter.note(f"{artifact.where} holds only a part of its corpus ({part})")


def _describe_artifact(artifact: Artifact) -> str:
    tokens = artifact.manifest.counts.get("tokens")
    if tokens is None:
        return artifact.where
    part = selection_text(artifact.manifest.corpus)
    return f"{artifact.where} ({counted(tokens, 'token')}{part and f', {part}'})"


def build_missing(
    kind: str, tokenizer: TokenizerRecord, reporter: Reporter, load_model: LoadModel | None = None
) -> Artifact:
    """Build an artifact of `kind`, or raise ArtifactError with the command to run."""
    missing = f"no {kind} for {tokenizer.id} under {ARTIFACTS}/"
    if KINDS[kind].of_model:
        return _compute_table_if_quick(kind, tokenizer, missing, reporter, load_model)
    from ngramkit.builders.datastore import build_datastore
    from ngramkit.builders.frozen import build_frozen

    builders: Any = {"datastore": build_datastore, "frozen-table": build_frozen}
    store = largest_whole_store_of(tokenizer, kind, reporter)
    if kind not in builders or (store is None and tokenizer.id != DEFAULT_MODEL):
        raise ArtifactError(missing, f"Run: {command_to_build(kind, tokenizer.id)}")
    reporter.note(f"{missing}: building one from {CORPUS if store is None else store.path}")
    if store is None:
        store = _tokenize_stdlib(reporter)
    corpus = corpus_name(store.manifest.corpus, store.path.name)
    selection = selection_name(store.manifest.corpus)
    place = default_place(corpus, selection, tokenizer.id, kind, folder=AUTOMATIC)
    with _without_output_hints(place):
        artifact: Artifact = builders[kind](store, place, reporter=reporter, force=True)
    return artifact


@contextmanager
def _without_output_hints(place: Path) -> Iterator[None]:
    """Replace hints to choose another output: nobody chose this one."""
    try:
        yield
    except NgramkitError as error:
        if "out" in error.option:
            hint = f"Move {place} away, or name the artifacts to draft from."
            if isinstance(error, BusyError):
                hint = "Wait for it, or name the artifacts to draft from."
            raise InputError(str(error), hint) from error
        raise


def command_to_build(kind: str, model: str) -> str:
    """Return the command that builds an artifact; MODEL for a folder that has no weights."""
    corpus = "" if KINDS[kind].of_model else "--corpus CORPUS --model "
    folder = Path(model)
    if KINDS[kind].of_model and folder.is_dir() and not (folder / FILES_OF_MODELS[0]).is_file():
        model = "MODEL"
    return f"ngramkit {KINDS[kind].command} {corpus}{model}"


def largest_whole_store_of(
    tokenizer: TokenizerRecord, kind: str, reporter: Reporter
) -> TokenStore | None:
    """Return the largest matching token store; report partial ones, probably trials."""
    fitting = []
    for folder in artifacts_in(ARTIFACTS):
        manifest = folder.manifest
        if (
            manifest is None
            or manifest.kind != TokenStore.kind
            or not manifest.tokenizer.is_same_tokenizer(tokenizer)
        ):
            continue
        if part := selection_text(manifest.corpus):
            reporter.note(
                f"{folder.path} is not used: it holds only a part of its corpus ({part}); to use "
                f"it, run: ngramkit {KINDS[kind].command} --tokens {folder.path}"
            )
        else:
            fitting.append((manifest.counts.get("tokens", 0), folder.path))
    return TokenStore.open(max(fitting)[1]) if fitting else None


def _tokenize_stdlib(reporter: Reporter) -> TokenStore:
    from ngramkit.builders.tokens import tokenize
    from ngramkit.corpus.open import open_corpus

    place = default_place(CORPUS, DEFAULT_MODEL, "tokens", folder=AUTOMATIC)
    with _without_output_hints(place):
        return tokenize(open_corpus(CORPUS), DEFAULT_MODEL, place, reporter=reporter, force=True)


def _compute_table_if_quick(
    kind: str,
    tokenizer: TokenizerRecord,
    missing: str,
    reporter: Reporter,
    load_model: LoadModel | None,
) -> Artifact:
    """Read a table off the model, or raise ArtifactError(missing) if that takes long."""
    weights = 0
    with suppress(NgramkitError):  # the tokenizer's name need not be a model's
        source = Path(resolve_model(tokenizer.id))
        weights = sum(file.stat().st_size for file in source.glob("*.safetensors"))
    if load_model is None or not 0 < weights * tokenizer.vocabulary <= MAX_MODEL_WORK.get(kind, 0):
        raise ArtifactError(missing, f"Run: {command_to_build(kind, tokenizer.id)}")
    reporter.note(f"{missing}: computing one from the model")
    model = load_model()
    from ngramkit.builders.model_bigram import build_model_bigram
    from ngramkit.builders.model_unigram import build_model_unigram

    place = default_place(tokenizer.id, kind, folder=AUTOMATIC)
    builders: Any = {"model-bigram": build_model_bigram, "model-unigram": build_model_unigram}
    options: Any = {"reporter": reporter, "force": True}
    with _without_output_hints(place):
        return builders[kind](model.model, model.tokenizer, place, **options).table  # type: ignore[no-any-return]
