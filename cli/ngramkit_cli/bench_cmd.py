"""`ngramkit bench`: drafters against each other and against none, on a question file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import ngramkit
from ngramkit_cli import decode_options as opt
from ngramkit_cli.options import (
    DrafterNames,
    Force,
    SourceOptions,
    takes_urls,
    the_model,
)
from ngramkit_cli.output import Output
from ngramkit_cli.prompt import QuestionOptions
from ngramkit_cli.screen import figures

if TYPE_CHECKING:
    from ngramkit.evaluate.bench import BenchResults

OutFolder = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Default: bench/QUESTIONS-MODEL."),
]
NewTokens = Annotated[
    int, typer.Option("--max-new-tokens", min=2, help="Tokens of an answer at most.")
]


@takes_urls
def bench(
    *,
    asking: QuestionOptions,
    drafter: DrafterNames = None,
    model: opt.Model = None,
    sources: SourceOptions,
    max_new_tokens: NewTokens = 256,
    sampling: opt.SamplingOptions,
    stop: opt.Stop = None,
    running: opt.RunOptions,
    out_path: OutFolder = None,
    force: Force = False,
    out: Output,
) -> None:
    """Measure drafters on a model: tokens/step, speed-up, and that the output stays the same.

    Interrupted, it goes on where it was when it is run again. Without --drafter: all that fit.
    --drafter generate and generate-lookup are transformers' own ways, without and with its prompt
    lookup; blend:budget=auto has a budget of its own.

    Example: ngramkit bench --questions question.jsonl --model vicuna-7b --drafter rest --limit 20
    """
    results = ngramkit.bench(
        asking.questions,
        the_model(model, out),
        drafters=drafter or (),
        **sources.words(),
        template=asking.template,
        max_new_tokens=max_new_tokens,
        stop=stop or (),
        **sampling.words(),
        **running.words(),
        limit=asking.limit,
        out=out_path,
        force=force,
        reporter=out.reporter,
    )
    _say(results, out)
    out.result(results.folder, **results.to_dict())
    plan = results.plan
    exact = plan["sampling"]["temperature"] == 0 and plan["dtype"] == "float32"
    if exact and not results.identical:
        raise typer.Exit(1)


def _say(results: BenchResults, out: Output) -> None:
    from ngramkit.evaluate.statistics import shown_interval

    rows = [
        (
            r.drafter,
            f"{r.tokens_per_step:.2f}",
            f"{r.tokens_per_second:,.1f}",
            f"{r.speedup:.2f}",
            shown_interval(r.speedup_low, r.speedup_high),
            r.remarks,
        )
        for r in results.results
    ]
    head = ("", "tokens/step", "tokens/s", "speed-up", "95% interval")
    out.say("", *figures(rows, head))
    spec_bench = [
        f"{r.drafter} {r.spec_bench['speedup']:.2f}" for r in results.results[1:] if r.spec_bench
    ]
    if spec_bench:
        out.say("", f"speed-ups as Spec-Bench counts: {', '.join(spec_bench)}")
    ratios = [f"  {each}" for each in results.ratios()]
    if ratios:
        out.say("", "ratios of tokens/s (95% intervals over questions)", *ratios)
    out.say("", f"{results.folder}/report.html, results.json, answers-*.jsonl")
