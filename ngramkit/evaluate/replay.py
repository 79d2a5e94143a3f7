"""`ngramkit.replay`: recorded answers replayed with several drafters and budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from numbers import Integral
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from ngramkit.basics.arguments import check_fields, check_types, renamed
from ngramkit.basics.errors import UsageError, require_between, require_list
from ngramkit.basics.kinds import ROLES
from ngramkit.basics.machine import require_package
from ngramkit.basics.models import named_model
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import Reporter
from ngramkit.basics.results import Entries, Summarized
from ngramkit.basics.terminal_text import counted, join_some
from ngramkit.choose import (
    DrafterChoice,
    MissingSourceError,
    choose,
    choose_again_if_built,
    drafts_private_texts,
)
from ngramkit.corpus.chat import Template, require_template
from ngramkit.corpus.tokenizer import TextTokenizer, load_tokenizer
from ngramkit.drafters.asked import AskedDrafter, asked_drafters, label_among
from ngramkit.drafters.base import Drafter
from ngramkit.drafters.registry import DEFAULT_DRAFTER, DRAFTERS
from ngramkit.drafters.sources import HISTORY_TOKENS, Given, Sources, given_sources
from ngramkit.drafters.spec import MAX_BUDGET, DrafterSpec
from ngramkit.evaluate.leakage import Leakage, without_leaks
from ngramkit.evaluate.provenance import Provenance, given_words, provenance_of
from ngramkit.evaluate.question_sets import pin_question_set
from ngramkit.evaluate.recorded_evidence import RecordedEvidence
from ngramkit.evaluate.records import (
    Record,
    Turn,
    read_records,
    require_files,
    require_questions,
    units_of,
)
from ngramkit.evaluate.replay_loop import replay_drafter, shuffle_records
from ngramkit.evaluate.replay_page import ReplayPage, require_page
from ngramkit.evaluate.replay_results import Replay
from ngramkit.evaluate.result_folder import Contents, replace_folder, require_free
from ngramkit.evaluate.result_tables import Table, steps_by_budget
from ngramkit.evaluate.statistics import Ratio, Units, ratios
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.tokenizer_record import TokenizerRecord, record_of
from ngramkit.logs.files import log_files
from ngramkit.logs.hub import is_dataset
from ngramkit.logs.read import NewestRequests
from ngramkit.remote.fetch import fetch_artifact

DEFAULT_BUDGETS = (8, 16, 32, 64, 96)  # draft nodes per pass

CONVERSATIONS = Units("conversations")
NOT_OPTIONS = ("reporter", "force")
Curves = Mapping[str, Sequence[Given]]  # name -> artifacts, each drafted from separately
ByBytes = dict[str, dict[str, list[tuple[int, float]]]]


@dataclass(frozen=True)
class KeepState:
    """Keep one drafter, which learns, for all requests.

    They are in order of time, or shuffled by `seed`, `repeat` times. `prompts`: remember prompts
    too.
    """

    seed: int | None = None
    repeat: int = 1
    prompts: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        require_between("repeat", self.repeat, 1)

    @classmethod
    def of(cls, given: KeepState | bool | None) -> KeepState | None:
        if isinstance(given, bool):
            return cls() if given else None
        if given is not None and not isinstance(given, KeepState):
            raise UsageError(
                f"keep_state must be True or a KeepState, got {given!r:.60}", option="keep_state"
            )
        return given

    def order(self, records: list[Record]) -> list[Record]:
        """Return the records in replay order."""
        if self.seed is None:
            length = 1 + max((turn.place for each in records for turn in each.turns), default=0)
            return [
                _with_evidence(each, lambda place, n=n: place + n * length)  # type: ignore[misc]
                for n in range(self.repeat)
                for each in records
            ]
        shuffled = shuffle_records(records * self.repeat, self.seed)
        return [
            _with_evidence(each, lambda place, n=n: n)  # type: ignore[misc]
            for n, each in enumerate(shuffled)
        ]


def _with_evidence(record: Record, place_of: Callable[[int], int]) -> Record:
    turns = [replace(turn, place=place_of(turn.place)) for turn in record.turns]
    return replace(record, turns=turns)


class Curve(NamedTuple):
    drafter: str
    name: str
    labels: tuple[str, ...]  # of its replays


class Replays(Entries[Replay], Summarized):
    """A Replay per drafter and budget. `baseline`: the drafter that ratios divide by."""

    def __init__(
        self,
        results: Sequence[Replay],
        leakage: Leakage,
        template: str | None,
        curves: Sequence[Curve] = (),
        *,
        kept_state: bool = False,
        units: Units = CONVERSATIONS,
        baseline: str | None = None,
    ) -> None:
        super().__init__(results)
        self.leakage, self.template, self.curves = leakage, template, curves
        self.kept_state, self.units, self.baseline = kept_state, units, baseline
        self.provenance: Provenance | None = None
        self.folder: Path | None = None

    @property
    def results(self) -> list[Replay]:
        return self._entries

    def summary(self) -> list[dict[str, Any]]:
        """Return a row per drafter and budget."""
        return [result.summary() for result in self.results]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row per drafter, budget and conversation."""
        for result in self.results:
            yield from result.rows()

    def ratios(self, budget: int | None = None) -> list[Ratio]:
        """Return tokens/step of drafters over each other, at `budget` (default: the largest).

        With a baseline each other drafter is divided by it, else each drafter by every later one.
        95 % intervals are over conversations or tasks; none if drafters kept their state.
        """
        nodes = budget or max(r.budget for r in self.results)
        return ratios(
            [
                (r.drafter, [t.tokens for t in r.by_record], [t.passes for t in r.by_record])
                for r in self.results
                if r.budget == nodes and r.comparable
            ],
            self.units,
            baseline=self.baseline,
        )

    def by_bytes(self, budget: int | None = None) -> ByBytes:
        """Return {drafter: {curve: [(bytes, tokens/step), ...]}}, smallest first."""
        return {
            drafter: {
                name: [(each.bytes, each.total.tokens_per_step) for each in line]
                for name, line in lines.items()
            }
            for drafter, lines in self._curves(budget).items()
        }

    def _curves(self, budget: int | None = None) -> dict[str, dict[str, list[Replay]]]:
        nodes = budget or max(r.budget for r in self)
        found = {r.drafter: r for r in self if r.budget == nodes and r.comparable}
        lines: dict[str, dict[str, list[Replay]]] = {}
        for curve in self.curves:
            line = [found[label] for label in curve.labels if label in found]
            line.sort(key=lambda each: (each.bytes, each.total.tokens_per_step))
            lines.setdefault(curve.drafter, {})[curve.name] = line
        return lines

    def plot(self, path: str | Path) -> None:
        """Draw tokens/step by budget and requests, or by bytes for curves."""
        from ngramkit.evaluate.plots import plot

        plot(self.results, Path(path), learning=self.kept_state, by_bytes=self._curves())

    def contents(self) -> Contents:
        """Return the content of their folder."""
        from ngramkit.evaluate.plots import replay_pictures

        return Contents(
            "replay",
            self._figures(),
            self.summary(),
            [self._table()],
            replay_pictures(self.results, learning=self.kept_state, by_bytes=self._curves()),
        )

    def _table(self) -> Table:
        title = "Tokens/step by draft nodes per pass"
        return steps_by_budget(self.results, "tokens-per-step", title)

    def _repr_html_(self) -> str:
        return self._table().html()

    def to_dict(self) -> dict[str, Any]:
        origin = {} if self.provenance is None else self.provenance.to_dict()
        return {**self._figures(), **origin}

    def _figures(self) -> dict[str, Any]:
        budgets = sorted({r.budget for r in self.results})
        return {
            "results": [result.to_dict() for result in self.results],
            "ratios": [
                {"budget": nodes, **each.to_dict()}
                for nodes in budgets
                for each in self.ratios(nodes)
            ],
            **({"by_bytes": self.by_bytes()} if self.curves else {}),
            "baseline": self.baseline,
            "template": self.template,
            "records": self.leakage.records,
            "leaked": self.leakage.leaked,
            "leaked_dropped": self.leakage.dropped,
        }

    def __repr__(self) -> str:
        best = max(r.budget for r in self.results)
        shown = ", ".join(
            f"{r.drafter} {r.total.tokens_per_step:.2f}" if r.comparable else f"{r.drafter} n/a"
            for r in self.results
            if r.budget == best
        )
        found = self.provenance.artifacts if self.provenance is not None else ()
        over = join_some([each["path"] for each in found])
        return (
            f"<Replays of {self.leakage.records} records; tokens/step at {best} nodes: {shown}"
            f"{over and f'; artifacts: {over}'}>"
        )


@renamed(oracle="evidence")
def replay(
    answers: str | Path | Sequence[str | Path] | Sequence[Record] | None = None,
    questions: str | Path | None = None,
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    where: Mapping[str, str] | None = None,
    model: str | Path | TextTokenizer | TokenizerRecord | None = None,
    drafters: Sequence[str | Callable[[], Drafter]] | str = DEFAULT_DRAFTER,
    budgets: Sequence[int] = DEFAULT_BUDGETS,
    artifacts: Sources | Curves | Sequence[Given] | Given = (),
    datastores: Sequence[Given] = (),
    frozen_table: Given | None = None,
    bigram: Given | None = None,
    unigram: Given | None = None,
    history: str | Path | None = None,
    history_tokens: int = HISTORY_TOKENS,
    store: bool = True,
    template: str = "auto",
    chain: bool = False,
    keep_state: KeepState | bool | None = None,
    drop_leaked: bool = False,
    limit: int | None = None,
    evidence: str | Path | None = None,
    baseline: str | Callable[[], Drafter] | None = None,
    out: str | Path | None = None,
    html: str | Path | None = None,
    force: bool = False,
    reporter: Reporter = NOTEBOOK_BARS,
) -> Replays:
    """Count the passes that drafters would have needed for recorded answers, without a model.

    `answers`, `questions`: see ngramkit.evaluate.records; or Records, with their TokenizerRecord as
    `model`. `format`, `columns`, `where`: see ngramkit.logs.read.read_log. `model`: whose tokenizer
    reads the answers (default: the model of `ngramkit use`). `template`: auto is the model's own,
    else the one known for its name.

    `evidence`: a folder of `record` instead of answers; its top-k is the evidence, and `model`, if
    given, verifies missing contexts. `drafters`: as in `choose_drafter`. Sources: as in `decode`;
    `artifacts` may be {curve: artifacts}. `budgets`: draft nodes per pass. `chain`: drafts are one
    path. `drop_leaked`: leave out answers that a datastore's corpus contains. `limit`: only the
    first records. `baseline`: ratios divide by this one of the drafters. `out`: a new folder for
    figures, tables and pictures, see evaluate.result_folder. `html`: a page with the first answers,
    pass by pass, at the first of `budgets`. `force` replaces what an earlier replay wrote.

    Raises UsageError for options that cannot work, InputError for files that cannot be read.
    """
    if isinstance(answers, Iterator):
        answers = list(answers)
    if isinstance(drafters, Iterator):
        drafters = list(drafters)
    given = {name: value for name, value in locals().items() if name not in NOT_OPTIONS}
    asked = asked_drafters(drafters)
    if not asked:
        raise UsageError("drafters must name at least one", option="drafters")
    curves = artifacts if isinstance(artifacts, Mapping) else None
    sources = given_sources(
        () if isinstance(artifacts, Mapping) else artifacts, datastores=datastores,
        frozen_table=frozen_table, bigram=bigram, unigram=unigram, history=history,
        history_tokens=history_tokens, store=store,
    )  # fmt: skip
    if curves is not None and sources != Sources():
        raise UsageError(
            "artifacts must be the only sources if they are curves, got others too",
            "leave out the others",
            option="artifacts",
        )
    check_types(bool, chain=chain, drop_leaked=drop_leaked)
    budgets = _distinct_budgets(budgets)
    if limit is not None:
        require_between("limit", limit, 1)
    keep_state = KeepState.of(keep_state)
    require_template(template)
    if curves is None:
        baseline = label_among(baseline, [each.label for each in asked])
    if out is not None:
        require_package("matplotlib", "the folder of results")
        require_free(Path(out), _named_files(answers, questions, evidence), force=force)
    if html is not None:
        require_page(html, force=force)
    recorded = None
    read_by: TokenizerRecord | TextTokenizer
    if evidence is None:
        questions = given["questions"] = pin_question_set(questions)
        read_by, records, form = read_answers(
            answers, questions, model, template, format, columns, where, reporter
        )
    else:
        own = {"format": format, "columns": columns, "where": where}
        _refuse_options("evidence", **own, template=None if template == "auto" else template)
        recorded = _open_record(evidence, answers or questions)
        read_by, records, form = recorded.folder.tokenizer, recorded.answers(), None
    tokenizer = record_of(read_by)
    page = None if html is None else ReplayPage(html, read_by, reporter=reporter)
    sources = sources.recorded()
    if keep_state is not None:
        past = replace(sources.past, grows=True, prompts=keep_state.prompts)
        sources = replace(sources, past=past)
    choices, lines = _choose_drafters(
        asked, sources, curves, tokenizer, evidence=recorded is not None, reporter=reporter
    )
    if recorded is not None:
        _verify_by(recorded, model, reporter)
    records = records[:limit]
    lacking = _report_lacking(
        choices, records, reporter, evidence=recorded is not None, learns=keep_state is not None
    )
    baseline = label_among(baseline, [choice.label for choice in choices])
    if baseline is not None and (needs := lacking[baseline]):
        raise UsageError(
            f"cannot compare with {baseline}: it {needs}", "name another one", option="baseline"
        )
    records, leakage = without_leaks(records, choices, drop_leaked, reporter)
    if keep_state is not None:
        records = keep_state.order(records)
    units = units_of(records, dependent=keep_state is not None)
    replays = []
    for choice in choices:
        if needs := lacking[choice.label]:
            replays += [Replay(choice.label, nodes, missing=needs) for nodes in budgets]
        else:
            replays += _replay_with_budgets(
                choice, records, budgets, units, page, recorded,
                keep_state=keep_state is not None, chain=chain, reporter=reporter,
            )  # fmt: skip
    if recorded is not None and recorded.added:
        reporter.note(f"the model verified {recorded.added:,} contexts that were not on record")
    results = Replays(
        replays, leakage, None if form is None else form.name, lines,
        kept_state=keep_state is not None, units=units, baseline=baseline,
    )  # fmt: skip
    words = {
        **_order_words(keep_state),
        "budget": ",".join(map(str, budgets)),
        "baseline": baseline,
    }
    results.provenance = _provenance_of_call(given, words, tokenizer, sources, choices)
    if out is not None:
        results.folder = Path(out)
        replace_folder(results.folder, results.contents(), results.provenance, force=force)
    if page is not None:
        private = _has_sessions(answers, records) or drafts_private_texts(sources, choices)
        page.write(budgets[0], chain=chain, private=private)
    return results


def _provenance_of_call(
    given: Mapping[str, Any],
    words: Mapping[str, Any],
    tokenizer: TokenizerRecord,
    sources: Sources,
    choices: Sequence[DrafterChoice],
) -> Provenance:
    """Return the provenance of the call with the parameters `given`; `words`: resolved ones."""
    defaults = {name: each.default for name, each in signature(replay).parameters.items()}
    said = given_words(given, defaults, ("model", "budgets", "columns", "where", "keep_state"))
    for name in ("columns", "where"):
        if given[name]:
            said[name] = ",".join(f"{field}={value}" for field, value in given[name].items())
    if given["model"] is not None or given["evidence"] is None:
        named = isinstance(given["model"], str | Path)
        said["model"] = given["model"] if named else tokenizer.id
    curves = given["artifacts"] if isinstance(given["artifacts"], Mapping) else None
    if curves is not None:
        said["curve"] = [
            f"{name}={each}" if name else str(each)
            for name, several in curves.items()
            for each in (x.where if isinstance(x, Artifact) else x for x in several)
        ]
    return provenance_of(
        "replay", given, {**said, **words},
        files=_named_files(given["answers"], given["questions"], given["evidence"]),
        tokenizer=tokenizer, sources=sources if curves is None else None, choices=choices,
        seeds={"order": words.get("seed")},
    )  # fmt: skip


def _order_words(keep_state: KeepState | None) -> dict[str, Any]:
    if keep_state is None:
        return {}
    repeat = None if keep_state.repeat == 1 else keep_state.repeat
    prompts = {"prompts": True} if keep_state.prompts else {}
    return {"keep_state": True, "seed": keep_state.seed, "repeat": repeat, **prompts}


def _named_files(answers: Any, questions: Any, evidence: Any) -> list[Path]:
    """Return the files that are read, without Records."""
    several = answers if isinstance(answers, Iterable) else ()
    given = [answers] if isinstance(answers, str | Path) else several
    named = [Path(each) for each in given if isinstance(each, str | Path)]
    found = log_files(named).paths if named and all(each.exists() for each in named) else []
    return [*found, *(Path(each) for each in (questions, evidence) if each is not None)]


def _has_sessions(answers: Any, records: Sequence[Record]) -> bool:
    """Return whether records are of agents' sessions on this machine."""
    given = [answers] if isinstance(answers, str | Path) else answers or ()
    published = bool(given) and all(isinstance(g, str | Path) and is_dataset(g) for g in given)
    return not published and any(record.agent for record in records)


def _distinct_budgets(budgets: Sequence[int]) -> list[int]:
    require_list("budgets", budgets)
    if not budgets or not all(isinstance(nodes, Integral) for nodes in budgets):
        raise UsageError("budgets must be whole numbers of at least 1 each", option="budget")
    for nodes in budgets:
        require_between("budget", nodes, 1, MAX_BUDGET)
    return list(dict.fromkeys(int(nodes) for nodes in budgets))


def _report_lacking(
    choices: Sequence[DrafterChoice],
    records: Sequence[Record],
    reporter: Reporter,
    *,
    evidence: bool,
    learns: bool,
) -> dict[str, str | None]:
    """Return and report by label what a drafter lacks; raise if none can be replayed."""
    references = count_references(records) > 0
    lacking = {
        choice.label: choice.missing(evidence=evidence, learns=learns, references=references)
        for choice in choices
    }
    for label, needs in lacking.items():
        if needs:
            reporter.note(f"{label} is not replayed: it {needs}")
    if not all(lacking.values()):
        return lacking
    first = choices[0]
    if first.absent is not None:
        raise first.absent
    raise UsageError(
        f"cannot replay {first.label}: {lacking[first.label]}", "give it, or name another drafter"
    )


def _replay_with_budgets(
    choice: DrafterChoice,
    records: list[Record],
    budgets: Sequence[int],
    units: Units,
    page: ReplayPage | None,
    recorded: RecordedEvidence | None,
    *,
    keep_state: bool,
    chain: bool,
    reporter: Reporter,
) -> list[Replay]:
    """Replay with each budget. Contexts that the model verified are saved, even on Ctrl-C."""
    records = without_unusable_references(records, choice, reporter)
    replays = []
    for nodes in budgets:
        reporter.stage(f"{choice.label}, {nodes} nodes", len(records), "conversations")
        try:
            result = replay_drafter(
                choice.label, choice.load, records, nodes,
                keep_state=keep_state, chain=chain, recorded_evidence=recorded,
                vocabulary=choice.tokenizer.vocabulary, reporter=reporter,
                watch=page.watch(choice.label) if page and nodes == budgets[0] else None,
            )  # fmt: skip
        finally:
            if recorded is not None:
                recorded.save()
        result.bytes = sum(each.manifest.bytes for each in choice.opened)
        result.sources, result.units = choice.builds, units
        replays.append(result)
    return replays


def _choose_drafters(
    asked: Sequence[AskedDrafter],
    sources: Sources,
    curves: Curves | None,
    tokenizer: TokenizerRecord,
    *,
    evidence: bool,
    reporter: Reporter,
) -> tuple[list[DrafterChoice], list[Curve]]:
    choose_one = partial(_choose_drafter, tokenizer=tokenizer, evidence=evidence, reporter=reporter)
    if curves is not None:
        return _choose_by_curve(asked, curves, sources, choose_one, reporter)
    if len(asked) == 1:
        return [choose_one(asked[0], sources)], []
    choices = choose_again_if_built(lambda: [choose_one(each, sources) for each in asked], reporter)
    return choices, []


def _choose_drafter(
    asked: AskedDrafter,
    sources: Sources,
    *,
    tokenizer: TokenizerRecord,
    evidence: bool,
    reporter: Reporter,
) -> DrafterChoice:
    def load_model() -> Any:
        from ngramkit.decode.load import load_model

        return load_model(tokenizer.id)

    if asked.needs_evidence and not evidence:
        return DrafterChoice(asked.label, asked.spec, tokenizer)
    try:
        return choose(asked, tokenizer, sources, reporter, load_model)
    except MissingSourceError as error:
        return DrafterChoice(asked.label, asked.spec, tokenizer, absent=error)


def _choose_by_curve(
    asked: Sequence[AskedDrafter],
    curves: Curves,
    sources: Sources,
    choose_one: Callable[[AskedDrafter, Sources], DrafterChoice],
    reporter: Reporter,
) -> tuple[list[DrafterChoice], list[Curve]]:
    """Choose each drafter once per artifact."""
    for name, given in curves.items():
        require_list(f"curve {name}", given, "give a list of artifacts, as {'all': [...]}")
    opened = {
        name: [fetch_artifact(each, reporter=reporter) for each in given]
        for name, given in curves.items()
    }
    by_place = {each.where: each for several in opened.values() for each in several}
    if not by_place:
        raise UsageError("a curve must name artifacts, got none", option="artifacts")
    short = short_names(list(by_place))
    choices: list[DrafterChoice] = []
    lines: list[Curve] = []
    for drafter in asked:
        if drafter.make is not None:
            raise UsageError(
                "drafters must be names if artifacts are curves, got an object", option="drafters"
            )
        spec = drafter.spec
        labels = {place: f"{spec} over {short[place]}" for place in by_place}
        for place, artifact in by_place.items():
            _require_drafts_from(spec, artifact)
            choice = choose_one(drafter, replace(Sources.of(artifact), past=sources.past))
            choices.append(replace(choice, label=labels[place]))
        for name, several in opened.items():
            lines.append(Curve(str(spec), name, tuple(labels[each.where] for each in several)))
    return choices, lines


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Return the last part of each path or URL if these differ, else all of it.

    >>> short_names(["a/small", "b/large"]), short_names(["a/x", "b/x"])
    ({'a/small': 'small', 'b/large': 'large'}, {'a/x': 'a/x', 'b/x': 'b/x'})
    """
    last = [PurePosixPath(name).name or name for name in names]
    return dict(zip(names, last if len(set(last)) == len(names) else names, strict=True))


def _require_drafts_from(drafter: DrafterSpec, artifact: Artifact) -> None:
    if ROLES.get(artifact.kind) not in DRAFTERS[drafter.name].sources:
        raise UsageError(
            f"cannot use the {artifact.kind} {artifact.where} with {drafter.name}",
            "leave out one of them",
            option="artifacts",
        )


def count_references(records: Sequence[Record]) -> int:
    """Return the number of requests with references."""
    return sum(len(turn.references) > 0 for record in records for turn in record.turns)


def without_unusable_references(
    records: list[Record], choice: DrafterChoice, reporter: Reporter
) -> list[Record]:
    """Return the records, without references if the drafter cannot draft from them."""
    given = count_references(records)
    able = choice.made is not None or DRAFTERS[choice.spec.name].references
    if not given or able:
        return records
    reporter.note(f"{choice.label} drafts without the references of {counted(given, 'request')}")
    return [
        replace(record, turns=[replace(turn, references=()) for turn in record.turns])
        for record in records
    ]


def read_answers(
    answers: str | Path | Sequence[str | Path] | Sequence[Record] | None,
    questions: str | Path | None,
    model: str | Path | TextTokenizer | TokenizerRecord | None,
    template: str,
    format: str | None,
    columns: Mapping[str, str] | None,
    where: Mapping[str, str] | None,
    reporter: Reporter,
    newest: NewestRequests | None = None,
) -> tuple[TokenizerRecord | TextTokenizer, list[Record], Template | None]:
    if answers is None:
        raise UsageError(
            "answers must be given, or a folder of `record`",
            "give answers or evidence",
            option=("answers", "evidence"),
        )
    many_answers: Any = answers
    one = isinstance(answers, str) or not isinstance(answers, Iterable)
    listed: list[Any] = [answers] if one else list(many_answers)
    odd = [each for each in listed if not isinstance(each, str | Path | Record)]
    if hasattr(answers, "columns"):  # a DataFrame's items are its columns
        odd = [answers]
    if odd:
        raise UsageError(
            f"answers must be files or Records, got {type(odd[0]).__name__}",
            'write a file with a line of {"prompt": ..., "output": ...} each, and name that',
            option="answers",
        )
    given = [record for record in listed if isinstance(record, Record)]
    if given or questions is not None:
        source = "Records" if given else "questions"
        _refuse_options(source, format=format, columns=columns, where=where)
    if given and isinstance(model, TokenizerRecord):
        return model, _with_turns(given, model.vocabulary), None
    if not given:
        require_files(*listed)
        require_questions(questions)
    tokenizer: Any = model
    if not isinstance(model, TextTokenizer):
        tokenizer = load_tokenizer(named_model(tokenizer, reporter))
    if given:
        return tokenizer, _with_turns(given, tokenizer.record.vocabulary), None
    records, form = read_records(
        listed, questions, tokenizer, template,
        format=format, columns=columns, where=where, newest=newest, reporter=reporter,
    )  # fmt: skip
    return tokenizer, records, form


def _with_turns(records: list[Record], vocabulary: int) -> list[Record]:
    """Return the records. Raises UsageError for no prompt or unknown ids; kernels trust them."""
    for record in records:
        turns = record.turns if isinstance(record.turns, list | tuple) else ()
        if not turns or not all(isinstance(each, Turn) and len(each.prompt) for each in turns):
            raise UsageError(
                f"turns of the Record {record.name!r:.60} must be Turns, each with a prompt",
                "give turns=[ngramkit.Turn(prompt, answer)], of token ids",
                option="answers",
            )
        most = max(int(ids.max(initial=0)) for each in turns for ids in (each.prompt, each.answer))
        if most >= vocabulary:
            raise UsageError(
                f"ids of the Record {record.name!r:.60} must be below {vocabulary:,}, got {most}",
                "give the TokenizerRecord of its ids as model",
                option="model",
            )
    return records


def _refuse_options(source: str, **options: Any) -> None:
    """Raise UsageError for options that have no effect on answers of `source`."""
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"cannot use {name} with {source}", "leave one out", option=name)


def _open_record(path: str | Path, files: Any) -> RecordedEvidence:
    if files is not None:
        raise UsageError(
            "cannot use answers with evidence: it has its own",
            "leave out answers and questions",
            option="evidence",
        )
    return RecordedEvidence.open(path)


def _verify_by(record: RecordedEvidence, model: Any, reporter: Reporter) -> None:
    if model is not None and not isinstance(model, TextTokenizer):
        from ngramkit.evaluate.record import verifying_model

        record.model = verifying_model(record.folder, model, reporter)
