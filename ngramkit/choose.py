"""The choice of a drafter and its artifacts, for the command line and for Python.

Without a name it is blend. Without named artifacts a drafter gets those under artifacts/ that have
the tokenizer's ids: every datastore that adds a corpus, the largest frozen table that adds to them,
the model's own tables before those of another model; of an artifact and what was pruned from it the
largest; of a merge nothing that went into it. The reporter is told what is taken, what is left out,
and where it is next to nothing.

An artifact that the drafter needs and that is missing is made where nobody's choice is needed for
that: for the embedded model from the standard library, for any other from a token store at hand, or
read off the model where that takes seconds. Else an error names the command to run: a corpus that
nobody chose would decide what the drafter is worth. Artifacts made here lie under
artifacts/automatic/, see ngramkit.formats.outputs, and only the embedded model takes them up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ngramkit.basics.errors import ArtifactError, require_list
from ngramkit.basics.kinds import KIND_OF_ROLE, KINDS, ROLES, a_kind
from ngramkit.basics.models import DEFAULT, HUB_IDS, chosen_model, resolve_model
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.public import public_with
from ngramkit.basics.terminal_text import many
from ngramkit.drafters.checked import require_drafter
from ngramkit.drafters.options import OPTIONS
from ngramkit.drafters.registry import (
    DEFAULT_DRAFTER,
    DRAFTERS,
    DrafterSpec,
    drafter_options,
    load_drafter,
    require_kind,
)
from ngramkit.drafters.sources import (
    HISTORY_TOKENS,
    Given,
    PastUse,
    Sources,
    SourceWords,
    given_sources,
)
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.manifest import Manifest
from ngramkit.formats.opening import open_folder
from ngramkit.formats.outputs import (
    ARTIFACTS,
    AUTOMATIC,
    Found,
    artifacts_in,
    corpus_name,
    default_place,
)
from ngramkit.formats.tokenizer_record import TokenizerRecord, record_of
from ngramkit.formats.tokens import TokenStore

if TYPE_CHECKING:
    from ngramkit.drafters.base import Drafter

FEW = 10_000  # tokens of a corpus, in which hardly any phrase of another text is found
SHOWN = 5  # artifacts in a line, and lines of artifacts that were left out
CORPUS = "python-stdlib"  # what the embedded model was made for
# Bytes of weights times tokens of the vocabulary: a bigram table is one pass per token.
CHEAP = {"model-bigram": 2e11, "model-unigram": 2e14}

LoadModel = Callable[[], Any]  # returns a decode.load.LanguageModel


class MissingSourceError(ArtifactError):
    """An artifact that a drafter needs, that nobody named, and that is not to be made here.

    `needs`: its kind, in words.
    """

    def __init__(self, message: str, hint: str = "", *, needs: str) -> None:
        super().__init__(message, hint)
        self.needs = needs


@dataclass(frozen=True)
class DrafterChoice:
    """A drafter's name and options, and its sources; `load` makes the drafter."""

    label: str  # its name in results: with the options that were given
    spec: DrafterSpec
    tokenizer: TokenizerRecord
    artifacts: Mapping[str, Any] = field(default_factory=dict)  # by role, opened
    past: PastUse | None = None  # None: it does not learn from finished requests
    made: Callable[[], Drafter] | None = None  # returns a drafter of the caller's, in place of that
    absent: MissingSourceError | None = None  # the artifact that it needs and that is not there

    @property
    def learns(self) -> bool:
        """Return whether what it learns from a request changes its later drafts of others."""
        if self.past is not None:
            return self.past.store
        keep = {each.name: each.default for each in OPTIONS.get(self.spec.name, ())}.get("keep")
        return bool(self.spec.options.get("keep", keep)) and self.made is None

    @property
    def needs_evidence(self) -> bool:
        """Return whether it drafts little or nothing where no model gives it Evidence."""
        return self.made is None and DRAFTERS[self.spec.name].needs_evidence

    def missing(self, *, evidence: bool, learns: bool, references: bool = False) -> str | None:
        """Return what the drafter needs and does not have, None if nothing.

        `evidence`: a model or a record of its top-k gives it Evidence; `learns`: finished requests
        join its past requests; `references`: the requests have some.
        """
        if self.made is not None:
            return None
        if self.absent is not None:
            return f"needs {self.absent.needs}"
        entry = DRAFTERS[self.spec.name]
        if entry.needs_evidence and not evidence:
            return "needs the model's top-k (--oracle)"
        if entry.required and "past" in entry.sources and not learns:
            past = None if self.past is None else self.past.history(self.tokenizer)
            empty = past is None or not past.log.read().requests
            if empty and not (entry.references and references):
                return "needs past requests (--history)"
        return None

    @property
    def opened(self) -> list[Artifact]:
        """Return the artifacts, role by role."""
        artifacts: list[Artifact] = []
        for value in self.artifacts.values():
            artifacts += value if isinstance(value, list) else [value]
        return artifacts

    @property
    def names(self) -> list[str]:
        """Return where the artifacts are, and the history."""
        history = [] if self.past is None or self.past.path is None else [str(self.past.path)]
        return [*(artifact.where for artifact in self.opened), *history]

    @property
    def builds(self) -> list[str]:
        """Return the artifacts with the beginnings of their builds, and the history."""
        builds = [f"{each.where} ({each.manifest.build[:12]})" for each in self.opened]
        return [*builds, *self.names[len(builds) :]]

    def load(self, *, forgetful: bool = False) -> Drafter:
        """Make the drafter, new but for its past requests; with `forgetful` it remembers none."""
        if self.made is not None:
            return require_drafter(self.made())  # type: ignore[no-any-return]
        past = self.past.open(self.tokenizer, forgetful=forgetful) if self.past else None
        sources = {**self.artifacts, "past": past, "tokenizer": self.tokenizer}
        return load_drafter(self.spec.name, **sources, **self.spec.options)

    def with_default(self, option: str, value: Any) -> DrafterChoice:
        """Return the choice with an option set, where the drafter has it and the caller has not
        set it."""
        if self.made is not None or option in self.spec.options:
            return self
        if option not in {declared.name for declared in drafter_options(self.spec.name)}:
            return self
        options = {**self.spec.options, option: value}
        return replace(self, spec=DrafterSpec(self.spec.name, options))

    def __repr__(self) -> str:
        return f"<DrafterChoice {self.label} over {join_some(self.names) or 'the live context'}>"


@public_with(given_sources, SourceWords)
def choose_drafter(
    drafter: str | Drafter | Callable[[], Drafter] | None = None,
    tokenizer: Any = None,
    artifacts: Sources | Sequence[Given] | Given = (),
    *,
    reporter: Reporter = SILENT,
    load_model: LoadModel | None = None,
    **words: Unpack[SourceWords],
) -> DrafterChoice:
    """Choose a drafter, `NAME` or `NAME:OPTION=VALUE,...` (default: blend), and its artifacts.

    A drafter of the caller's own, or a function that makes one, is taken as it is.
    `tokenizer` decides which artifacts fit: a record, a tokenizer, a loaded model or the name of
    one; None: as `basics.models.chosen_model`. `artifacts`, or artifacts by role in the words of
    `decode`, are drafted from in place of those that are found; past requests only where they are
    named. `load_model` returns the loaded model, where a table may be read off it.

    Raises UsageError for an unknown drafter or option, ArtifactError where an artifact is of
    another tokenizer, or one is needed, missing, and not to be made here.
    """
    if drafter is not None and not isinstance(drafter, str):
        return given_drafter(drafter, _record(tokenizer))
    spec, tokenizer = DrafterSpec.parse(drafter or DEFAULT_DRAFTER), _record(tokenizer)
    entry, sources = DRAFTERS[spec.name], given_sources(artifacts, **words)
    named = {role: getattr(sources, role) for role in KIND_OF_ROLE if role in entry.sources}
    past = sources.past
    if "past" in entry.sources:
        past.require_usable(tokenizer)
    if any(named.values()):
        by_role = _open_named(named, reporter)
    else:
        by_role = _find(spec.name, tokenizer, reporter, load_model)
        _note_few_tokens(by_role, reporter)
    single = {role: found if role == "datastores" else found[0] for role, found in by_role.items()}
    choice = DrafterChoice(str(spec), spec, tokenizer, single)
    for artifact in choice.opened:
        artifact.tokenizer.require(tokenizer, str(artifact.path))
    _note_unused(spec.name, sources, reporter)
    default = "" if drafter else " (default)"
    over = join_some([_describe(artifact) for artifact in choice.opened])
    if "past" in entry.sources and (past.path or past.grows or entry.required):
        if past.history(tokenizer) is None and past.path is not None:
            reporter.note(f"there is no history at {past.path} yet: no past requests")
        choice = replace(choice, past=past)
    elif past.path is None and past.tokens != HISTORY_TOKENS and spec.name != "none":
        reporter.note(
            f"no history is named, whose newest {past.tokens:,} tokens were to be searched"
        )
    reporter.note(f"drafter: {spec}{default}{over and ' over '}{over}")
    return choice


def asked_drafters(drafters: Any) -> list[Any]:
    """Return a list of one drafter or several, by name or made by the caller.

    Raises UsageError for an unknown name or option and for what is no drafter, before anything is
    read.
    """
    listed = listed_drafters(drafters)
    for drafter in listed:
        if isinstance(drafter, str):
            DrafterSpec.parse(drafter)
    return listed


def listed_drafters(drafters: Any) -> list[Any]:
    """Return a list of one drafter or several. Raises UsageError for one that is none, but for its
    name."""
    single = isinstance(drafters, str) or callable(drafters) or hasattr(drafters, "draft")
    if not single:
        require_list("drafters", drafters)
    listed = [drafters] if single else list(drafters)
    for drafter in listed:
        if not isinstance(drafter, str):
            require_drafter(drafter, or_maker=True)
    return listed


def given_drafter(drafter: Any, tokenizer: TokenizerRecord) -> DrafterChoice:
    """Choose a drafter of the caller's own, or what a function of theirs makes."""
    require_drafter(drafter, or_maker=True)
    is_one = hasattr(drafter, "draft") and not isinstance(drafter, type)
    name = type(drafter).__name__ if is_one else getattr(drafter, "__name__", "drafter")
    made = (lambda: drafter) if is_one else drafter
    return DrafterChoice(name, DrafterSpec(name), tokenizer, made=made)


def drafts_from_evidence(drafter: Any) -> bool:
    """Return whether a drafter, by name, drafts little or nothing without Evidence."""
    return isinstance(drafter, str) and DRAFTERS[DrafterSpec.parse(drafter).name].needs_evidence


def absent_drafter(
    drafter: str, tokenizer: TokenizerRecord, error: MissingSourceError | None = None
) -> DrafterChoice:
    """Choose a drafter, by name, that lacks evidence or an artifact: it has no figures."""
    spec = DrafterSpec.parse(drafter)
    return DrafterChoice(str(spec), spec, tokenizer, absent=error)


def distinct(choices: Iterable[DrafterChoice]) -> list[DrafterChoice]:
    """Return the choices with each label once: equal names are one choice; of the caller's own
    drafters, the second is `NAME-2`."""
    by_label: dict[str, DrafterChoice] = {}
    for choice in choices:
        label, number = choice.label, 2
        while choice.made is not None and label in by_label:
            label, number = f"{choice.label}-{number}", number + 1
        by_label.setdefault(label, replace(choice, label=label))
    return list(by_label.values())


def _note_unused(drafter: str, sources: Sources, reporter: Reporter) -> None:
    """Tell the reporter what was named of which the drafter makes no use."""
    entry = DRAFTERS[drafter]
    if entry is DRAFTERS["none"]:  # what others are compared with
        return
    for role, kind in KIND_OF_ROLE.items():
        if role not in entry.sources and getattr(sources, role):
            reporter.note(f"{drafter} does not draft from a {kind}: what was named is left out")
    if "past" not in entry.sources and sources.past.path is not None:
        reporter.note(f"{drafter} does not learn from past requests: {sources.past.path} is left")


def _record(given: Any) -> TokenizerRecord:
    """Return the record of a TextTokenizer, a LanguageModel, a model's name, or one itself."""
    if given is None or isinstance(given, str | Path):
        from ngramkit.corpus.tokenizer import load_tokenizer

        given = load_tokenizer(chosen_model(None if given is None else str(given)).name)
    return record_of(getattr(given, "tokenizer", given))


def require_named(sources: Sources, reporter: Reporter = SILENT) -> None:
    """Raise ArtifactError for a named artifact that is missing or of another kind than its role."""
    _open_named({role: getattr(sources, role) for role in KIND_OF_ROLE}, reporter)


def _open_named(named: Mapping[str, Any], reporter: Reporter) -> dict[str, list[Artifact]]:
    """Open the artifacts that the caller named, by role. Raises ArtifactError for a wrong kind."""
    from ngramkit.remote.fetch import open_fetched

    by_role: dict[str, list[Artifact]] = {}
    for role, given in named.items():
        sources = list(given) if role == "datastores" else [given] if given is not None else []
        if sources:
            by_role[role] = [open_fetched(source, reporter=reporter) for source in sources]
            for artifact in by_role[role]:
                require_kind(artifact.where, artifact.kind, role)
    return by_role


def _find(
    name: str,
    tokenizer: TokenizerRecord,
    reporter: Reporter,
    load_model: LoadModel | None,
) -> dict[str, list[Artifact]]:
    """Open the artifacts under artifacts/ that a drafter takes, by role; make one that it needs."""
    entry = DRAFTERS[name]
    roles = [role for role in KIND_OF_ROLE if role in entry.sources]
    automatic = artifacts_in(AUTOMATIC) if tokenizer.id == DEFAULT else ()
    taken, left_out = select([*artifacts_in(ARTIFACTS), *automatic], roles, tokenizer)
    for line in left_out:
        reporter.note(f"left out: {line}")
    by_role = {role: [*map(open_folder, paths)] for role, paths in taken.items() if paths}
    of_corpora = [role for role in roles if role in ("datastores", "frozen_table")]
    wanted = of_corpora[:1] if len(roles) > 1 else roles
    if not wanted or any(role in by_role for role in of_corpora or roles):
        return by_role
    role = wanted[0]
    try:
        artifact = provide(KIND_OF_ROLE[role], tokenizer, reporter, load_model)
    except ArtifactError as error:
        if entry.required:
            raise MissingSourceError(
                str(error), error.hint, needs=a_kind(KIND_OF_ROLE[role])
            ) from error
        reporter.note(f"{error}: drafting from the text itself; {error.hint}")
        return by_role
    return {role: [artifact], **by_role}


def _note_few_tokens(by_role: Mapping[str, Sequence[Artifact]], reporter: Reporter) -> None:
    """Note the corpora of which next to nothing is in the artifacts."""
    for artifact in (each for role in by_role for each in by_role[role]):
        tokens = artifact.manifest.counts.get("tokens", FEW)
        if tokens < FEW and not KINDS[artifact.kind].of_model:
            reporter.note(
                f"{artifact.where} holds {many(tokens, 'token')} alone: hardly any draft will come "
                "from it"
            )


def _describe(artifact: Artifact) -> str:
    tokens = artifact.manifest.counts.get("tokens")
    if tokens is None:
        return artifact.where
    part = _part(artifact.manifest.corpus)
    return f"{artifact.where} ({many(tokens, 'token')}{part and f', {part}'})"


def _part(corpus: Mapping[str, Any]) -> str:
    """Return the options by which an artifact holds only a part of its corpus; "" without any."""
    cuts = (f"{name} {corpus[name]}" for name in ("sample", "limit") if name in corpus)
    return ", ".join(cuts)


def select(
    candidates: Iterable[Found], roles: Sequence[str], tokenizer: TokenizerRecord
) -> tuple[dict[str, list[Path]], list[str]]:
    """Return the folders to draft from by role, and lines on what of those kinds was left out.

    Takes every datastore that adds a corpus; of the other kinds one, the model's own before the
    largest.
    """
    taken: dict[str, list[Path]] = {role: [] for role in roles}
    left_out: list[str] = []
    others: list[str] = []  # tokenizers
    corpora: dict[Any, Path] = {}
    wholes: dict[tuple[str, str], tuple[Path, Manifest]] = {}  # by role, and what was pruned
    by_role: dict[str, list[tuple[Path, Manifest]]] = {role: [] for role in roles}
    for folder in candidates:
        manifest = folder.manifest
        if manifest is None:
            left_out.append(f"{folder.path} ({folder.problem})")
        elif ROLES.get(manifest.kind) in by_role:
            if manifest.tokenizer.agrees(tokenizer):
                by_role[ROLES[manifest.kind]].append((folder.path, manifest))
            else:
                others.append(manifest.tokenizer.id)
    for role, fitting in by_role.items():
        merges: list[tuple[Path, list[Any]]] = []  # and their parts' corpora
        for path, manifest in sorted(
            fitting, key=lambda pair: _rank(pair[0], pair[1], tokenizer.id)
        ):
            key = manifest.corpus_key if manifest.corpus else None
            twin = corpora.get(key) if key else None
            whole = wholes.setdefault((role, _whole_build(manifest)), (path, manifest))
            merge = next((at for at, parts in merges if key and manifest.corpus in parts), None)
            if twin is not None:
                left_out.append(f"{path} (of the same corpus as {twin})")
            elif whole[0] != path:
                copy = whole[1].build == _whole_build(manifest)
                of = "a pruned copy of" if copy else "pruned from the same artifact as"
                left_out.append(f"{path} ({of} {whole[0]})")
            elif merge is not None:
                left_out.append(f"{path} (a part of {merge})")
            elif role != "datastores" and taken[role]:
                better = "larger" if role == "frozen_table" else "the model's own, or larger"
                left_out.append(f"{path} ({taken[role][0]} is {better})")
            else:
                taken[role].append(path)
                merges.append((path, _parts(manifest.corpus)))
                if key:
                    corpora.setdefault(key, path)
    if others:
        left_out.append(f"{len(others)} for other tokenizers ({join_some(sorted(set(others)))})")
    more = [f"{len(left_out) - SHOWN + 1} more"] if len(left_out) > SHOWN else []
    return taken, [*left_out[: SHOWN - len(more)], *more]


def _whole_build(manifest: Manifest) -> str:
    """Return the build of the artifact that was pruned to this one, its own where none was."""
    build: Any = manifest.build
    pruned = manifest.corpus.get("pruned")
    while isinstance(pruned, Mapping) and isinstance(of := pruned.get("of"), Mapping):
        build, pruned = of.get("build"), of.get("pruned")
    return str(build)


def _parts(corpus: Mapping[str, Any]) -> list[Any]:
    """Return the corpora that were merged to this one, and theirs."""
    merged = corpus.get("merged")
    parts = merged if isinstance(merged, list) else []
    return [*parts, *(each for part in parts if isinstance(part, dict) for each in _parts(part))]


def _rank(path: Path, manifest: Manifest, model: str) -> tuple[Any, ...]:
    """Return a key that sorts the model's own tables first, then by tokens, bytes and name."""
    own = manifest.parameters.get("model") in (model, HUB_IDS.get(model))
    return (not own, -manifest.counts.get("tokens", 0), -manifest.bytes, str(path))


def join_some(names: Sequence[str]) -> str:
    """Return the first SHOWN names in a line, and the number of the others."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def provide(
    kind: str, tokenizer: TokenizerRecord, reporter: Reporter, load_model: LoadModel | None = None
) -> Artifact:
    """Make an artifact of `kind`, or open the one that was made here before.

    Raises ArtifactError, with the command to run, where that would take a corpus that nobody chose,
    a download or long work.
    """
    missing = f"no {kind} for {tokenizer.id} under {ARTIFACTS}/"
    if KINDS[kind].of_model:
        return _read_off_model(kind, tokenizer, missing, reporter, load_model)
    from ngramkit.builders.datastore import build_datastore
    from ngramkit.builders.frozen import build_frozen

    builders: Any = {"datastore": build_datastore, "frozen-table": build_frozen}
    store = token_store_of(tokenizer, kind, reporter)
    if kind not in builders or (store is None and tokenizer.id != DEFAULT):
        raise ArtifactError(missing, f"run: {command(kind, tokenizer.id)}")
    reporter.note(f"{missing}: building one from {CORPUS if store is None else store.path}")
    if store is None:
        store = _stdlib_store(reporter)
    corpus = corpus_name(store.manifest.corpus, store.path.name)
    place = default_place(corpus, tokenizer.id, kind, folder=AUTOMATIC)
    artifact: Artifact = builders[kind](store, place, reporter=reporter, force=True)
    return artifact


def command(kind: str, model: str) -> str:
    """Return the command line that builds an artifact of `kind`."""
    corpus = "" if KINDS[kind].of_model else "--corpus CORPUS --model "
    return f"ngramkit {KINDS[kind].command} {corpus}{model}"


def token_store_of(tokenizer: TokenizerRecord, kind: str, reporter: Reporter) -> TokenStore | None:
    """Return the largest token store under artifacts/ with the tokenizer's ids, or None.

    A part of a corpus may be left from a trial. It is noted with the command that builds an
    artifact of `kind` from it, and not used.
    """
    fitting = []
    for folder in artifacts_in(ARTIFACTS):
        manifest = folder.manifest
        if (
            manifest is None
            or manifest.kind != TokenStore.kind
            or not manifest.tokenizer.agrees(tokenizer)
        ):
            continue
        if part := _part(manifest.corpus):
            reporter.note(
                f"{folder.path} is not used, it holds only a part of its corpus ({part}); to draft "
                f"from it, run: ngramkit {KINDS[kind].command} --tokens {folder.path}"
            )
        else:
            fitting.append((manifest.counts.get("tokens", 0), folder.path))
    return TokenStore.open(max(fitting)[1]) if fitting else None


def _stdlib_store(reporter: Reporter) -> TokenStore:
    from ngramkit.builders.tokens import tokenize
    from ngramkit.corpus.open import open_corpus

    place = default_place(CORPUS, DEFAULT, "tokens", folder=AUTOMATIC)
    return tokenize(open_corpus(CORPUS), DEFAULT, place, reporter=reporter, force=True)


def _read_off_model(
    kind: str,
    tokenizer: TokenizerRecord,
    missing: str,
    reporter: Reporter,
    load_model: LoadModel | None,
) -> Artifact:
    """Read a table off the model. Raises ArtifactError, `missing`, where that takes long."""
    from ngramkit.builders.model_bigram import build_model_bigram
    from ngramkit.builders.model_unigram import build_model_unigram

    source = Path(resolve_model(tokenizer.id))
    weights = sum(file.stat().st_size for file in source.glob("*.safetensors"))
    if load_model is None or not 0 < weights * tokenizer.vocabulary <= CHEAP.get(kind, 0):
        raise ArtifactError(missing, f"run: {command(kind, tokenizer.id)}")
    reporter.note(f"{missing}: reading one off the model")
    model = load_model()
    place = default_place(tokenizer.id, kind, folder=AUTOMATIC)
    builders: Any = {"model-bigram": build_model_bigram, "model-unigram": build_model_unigram}
    options: Any = {"reporter": reporter, "force": True}
    return builders[kind](model.model, model.tokenizer, place, **options).table  # type: ignore[no-any-return]
