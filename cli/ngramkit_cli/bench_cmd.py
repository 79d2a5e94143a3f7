"""`ngramkit bench`: drafters against each other and against none, on a question file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ngramkit_cli import decode_options as opt
from ngramkit_cli.artifact_options import Datastores, DrafterChoice, FrozenTablePath, choose_drafter
from ngramkit_cli.history_options import TOKENS, HistoryPath, HistoryTokens, HistoryUse
from ngramkit_cli.options import Debug, Force, Json, the_model
from ngramkit_cli.output import Output

if TYPE_CHECKING:
    from ngramkit.decode.load import LanguageModel
    from ngramkit.decode.profile import Profile
    from ngramkit.evaluate.bench import Bench
    from ngramkit.evaluate.questions import Question
    from ngramkit.evaluate.results import Result
    from ngramkit.evaluate.runs import Runs

Questions = Annotated[
    Path | None,
    typer.Option(
        "--questions",
        metavar="FILE",
        help="MT-Bench's, Spec-Bench's, HumanEval's or GSM8K's jsonl (.gz), jsonl with prompts, or "
        "a .txt with one prompt per line. Default for the model demo: its embedded prompts.",
    ),
]
DrafterNames = Annotated[
    list[str] | None,
    typer.Option("--drafter", metavar="NAME", help="May be repeated. Default: all that fit."),
]
TemplateName = Annotated[
    str,
    typer.Option(
        help="vicuna, chatml, llama-2, mistral, tokenizer, none (prompts as they stand), or auto: "
        "the tokenizer's where it has one."
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N questions.")]
OutFolder = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Default: bench/QUESTIONS-MODEL."),
]
NewTokens = Annotated[
    int, typer.Option("--max-new-tokens", min=2, help="Tokens of an answer at most.")
]
DEFAULTS = ("blend", "rest", "cacheback", "ssd")
EMBEDDED = 20  # prompts


def bench(
    questions: Questions = None,
    drafter: DrafterNames = None,
    model: opt.Model = None,
    datastore: Datastores = None,
    frozen_table: FrozenTablePath = None,
    history: HistoryPath = None,
    history_tokens: HistoryTokens = TOKENS,
    template: TemplateName = "auto",
    limit: Limit = None,
    max_new_tokens: NewTokens = 256,
    budget: opt.BudgetOrAuto = None,
    temperature: opt.Temperature = 0.0,
    top_p: opt.TopP = 1.0,
    top_k: opt.TopK = 0,
    seed: opt.Seed = 0,
    stop: opt.Stop = None,
    device: opt.Device = "auto",
    dtype: opt.Dtype = "auto",
    engine: opt.Engine = "auto",
    out_path: OutFolder = None,
    force: Force = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure drafters on a model: tokens/step, speed-up, and that the output stays the same.

    Interrupted, it goes on where it was when it is run again.

    Example: ngramkit bench --questions question.jsonl --model vicuna-7b --drafter rest --limit 20
    """
    with Output("bench", json=json, debug=debug) as out:
        from ngramkit.decode.load import load_model
        from ngramkit.decode.sampling import Sampling
        from ngramkit.evaluate.bench import Bench
        from ngramkit.evaluate.outcome import plan_of, publish
        from ngramkit.evaluate.runs import Runs

        sampling = Sampling(temperature, top_k, top_p, seed)
        which = the_model(model, out)
        name, asked = _questions(questions, which, limit)
        loaded = load_model(which, device=device, dtype=dtype)
        use = HistoryUse(history, history_tokens, recorded=True, least_score=loaded.least_score)
        choices = [
            choose_drafter(
                each,
                loaded.tokenizer.record,
                out,
                datastores=datastore,
                frozen_table=frozen_table,
                history=use,
            )
            for each in _names(drafter)
        ]
        chosen = opt.chosen_budget(budget, loaded, None, engine, out)
        task = _task(max_new_tokens, chosen, loaded, sampling, tuple(stop or ()), engine)
        form, form_name = _template(template, loaded)
        contest = Bench(loaded, _contestants(choices), asked, task, form)
        if contest.too_long:
            out.say(f"{contest.too_long} questions are longer than the model's context: left out")
        plan = plan_of(contest, name, form_name, _artifacts(choices))
        folder = out_path or Path("bench") / f"{name}-{Path(which).name}"
        runs = Runs(folder, plan, force=force)
        _run(contest, runs, folder, out)
        results = publish(contest, runs, plan, folder, out.reporter)
        _say(results, folder, out)
        out.result(folder, results=[_as_json(result) for result in results])
        exact = sampling.greedy and plan["dtype"] == "float32"
        if exact and not all(result.identical for result in results):
            raise typer.Exit(1)


def _questions(path: Path | None, model: str, limit: int | None) -> tuple[str, list[Question]]:
    """What the questions are called, and they."""
    from ngramkit.errors import UsageError
    from ngramkit.evaluate.questions import Question, read_questions

    if path is not None:
        return path.name.split(".")[0], read_questions(path)[:limit]
    if model != "demo":
        raise UsageError("there are no questions", "give --questions FILE")
    from ngramkit.demo import demo_prompts

    prompts = demo_prompts(limit or EMBEDDED)
    return "python-stdlib", [Question(where, "python", [text]) for where, text in prompts]


def _names(asked: list[str] | None) -> list[str]:
    from ngramkit.drafters import DRAFTERS, drafter_entry
    from ngramkit.errors import UsageError

    names = list(dict.fromkeys(asked or [name for name in DEFAULTS if name in DRAFTERS]))
    for name in names:
        drafter_entry(name)
    if "none" in names:
        raise UsageError("decoding without drafts is measured anyway", "leave out --drafter none")
    return names


def _task(
    new_tokens: int,
    budget: tuple[int | None, Profile | None],
    model: LanguageModel,
    sampling: Any,
    stop: tuple[str, ...],
    engine: str,
) -> Any:
    import numpy as np

    from ngramkit.decode.complete import Task

    nodes, profile = budget
    if nodes is None and profile is None:
        nodes = model.default_budget
    none_yet = np.zeros(1, np.int32)  # every question puts its own prompt here
    return Task(none_yet, new_tokens, nodes, sampling, stop, engine=engine, profile=profile)


def _template(name: str, model: LanguageModel) -> tuple[Any, str]:
    from ngramkit.evaluate.templates import find_template

    if name == "auto":
        name = "tokenizer" if model.tokenizer.chat_template else "none"
    return None if name == "none" else find_template(name, model.tokenizer), name


def _contestants(choices: list[DrafterChoice]) -> list[Any]:
    from ngramkit.evaluate.bench import Contestant

    def make(choice: DrafterChoice) -> Any:
        return lambda remember: choice.load(forgetful=not remember)

    return [Contestant(c.name, make(c), c.learns) for c in choices]


def _run(contest: Bench, runs: Runs, folder: Path, out: Output) -> None:
    if runs.found:
        out.say(f"going on: {len(runs.found)} answers are in {folder} already")
    try:
        contest.run(runs, out.reporter)
    except KeyboardInterrupt:
        out.say(f"{len(runs.found)} answers are in {folder}; the same command goes on from there")
        raise
    out.reporter.close()


def _artifacts(choices: list[DrafterChoice]) -> list[str]:
    from ngramkit.formats.manifest import read_manifest

    paths = {path for choice in choices for path in choice.paths}
    return [f"{path} ({read_manifest(path).build[:12]})" for path in sorted(paths)]


def _say(results: list[Result], folder: Path, out: Output) -> None:
    width = max(len(result.drafter) for result in results) + 2
    head = "".join(f"{title:>14}" for title in ("tokens/step", "tokens/s", "speed-up"))
    out.say("", f"{' ' * width}{head}   95% interval")
    for r in results:
        figures = f"{r.tokens_per_step:14.2f}{r.tokens_per_second:14,.1f}{r.speedup:14.2f}"
        same = "" if r.identical else f"   {len(r.differing)} answers differ"
        interval = f"{r.speedup_low:.2f} to {r.speedup_high:.2f}"
        out.say(f"{r.drafter.ljust(width)}{figures}   {interval}{same}")
    out.say("", f"{folder}/report.html, results.json, answers-*.jsonl")


def _as_json(result: Result) -> dict[str, Any]:
    keys = (
        "drafter",
        "tokens",
        "passes",
        "tokens_per_step",
        "tokens_per_second",
        "speedup",
        "speedup_low",
        "speedup_high",
        "identical",
        "by_category",
    )
    return {key: getattr(result, key) for key in keys}
