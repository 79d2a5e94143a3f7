"""`ngramkit.bench`: compare drafters with each other and with no drafts on a model.

Contestants answer each question in rotating order, so machine drift favours none. After an
interruption drafters relearn the earlier answers.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from inspect import signature
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ngramkit.basics.arguments import check_types
from ngramkit.basics.errors import InputError, UsageError
from ngramkit.basics.machine import OtherPrograms, busy_note, require_package
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.results import Summarized
from ngramkit.basics.terminal_text import counted
from ngramkit.choose import (
    DrafterChoice,
    MissingSourceError,
    choose,
    choose_again_if_built,
    require_named,
)
from ngramkit.corpus.chat import Template, find_template, require_template
from ngramkit.decode.options import TRANSFORMERS_WAYS, DecodeOptions
from ngramkit.decode.pending import PendingModel, open_pending_model
from ngramkit.drafters.asked import (
    AskedDrafter,
    asked_drafters,
    label_among,
    listed_drafters,
)
from ngramkit.drafters.base import Drafter, TokenArray
from ngramkit.drafters.registry import NoDraft
from ngramkit.drafters.sources import HISTORY_TOKENS, Given, Sources
from ngramkit.drafters.spec import split_budget
from ngramkit.evaluate.bench_results import BenchResult, shown_speedup, summarize, write_answers
from ngramkit.evaluate.bench_runs import (
    BASELINE_DRAFTER,
    QuestionRun,
    Runs,
    TurnRun,
    alone_in,
    require_begun_with,
    require_room,
)
from ngramkit.evaluate.provenance import Provenance, given_words, provenance_of
from ngramkit.evaluate.question_sets import pin_question_set
from ngramkit.evaluate.records import (
    Question,
    Record,
    Turn,
    answer_text,
    prompts_of_conversation,
    questions_for,
    require_questions,
)
from ngramkit.evaluate.replay_loop import replay_drafter
from ngramkit.evaluate.replay_results import Replay
from ngramkit.evaluate.result_folder import Contents, write_folder
from ngramkit.evaluate.result_tables import Cell, Table, steps_by_budget, with_intervals
from ngramkit.evaluate.statistics import QUESTIONS, Interval, Ratio, ratios

if TYPE_CHECKING:
    from ngramkit.decode.decoder import Decoder
    from ngramkit.decode.load import LanguageModel
    from ngramkit.decode.result import Decoded

DEFAULT_DRAFTERS = (
    "blend",
    "rest",
    "cacheback",
    "ssd",
)  # default; those without sources are left out
DEFAULT_NEW_TOKENS = 256
TOO_LONG = "left out, longer than the model's context: {}"
STEP_COLUMNS = ("tokens_per_step", "tokens_per_step_low", "tokens_per_step_high")
NOT_OPTIONS = ("reporter", "force")
REPLAYED_BUDGETS = (2, 4, 8, 16, 32, 64)  # draft nodes per pass of the replays
Budget = int | Literal["auto"]  # of a contestant; 0: the benchmark's


@dataclass(frozen=True, repr=False)
class BenchResults(Summarized):
    """The results, baseline first."""

    results: list[BenchResult]
    runs: list[QuestionRun]  # of questions that all drafters and the baseline answered
    plan: dict[str, Any]
    folder: Path
    missing: dict[str, str] = field(default_factory=dict)  # drafters left out -> what they need
    curves: list[Replay] = field(default_factory=list)  # the baseline's answers, by budget
    baseline: str | None = None  # the drafter that ratios divide by
    provenance: Provenance | None = None

    @property
    def identical(self) -> bool:
        """Whether every answer is the model's own."""
        return all(result.identical for result in self.results)

    def summary(self) -> list[dict[str, Any]]:
        """Return a row per drafter with its budget."""
        names = ("tokens_per_step", "tokens_per_step_low", "tokens_per_step_high",
                 "tokens_per_step_interval", "tokens_per_second", "speedup", "speedup_low",
                 "speedup_high", "speedup_interval", "identical", "tokens", "passes",
                 "draft_seconds", "verify_seconds", "seconds")  # fmt: skip
        measured = [
            {"drafter": r.drafter, "budget": self._budget_of(r.drafter), "missing": None}
            | {name: getattr(r, name) for name in names}
            for r in self.results
        ]
        missing = [{"drafter": name, "missing": needs} for name, needs in self.missing.items()]
        return [*measured, *missing]

    def _budget_of(self, drafter: str) -> Any:
        if drafter == BASELINE_DRAFTER or _is_transformers(drafter):
            return None
        return split_budget(drafter)[1] or self.plan.get("budget")

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row per drafter and question."""
        for run in self.runs:
            yield {
                "drafter": run.drafter,
                "question": run.question,
                "category": run.category,
                "tokens": run.tokens,
                "passes": run.passes,
                "tokens_per_step": run.tokens / run.passes if run.passes else 1.0,
                "new_tokens": run.new_tokens,
                "seconds": run.seconds,
            }

    def ratios(self, of: Literal["tokens/step", "tokens/s"] = "tokens/s") -> list[Ratio]:
        """Return each drafter over every later one, or all others over the baseline.

        There are no intervals if one of two learns.
        """
        gain, cost = {
            "tokens/step": ("tokens", "passes"),
            "tokens/s": ("new_tokens", "seconds"),
        }[of]
        columns, learns = [], []
        for result in self.results:
            if result.drafter != BASELINE_DRAFTER or self.baseline == BASELINE_DRAFTER:
                runs = [run for run in self.runs if run.drafter == result.drafter]
                gains, costs = ([getattr(run, figure) for run in runs] for figure in (gain, cost))
                columns.append((result.drafter, gains, costs))
                learns.append(result.learns)
        return ratios(columns, dependent=learns, baseline=self.baseline)

    def contents(self) -> Contents:
        """Return the content of their folder."""
        from ngramkit.evaluate.report import bench_pictures

        pictures = bench_pictures(self.results, self.curves)
        return Contents("bench", self._figures(), self.summary(), self._tables(), pictures)

    def _tables(self) -> list[Table]:
        speedups = [
            Interval(r.speedup_low, r.speedup_high, r.speedup_interval) for r in self.results
        ]
        cells = [
            (
                r.drafter,
                [
                    Cell(f"{r.tokens_per_step:.2f}", _interval_of(r, "tokens_per_step")),
                    Cell(f"{r.tokens_per_second:,.1f}"),
                    Cell(shown_speedup(r.speedup), _interval_of(r, "speedup")),
                ],
            )
            for r in self.results
        ]
        notes = [f"{r.drafter}: {r.remarks}" for r in self.results if r.remarks]
        notes += [f"{name}: n/a, {needs}" for name, needs in self.missing.items()]
        title = with_intervals("Tokens/step, tokens/s and speed-up over no drafts", speedups[1:])
        head = ("drafter", "tokens/step", "tokens/s", "speed-up")
        tables = [Table("speed-up", title, head, cells, notes)]
        if self.curves:
            title = "Tokens/step by draft nodes per pass, replayed"
            tables.append(steps_by_budget(self.curves, "tokens-per-step", title))
        return tables

    def _repr_html_(self) -> str:
        return "".join(table.html() for table in self._tables())

    def to_dict(self) -> dict[str, Any]:
        origin = {} if self.provenance is None else self.provenance.to_dict()
        return {**self._figures(), **origin}

    def _figures(self) -> dict[str, Any]:
        units: tuple[Literal["tokens/step"], Literal["tokens/s"]] = ("tokens/step", "tokens/s")
        return {
            "results": [result.to_dict() for result in self.results],
            "ratios": [{"figure": of, **r.to_dict()} for of in units for r in self.ratios(of)],
            "questions": list(self.rows()),
            "baseline": self.baseline,
            "missing": self.missing,
            "by_budget": [
                {name: row[name] for name in ("drafter", "budget", *STEP_COLUMNS)}
                for row in (curve.summary() for curve in self.curves)
            ],
            "plan": self.plan,
        }

    def __repr__(self) -> str:
        speedups = ", ".join(f"{r.drafter} {shown_speedup(r.speedup)}x" for r in self.results[1:])
        return f"<BenchResults of {self.plan['model']} in {self.folder}: {speedups}>"


def _interval_of(result: BenchResult, figure: str) -> str:
    """Return the interval of a figure, "" if it cannot vary."""
    low, high = getattr(result, f"{figure}_low"), getattr(result, f"{figure}_high")
    return "" if low == high else str(Interval(low, high))


def bench(
    questions: str | Path | Sequence[Question] | None = None,
    model: str | Path | LanguageModel | None = None,
    *,
    drafters: Sequence[str | Callable[[], Drafter]] | str = (),
    artifacts: Sources | Sequence[Given] | Given = (),
    template: str = "auto",
    max_new_tokens: int = DEFAULT_NEW_TOKENS,
    stop: Sequence[str] = (),
    limit: int | None = None,
    baseline: str | Callable[[], Drafter] | None = None,
    out: str | Path | None = None,
    force: bool = False,
    reporter: Reporter = NOTEBOOK_BARS,
    budget: int | Literal["auto"] | None = None,
    verify: str | None = None,
    datastores: Sequence[Given] = (),
    frozen_table: Given | None = None,
    bigram: Given | None = None,
    unigram: Given | None = None,
    history: str | Path | None = None,
    history_tokens: int = HISTORY_TOKENS,
    store: bool = True,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "auto",
    device_map: str | None = None,
    trust_remote_code: bool = False,
) -> BenchResults:
    """Measure `drafters` (default: all that fit) and no drafter on `questions`.

    `questions`: a file or a named set, see ngramkit.evaluate.records, or Questions (default: the
    embedded model's prompts). `drafters`: as in `choose_drafter`, optionally with a `budget` each,
    or transformers' generate and generate-lookup. `template`: auto is the model's own, else the one
    known for its name. `limit`: only the first questions. `baseline`: ratios divide by this one of
    the drafters.
    Others: as in `DecodeOptions`. `out`: folder of the results (default: bench/QUESTIONS-MODEL, see
    evaluate.result_folder), which the same call continues; `force` starts over.

    Raises UsageError for options that cannot work, and if `out` holds another benchmark.
    """
    if isinstance(drafters, Iterator):
        drafters = list(drafters)
    given = {name: value for name, value in locals().items() if name not in NOT_OPTIONS}
    listed = listed_drafters(drafters)
    check_types(bool, force=force)
    names = [each for each in listed if each != BASELINE_DRAFTER] if listed else DEFAULT_DRAFTERS
    ways = list(dict.fromkeys(filter(_is_transformers, names)))
    asked = asked_drafters(
        [each for each in names if not _is_transformers(each)], AskedDrafter.with_budget
    )
    for each in asked:
        if each.make is None and each.spec.name == BASELINE_DRAFTER:
            raise UsageError(
                f"drafters must name none without options, got {each.label!r}",
                "Write none.",
                option="drafters",
            )
    labels = [*ways, *(each.label for each in asked)]
    baseline = label_among(baseline, [BASELINE_DRAFTER, *labels])
    require_package("matplotlib", "write the report")
    require_template(template)
    require_questions(questions)
    if out is not None:
        require_room(Path(out))
    options = DecodeOptions(
        model,
        artifacts=artifacts,
        max_new_tokens=max_new_tokens,
        stop=stop,
        reporter=reporter, budget=budget, verify=verify,
        datastores=datastores, frozen_table=frozen_table, bigram=bigram, unigram=unigram,
        history=history, history_tokens=history_tokens, store=store,
        temperature=temperature, top_k=top_k, top_p=top_p, seed=seed,
        device=device, dtype=dtype, device_map=device_map, trust_remote_code=trust_remote_code,
    )  # fmt: skip
    questions = given["questions"] = pin_question_set(questions)
    prepared = open_pending_model(options)
    wanted = questions_for(questions, prepared.tokenizer.record.id, limit, reporter)
    form = find_template(template, prepared.tokenizer)
    reporter.note(str(form))
    sources = options.sources().recorded()
    require_named(sources, reporter)
    sources.past.require_usable(prepared.tokenizer.record)
    folder = Path(out or Path("bench") / f"{wanted.name}-{Path(prepared.name).name}")
    require_room(folder)
    settings = {
        "model": prepared.name,
        "questions": wanted.name,
        "template": form.name,
        "max_new_tokens": options.max_new_tokens,
        "stop": list(options.stop),
        "sampling": asdict(options.sampling),
    }
    if not force:  # fail before building artifacts and loading the model
        known = (
            {}
            if prepared.context is None
            else question_facts(questions_that_fit(wanted, prepared, form))
        )
        nodes = {"budget": options.budget or "auto"} if options.cache is None else {}
        require_begun_with(folder, {**settings, **known, **nodes})
    choose_all = partial(
        _choose_drafters, asked, prepared, sources, named=len(labels) if listed else 0
    )
    choices, missing = (
        choose_all() if len(labels) == 1 else choose_again_if_built(choose_all, reporter)
    )
    labels = [*ways, *(choice.label for choice in choices)]
    baseline = label_among(baseline, [BASELINE_DRAFTER, *labels])
    settings |= {"drafters": labels, "artifacts": _artifacts_of(choices)}
    if not force:
        require_begun_with(folder, settings)
    decoder, choices = prepared.decoder(choices)
    budgets = {each.label: each.budget for each in asked}
    contestants = [
        *_transformers_ways(ways, decoder),
        *_prepare_drafters(choices, [budgets[each.label] for each in choices], decoder, options),
    ]
    contest = Bench(decoder, contestants, wanted, form)
    if contest.too_long:
        reporter.note(TOO_LONG.format(counted(contest.too_long, "question")))
    plan = plan_of(contest, settings)
    with alone_in(folder):
        runs = Runs(folder, plan, force=force)
        if runs.found:
            reporter.note(f"resuming: {counted(len(runs.found), 'answer')} in {folder} already")
        others = OtherPrograms()
        try:
            contest.run(runs, reporter)
        except KeyboardInterrupt:
            kept = counted(len(runs.found), "answer")
            reporter.note(f"{kept} in {folder}; the same command resumes there")
            raise
        used = others.cores
        if note := busy_note(used):
            reporter.note(note)
        words = {"model": prepared.name, "drafters": listed or labels, "baseline": baseline}
        made_by = _provenance_of_call(given, words, contest, sources, choices)
        return write_results(
            contest, runs, plan, folder, made_by, reporter, missing, used, baseline
        )


def _provenance_of_call(
    given: Mapping[str, Any],
    words: Mapping[str, Any],
    contest: Bench,
    sources: Sources,
    choices: Sequence[DrafterChoice],
) -> Provenance:
    """Return the provenance of the call with the parameters `given`; `words`: resolved ones."""
    from ngramkit.decode.load import device_facts

    defaults = {name: each.default for name, each in signature(bench).parameters.items()}
    options = contest.decoder.options
    questions = given["questions"]
    files = [questions] if isinstance(questions, str | Path) else []
    return provenance_of(
        "bench", given,
        {**given_words(given, defaults, ()), **words},
        files=files, tokenizer=contest.model.tokenizer.record,
        sources=sources, choices=choices,
        seeds={"sampling": options.sampling.seed},
        device=device_facts(contest.model.model),
    )  # fmt: skip


def _choose_drafters(
    asked: Sequence[AskedDrafter], model: PendingModel, sources: Sources, *, named: int
) -> tuple[list[DrafterChoice], dict[str, str]]:
    """Return the choices, and what named drafters lack; of `named` ones at least one must run."""
    reporter, record = model.options.reporter, model.tokenizer.record
    choices: list[DrafterChoice] = []
    missing: dict[str, str] = {}
    for each in asked:
        try:
            choice = choose(each, record, sources, reporter, model.load)
        except MissingSourceError as error:
            if named and len(missing) + 1 == named:
                raise
            if named:
                missing[each.label] = f"needs {error.needs}"
            reporter.note(f"without {each.label}: {error}")
            continue
        if needs := choice.missing(evidence=True, learns=sources.past.store):
            if named and len(missing) + 1 == named:
                raise UsageError(f"cannot measure {each.label}: {needs}", "name another drafter")
            if named:
                missing[each.label] = needs
            reporter.note(f"without {each.label}: {needs}")
            continue
        choices.append(choice)
    return choices, missing


@dataclass(frozen=True)
class Contestant:
    """One contestant of a benchmark.

    `make(remember)` creates a drafter; with False it adds no past requests. `decoder`: for another
    budget. `answer`: another method.
    """

    name: str
    make: Callable[[bool], Drafter] = lambda remember: NoDraft()
    learns: bool = False
    decoder: Decoder | None = None
    answer: Callable[[Decoder, TokenArray], Decoded] | None = None
    wants_evidence: bool = False

    def decoder_of(self, common: Decoder) -> Decoder:
        if self.name == BASELINE_DRAFTER:
            return common.undrafted()
        return common if self.decoder is None else replace(self.decoder, options=common.options)


def _is_transformers(drafter: Any) -> bool:
    return isinstance(drafter, str) and drafter in TRANSFORMERS_WAYS


def _transformers_ways(ways: Sequence[str], decoder: Decoder) -> list[Contestant]:
    if not ways:
        return []
    from ngramkit.decode.compare import answer_by, require_plain
    from ngramkit.decode.packed_weights import unpacked

    require_plain(decoder)
    model = replace(decoder.model, model=unpacked(decoder.model.model))
    return [Contestant(name, answer=answer_by(name, model)) for name in ways]


def _prepare_drafters(
    choices: Sequence[DrafterChoice],
    budgets: Sequence[int | Literal["auto"]],
    decoder: Decoder,
    options: DecodeOptions,
) -> Iterator[Contestant]:
    from ngramkit.decode.decoder import Decoder

    decoders = {
        budget: Decoder.settle(decoder.model, replace(options, budget=budget))
        for budget in dict.fromkeys(budgets)
        if budget
    }
    for choice, budget in zip(choices, budgets, strict=True):
        yield Contestant(
            choice.label,
            lambda remember, choice=choice: choice.load(forgetful=not remember),  # type: ignore[misc]
            choice.learns,
            decoders.get(budget),
            wants_evidence=choice.needs_evidence,
        )


def _artifacts_of(choices: Sequence[DrafterChoice]) -> list[str]:
    return sorted({name for choice in choices for name in choice.builds})


class Bench:
    """A benchmark, with a seed per question."""

    def __init__(
        self,
        decoder: Decoder,
        contestants: Sequence[Contestant],
        questions: Sequence[Question],
        template: Template,
    ) -> None:
        self.contestants = [Contestant(BASELINE_DRAFTER), *contestants]
        self.decoder = decoder
        self.model = decoder.model
        self.template = template
        self.questions = questions_that_fit(questions, self.model, template)
        self.too_long = len(questions) - len(self.questions)

    def run(self, runs: Runs, reporter: Reporter = SILENT) -> None:
        reporter.stage("answers", len(self.questions) * len(self.contestants), "answers")
        drafters = {c.name: c.make(True) for c in self.contestants}
        pairs = ((c, q) for q in self.questions for c in self.contestants)
        if any(runs.answered(c.name, q.id) is None for c, q in pairs):
            prompt = next(self.conversation(self.questions[0], []))
            for contestant in self.contestants:
                self._warm_up(contestant, prompt)
        for index, question in enumerate(self.questions):
            first = index % len(self.contestants)
            for contestant in self.contestants[first:] + self.contestants[:first]:
                run = runs.answered(contestant.name, question.id)
                drafter = drafters[contestant.name]
                if run is None:
                    runs.add(self._answer(contestant, drafter, index, question))
                else:
                    self._relearn(drafter, question, run)
                reporter.advance(1, **figures_so_far(runs, self.contestants))

    def records(self, runs: Runs, drafter: str) -> list[Record]:
        records = []
        for question in self.questions:
            run = runs.found[drafter, str(question.id)]
            prompts = self.conversation(question, run.turns)
            turns = [
                Turn(prompt, np.array(turn.token_ids, np.int32))
                for prompt, turn in zip(prompts, run.turns, strict=False)
            ]
            records.append(Record(str(question.id), question.category, turns))
        return records

    def _warm_up(self, contestant: Contestant, prompt: TokenArray) -> None:
        from ngramkit.decode.compare import WARM_UP_TOKENS, warm_up

        if contestant.answer is None:
            warm_up(contestant.decoder_of(self.decoder), prompt, contestant.make(False))
        else:
            contestant.answer(self.decoder.with_options(max_new_tokens=WARM_UP_TOKENS), prompt)

    def _answer(
        self, contestant: Contestant, drafter: Drafter, index: int, question: Question
    ) -> QuestionRun:
        turns: list[TurnRun] = []
        load = round(os.getloadavg()[0], 2)
        decoder = contestant.decoder_of(self.decoder.numbered(index))
        for prompt in self.conversation(question, turns):
            if contestant.answer is None:
                decoded = decoder.complete(prompt, drafter)
            else:
                decoded = contestant.answer(decoder, prompt)
            if decoded.ended_by == "interrupt":
                raise KeyboardInterrupt
            turns.append(self.turn_run(decoded))
        return QuestionRun(contestant.name, question.id, question.category, turns, load)

    def conversation(self, question: Question, turns: list[TurnRun]) -> Iterator[TokenArray]:
        return prompts_of_conversation(self.model, self.template, question, turns)

    def turn_run(self, decoded: Decoded) -> TurnRun:
        written = decoded.token_ids.tolist()
        return TurnRun(
            text=answer_text(self.model.tokenizer, self.template, written),
            token_ids=written,
            tokens_per_pass=tokens_per_pass(decoded),
            seconds=decoded.seconds,
            prefill_seconds=decoded.prefill_seconds,
            draft_seconds=decoded.draft_seconds,
            verify_seconds=decoded.verify_seconds,
            drafted=sum(decoded.nodes_per_pass),
        )

    def _relearn(self, drafter: Drafter, question: Question, run: QuestionRun) -> None:
        prompts = self.conversation(question, run.turns)
        for prompt, turn in zip(prompts, run.turns, strict=False):
            drafter.start(prompt)
            drafter.accept(np.array(turn.token_ids, np.int32))
            drafter.finish()


def tokens_per_pass(decoded: Decoded) -> list[int]:
    """Return each pass's tokens as Spec-Bench counts them; their mean is tokens/step."""
    lengths = [accepted + 1 for accepted in decoded.accepted_per_pass]
    if lengths:
        lengths[-1] = len(decoded.token_ids) - 1 - sum(lengths[:-1])
    return lengths


def figures_so_far(runs: Runs, contestants: Sequence[Contestant]) -> Mapping[str, Any]:
    shown: dict[str, Any] = {}
    for contestant in contestants[1:]:
        mine = [run for run in runs.found.values() if run.drafter == contestant.name]
        pairs = [(run, runs.found.get((BASELINE_DRAFTER, run.key[1]))) for run in mine]
        shared = [(run, base) for run, base in pairs if base is not None]
        passes = sum(run.passes for run, _ in shared)
        if passes:
            steps = sum(run.tokens for run, _ in shared) / passes
            seconds = sum(run.seconds for run, _ in shared)
            speedup = sum(base.seconds for _, base in shared) / seconds
            shown[f"tokens/step {contestant.name}"] = round(steps, 2)
            shown[f"x {contestant.name}"] = round(speedup, 2)
    return shown


# Writing answers, results.json and report.html.


def questions_that_fit(
    questions: Sequence[Question], model: LanguageModel | PendingModel, template: Template
) -> list[Question]:
    fit = [
        q
        for q in questions
        if next(prompts_of_conversation(model, template, q, (), room=2), None) is not None
    ]
    if not fit:
        raise InputError(
            f"a question must be shorter than the {model.context} tokens of the context of "
            f"{model.name}, got only longer ones",
            "use another model or other questions",
        )
    return fit


def question_facts(questions: Sequence[Question]) -> dict[str, Any]:
    texts = json.dumps([asdict(question) for question in questions])
    return {
        "count": len(questions),
        "questions_sha256": hashlib.sha256(texts.encode()).hexdigest(),
    }


def plan_of(bench: Bench, settings: Mapping[str, Any]) -> dict[str, Any]:
    from ngramkit.decode.generation import applied_facts
    from ngramkit.decode.load import device_facts

    return {
        **settings,
        **applied_facts(bench.model, bench.decoder.options.sampling),
        **question_facts(bench.questions),
        "budget": bench.decoder.shown_budget,
        "engine": "eager",  # so that runs of earlier versions can be continued
        **device_facts(bench.model.model),
    }


def write_results(
    bench: Bench,
    runs: Runs,
    plan: dict[str, Any],
    folder: Path,
    provenance: Provenance,
    reporter: Reporter = SILENT,
    missing: Mapping[str, str] = MappingProxyType({}),
    others: float | None = None,
    baseline: str | None = None,
) -> BenchResults:
    """Write all files into `folder`; `others`: cores used by other programs."""
    tokenizer = bench.model.tokenizer
    results = summarize(
        runs,
        plan["drafters"],
        lambda text: len(tokenizer.encode_prompt(text)),
        {contestant.name for contestant in bench.contestants if contestant.learns},
    )
    for result in results[1:]:
        result.judge(near_ties(bench, runs, result))
    if others is not None:
        provenance.machine["other programs"] = f"{others:.1f} cores on average"
    shared = runs.shared_by([result.drafter for result in results])
    answered = [run for own in shared.values() for run in own]
    curves = by_budget(bench, runs, reporter)
    measured = BenchResults(
        results, answered, plan, folder, dict(missing), curves, baseline, provenance
    )
    for result in results:
        write_answers(folder, bench.model.name, runs, result.drafter)
    write_folder(folder, measured.contents(), provenance)
    title = f"{plan['model']} on {plan['questions']}, {counted(plan['count'], 'question')}"
    from ngramkit.evaluate.report import write_report

    write_report(folder / "report.html", title, results, curves, plan, provenance.machine, missing)
    return measured


def near_ties(bench: Bench, runs: Runs, result: BenchResult) -> list[str]:
    from ngramkit.decode.compare import where_answers_part

    questions = {str(question.id): question for question in bench.questions}
    found = []
    for name in result.differing:
        base, own = runs.found[BASELINE_DRAFTER, name], runs.found[result.drafter, name]
        prompts = bench.conversation(questions[name], base.turns)
        for prompt, ours, theirs in zip(prompts, own.turns, base.turns, strict=False):
            if ours.token_ids != theirs.token_ids:
                texts = [np.array(turn.token_ids, np.int32) for turn in (ours, theirs)]
                if where_answers_part(
                    bench.decoder, prompt, texts[0], texts[1], "no drafts"
                ).near_tie:
                    found.append(name)
                break
    return found


def by_budget(bench: Bench, runs: Runs, reporter: Reporter = SILENT) -> list[Replay]:
    """Replay the baseline's answers by budget."""
    records = bench.records(runs, BASELINE_DRAFTER)
    drafters = [
        each
        for each in bench.contestants[1:]
        if each.answer is None and each.decoder is None and not each.wants_evidence
    ]
    reporter.stage("replays", len(drafters) * len(REPLAYED_BUDGETS) * len(records), "questions")
    curves = []
    for contestant in drafters:
        units = replace(QUESTIONS, dependent=contestant.learns)
        for nodes in REPLAYED_BUDGETS:
            curve = replay_drafter(
                contestant.name, partial(contestant.make, True), records, nodes,
                keep_state=contestant.learns, vocabulary=bench.model.tokenizer.record.vocabulary,
                reporter=reporter,
            )  # fmt: skip
            curve.units = units
            curves.append(curve)
    return curves
