"""`ngramkit.bench`: drafters against each other and against none, on a model, into a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from ngramkit.choose import DrafterChoice, distinct
from ngramkit.decode.foreign import require_plain
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.packed_weights import unpacked
from ngramkit.decode.pass_options import PassOptions, PreparedModel
from ngramkit.decode.runner import Runner
from ngramkit.decode.sampling import GREEDY, Sampling
from ngramkit.decode.task import Task
from ngramkit.drafters.base import Drafter
from ngramkit.drafters.spec import DrafterSpec
from ngramkit.errors import ArtifactError, UsageError
from ngramkit.evaluate.bench import Bench
from ngramkit.evaluate.contestants import (
    BASELINE,
    Budget,
    Contestant,
    foreign,
    is_foreign,
    split_budget,
)
from ngramkit.evaluate.outcome import plan_of, publish
from ngramkit.evaluate.paired import Ratio, ratio
from ngramkit.evaluate.questions import Question, Questions, embedded_questions, read_questions
from ngramkit.evaluate.results import Result
from ngramkit.evaluate.runs import Run, Runs, alone_in
from ngramkit.models import DEFAULT
from ngramkit.progress import SILENT, Reporter
from ngramkit.results import Tabular
from ngramkit.sources import Given, Sources
from ngramkit.templates import find_template

DRAFTERS = ("blend", "rest", "cacheback", "ssd")
NEW_TOKENS = 256


@dataclass(frozen=True, repr=False)
class BenchResults(Tabular):
    """What was measured, the baseline first, and the folder that holds it all."""

    results: list[Result]
    runs: list[Run]  # one per question that all have answered and drafter, the baseline's too
    plan: dict[str, Any]
    folder: Path

    @property
    def identical(self) -> bool:
        """Every answer is the model's own, token for token."""
        return all(result.identical for result in self.results)

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row per drafter and question."""
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
        """Every drafter over every later one, with 95 % intervals over questions."""
        gain, cost = {
            "tokens/step": ("tokens", "passes"),
            "tokens/s": ("new_tokens", "seconds"),
        }[of]
        columns = {}
        for name in (r.drafter for r in self.results if r.drafter != BASELINE):
            runs = [run for run in self.runs if run.drafter == name]
            columns[name] = (
                name,
                [getattr(run, gain) for run in runs],
                [getattr(run, cost) for run in runs],
            )
        return [ratio(columns[a], columns[b]) for a, b in combinations(columns, 2)]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `ngramkit bench --json` prints them."""
        both: tuple[Literal["tokens/step"], Literal["tokens/s"]] = ("tokens/step", "tokens/s")
        return {
            "results": [result.to_dict() for result in self.results],
            "ratios": [{"figure": of, **r.to_dict()} for of in both for r in self.ratios(of)],
            "questions": list(self.rows()),
            "plan": self.plan,
        }

    def __repr__(self) -> str:
        shown = ", ".join(f"{r.drafter} {r.speedup:.2f}x" for r in self.results[1:])
        return f"<BenchResults of {self.plan['model']} in {self.folder}: {shown}>"


def bench(
    questions: str | Path | Sequence[Question] | None = None,
    model: str | LanguageModel | None = None,
    *,
    drafters: Sequence[str | Callable[[], Drafter]] | str = (),
    artifacts: Sources | Sequence[Given] | Given = (),
    template: str = "auto",
    max_new_tokens: int = NEW_TOKENS,
    stop: Sequence[str] = (),
    sampling: Sampling = GREEDY,
    passes: PassOptions = PassOptions(),  # noqa: B008 (frozen)
    out: str | Path | None = None,
    force: bool = False,
    reporter: Reporter = SILENT,
) -> BenchResults:
    """Measures `drafters` (default: all that fit) and no drafter on `questions`.

    `questions`: a file, see ngramkit.evaluate.questions; None: the embedded model's own prompts.
    `drafters` and `artifacts` as in `choose_drafter`, or functions that make a drafter; a drafter's
    option `budget` (nodes, or auto) is its own; generate and generate-lookup are transformers' own
    ways, model.generate without and with its prompt lookup. `template`
    makes a conversation a text; auto: the model's own, else the one known for its name. What is
    measured is kept in `out` (default: bench/QUESTIONS-MODEL): interrupted, the same call goes on;
    `force` begins anew. Ctrl-C is raised.

    Raises UsageError for what makes no sense, and where `out` holds another benchmark.
    """
    named = [drafters] if isinstance(drafters, str) or callable(drafters) else list(drafters)
    _check(named)
    passes.require_full_cache("a benchmark of drafters")
    prepared = passes.prepare(model, reporter)
    asked = questions_for(questions, prepared.tokenizer.record.id)
    form = find_template(template, prepared.tokenizer)
    reporter.note(str(form))
    budgets, choices = _choices(named, prepared, Sources.of(artifacts).recorded(), reporter)
    task, choices = prepared.task(choices, max_new_tokens, sampling, stop, reporter)
    own = {
        budget: replace(passes, budget=budget).runner(task.model, reporter)
        for budget in dict.fromkeys(budgets.values())
        if budget
    }
    contestants = [_contestant(choice, own.get(budgets.get(choice.label, 0))) for choice in choices]
    others = _others(named, task)
    contest = Bench(task, [*others, *contestants], asked, form)
    if contest.too_long:
        reporter.note(f"{contest.too_long} questions are longer than the model's context: left out")
    plan = plan_of(contest, asked.name, form.name, _artifacts(choices))
    folder = Path(out or Path("bench") / f"{asked.name}-{Path(task.model.name).name}")
    with alone_in(folder):
        runs = Runs(folder, plan, force=force)
        _run(contest, runs, folder, reporter)
        results = publish(contest, runs, plan, folder, reporter)
    return BenchResults(results, _shared(runs, results), plan, folder)


def _check(drafters: Sequence[Any]) -> None:
    """Before a model is loaded in vain."""
    for each in drafters:
        if is_foreign(each):
            continue
        if isinstance(each, str) and DrafterSpec.parse(split_budget(each)[0]).name == BASELINE:
            raise UsageError("decoding without drafts is measured anyway", "leave out drafter none")


def questions_for(given: Any, model: str) -> Questions:
    """A file's, those that are given, or for the embedded model its own. Raises UsageError where a
    model has none."""
    if isinstance(given, str | Path):
        return read_questions(Path(given))
    if given is not None:
        return Questions(given, getattr(given, "name", "questions"))
    if model != DEFAULT:
        raise UsageError("there are no questions", "give questions: a file", option="questions")
    return embedded_questions()


def _choices(
    named: Sequence[Any], model: PreparedModel, artifacts: Sources, reporter: Reporter
) -> tuple[dict[str, Budget], list[DrafterChoice]]:
    """Those that are named, each once; else all that have what they need. And their own budgets."""
    found: list[DrafterChoice] = []
    budgets: dict[str, Budget] = {}
    for each in named or DRAFTERS:
        if is_foreign(each):
            continue
        plain, budget = split_budget(each) if isinstance(each, str) else (each, 0)
        try:
            choice = model.choose(plain, artifacts, reporter)
        except ArtifactError as error:
            if named:
                raise
            reporter.note(f"without {each}: {error}")
            continue
        label = choice.label + (("," if ":" in choice.label else ":") + f"budget={budget}") * (
            budget != 0
        )
        found.append(replace(choice, label=label))
        budgets[label] = budget
    return budgets, distinct(found)


def _others(named: Sequence[Any], task: Task) -> list[Contestant]:
    """transformers' own ways among `named`, with plain weights, as they are without ngramkit."""
    names = [str(each) for each in dict.fromkeys(named) if is_foreign(each)]
    if not names:
        return []
    require_plain(task)
    model = replace(task.model, model=unpacked(task.model.model))
    return [foreign(name, model) for name in names]


def _contestant(choice: DrafterChoice, runner: Runner | None) -> Contestant:
    return Contestant(
        choice.label,
        lambda remember: choice.load(forgetful=not remember),
        choice.learns,
        runner,
        listens=choice.listens,
    )


def _artifacts(choices: Sequence[DrafterChoice]) -> list[str]:
    builds = {a.path: a.manifest.build for choice in choices for a in choice.opened}
    histories = {c.past.path for c in choices if c.past is not None and c.past.path is not None}
    said = [f"{path} ({builds[path][:12]})" for path in sorted(builds)]
    return [*said, *map(str, sorted(histories))]


def _run(contest: Bench, runs: Runs, folder: Path, reporter: Reporter) -> None:
    if runs.found:
        reporter.note(f"going on: {len(runs.found)} answers are in {folder} already")
    try:
        contest.run(runs, reporter)
    except KeyboardInterrupt:
        kept = len(runs.found)
        reporter.note(f"{kept} answers are in {folder}; the same command goes on from there")
        raise


def _shared(runs: Runs, results: Sequence[Result]) -> list[Run]:
    """In the results' order; only questions that every drafter has answered."""
    names = [result.drafter for result in results]
    asked = dict.fromkeys(key[1] for key in runs.found)
    every = [q for q in asked if all((name, q) in runs.found for name in names)]
    return [runs.found[name, question] for name in names for question in every]
