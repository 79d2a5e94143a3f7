"""The commands that ask a model questions: `bench`, `record` and `self-corpus`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import ngramkit
from ngramkit.basics.terminal_text import counted
from ngramkit_cli import decode_options as opt
from ngramkit_cli.errors import lack_line
from ngramkit_cli.output import Output
from ngramkit_cli.python_drafters import named_drafter
from ngramkit_cli.shared_options import (
    BASELINE,
    DRAFTER_NAMES,
    FORCE,
    QUESTIONS,
    TEMPLATE_OF_QUESTIONS,
    NamedModel,
    QuestionOptions,
    SourceOptions,
    takes_urls,
    the_model,
)
from ngramkit_cli.tables import lines_of_ratios, table_of_figures

if TYPE_CHECKING:
    from ngramkit.evaluate.bench_tables import BenchResults


@takes_urls
def bench(
    *,
    asking: QuestionOptions,
    drafter: list[str] | None = DRAFTER_NAMES,
    model: str | None = opt.MODEL,
    sources: SourceOptions,
    max_new_tokens: int = typer.Option(256, min=2, help="Tokens of an answer at most."),
    sampling: opt.SamplingOptions,
    stop: list[str] | None = opt.STOP,
    running: opt.RunOptions,
    baseline: str | None = BASELINE,
    out_path: Path | None = typer.Option(
        None, "--out", metavar="DIR", help="Default: bench/QUESTIONS-MODEL."
    ),
    force: bool = FORCE,
    out: Output,
) -> None:
    """Measure drafters on a model: tokens/step, speed-up, and that the text stays the same.

    An interrupted run continues when it is repeated. Without --drafter: all that fit. --drafter
    generate and generate-lookup are transformers' own methods, without and with its prompt lookup.
    For one drafter, blend:budget=auto overrides --budget.

    Example: ngramkit bench --questions question.jsonl --model vicuna-7b --drafter rest --limit 20
    """
    results = ngramkit.bench(
        model=the_model(model, out),
        **vars(asking),
        drafters=[named_drafter(each) for each in drafter or ()],
        **sources.keywords(),
        max_new_tokens=max_new_tokens,
        stop=stop or (),
        **vars(sampling),
        **vars(running),
        baseline=named_drafter(baseline),
        out=out_path,
        force=force,
        reporter=out.reporter,
    )
    _say_results(results, out)
    out.result(results.folder, **results.to_dict())
    plan = results.plan
    exact = plan["sampling"]["temperature"] == 0 and plan["dtype"] == "float32"
    if exact and not results.identical:
        raise typer.Exit(1)


def _say_results(results: BenchResults, out: Output) -> None:
    from ngramkit.decode.options import GENERATE
    from ngramkit.evaluate.bench_figures import shown_speedup
    from ngramkit.evaluate.bench_runs import BASELINE_DRAFTER
    from ngramkit.evaluate.result_folder import TEXT_FILES
    from ngramkit.evaluate.statistics import shown_interval

    rows = [
        (
            r.drafter,
            f"{r.tokens_per_step:.2f}",
            f"{r.tokens_per_second:,.1f}",
            shown_speedup(r.speedup),
            "" if r.drafter == BASELINE_DRAFTER else shown_interval(r.speedup_low, r.speedup_high),
        )
        for r in results.results
    ]
    rows += [(name, "n/a", "n/a", "n/a", "") for name in results.missing]
    head = ("", "tokens/step", "tokens/s", "speed-up", "95 % interval")
    out.show(*table_of_figures(rows, head))
    for interval in dict.fromkeys(r.speedup_interval for r in results.results[1:]):
        names = [r.drafter for r in results.results[1:] if r.speedup_interval == interval]
        out.show(f"intervals of {', '.join(names)}: {interval}")
    if results.identical and results.results[1:]:
        out.show("every answer is the same as without drafts")
    for r in results.results:
        if r.remarks:
            out.show(f"{r.drafter}: {r.remarks}")
    for name, needs in results.missing.items():
        out.show(lack_line(name, needs))
    plain = next((r.speedup for r in results.results if r.drafter == GENERATE), None)
    if plain and "packed weights" in results.plan["device"]:
        out.say(
            f"{GENERATE} runs with plain weights; packed weights alone are {1 / plain:.2f} times "
            "as fast, without drafts"
        )
    spec_bench = [
        f"{r.drafter} {r.spec_bench['speedup']:.2f}" for r in results.results[1:] if r.spec_bench
    ]
    if spec_bench:
        out.show("", f"speed-ups as Spec-Bench counts: {', '.join(spec_bench)}")
    if ratios := results.ratios():
        out.show("", *lines_of_ratios("ratios of tokens/s", ratios))
    out.show(
        "", f"{results.folder}/report.html, {', '.join(TEXT_FILES)}, answers-*.jsonl, pictures"
    )


@dataclass(frozen=True)
class RecordingOptions(opt.RunOptions):
    """Options of recorded passes, which have one size. A field is an option."""

    budget: Any = typer.Option(
        None, metavar="N", parser=opt.number_or_word, help="Draft nodes per pass. Default: 64."
    )


@takes_urls
def record(
    *,
    asking: QuestionOptions,
    drafter: list[str] | None = DRAFTER_NAMES,
    model: str | None = opt.MODEL,
    sources: SourceOptions,
    max_new_tokens: int = opt.ANSWER_TOKENS,
    running: RecordingOptions,
    out_path: Path = typer.Option(
        ..., "--out", metavar="DIR", help="A new folder, or a record to extend."
    ),
    out: Output,
) -> None:
    """Record a model's answers and its top-k at verified nodes, for replays without the model.

    The model answers the questions with drafts, and its 16 most likely tokens at every verified
    node are kept. ngramkit replay --evidence DIR gives them to drafters as evidence.

    Without --drafter: blend. An interrupted run continues when it is repeated.

    Example: ngramkit record --questions question.jsonl --model smollm2-135m --out evidence
    """
    recording = ngramkit.record(
        model=the_model(model, out),
        **vars(asking),
        out=out_path,
        drafters=[named_drafter(each) for each in drafter or ()],
        **sources.keywords(),
        max_new_tokens=max_new_tokens,
        **vars(running),
        reporter=out.reporter,
    )
    out.show(
        f"{recording.path}: {counted(recording.answers, 'answer')} of "
        f"{counted(recording.tokens, 'token')} added, {counted(recording.rows, 'context')}",
        f"next: ngramkit replay --evidence {recording.path} --drafter blend",
    )
    out.result(recording.path, **recording.to_dict())


def self_corpus(
    *,
    model: NamedModel,
    questions: Path | None = typer.Option(
        None, "--questions", "--prompts", metavar="FILE|SET", help=f"Questions to ask: {QUESTIONS}"
    ),
    template: str = TEMPLATE_OF_QUESTIONS,
    max_new_tokens: int = opt.ANSWER_TOKENS,
    batch: int = typer.Option(16, metavar="N", help="Questions answered at once."),
    sampling: opt.SamplingOptions,
    loading: opt.LoadOptions,
    out_path: Path | None = typer.Option(
        None, "--out", metavar="FILE", help="Default: self-corpus/QUESTIONS-MODEL.jsonl."
    ),
    force: bool = FORCE,
    out: Output,
) -> None:
    """Write a model's own answers as a corpus: the best text to draft for this model.

    An interrupted run continues when it is repeated. The file can be the --corpus of every builder.

    Example: ngramkit self-corpus demo --max-new-tokens 64
    """
    name = model.chosen(out)
    corpus = ngramkit.self_corpus(
        questions,
        name,
        out_path,
        template=template,
        max_new_tokens=max_new_tokens,
        batch=batch,
        **vars(sampling),
        **vars(loading),
        force=force,
        reporter=out.reporter,
    )
    rate = corpus.new_tokens / corpus.seconds if corpus.new_tokens else 0
    out.show(
        f"{corpus.path}: {counted(corpus.answers, 'answer')}, {counted(corpus.tokens, 'token')}"
        + (f", {rate:,.0f} tokens/s" if rate else "")
        + (f"; {corpus.repeated:,} left out, repeated or empty" if corpus.repeated else "")
        + (f"; {corpus.left_out:,} did not fit into the context" if corpus.left_out else ""),
        f"next: ngramkit build-datastore --corpus {corpus.path} --model {name}",
    )
    out.result(corpus.path, **corpus.to_dict())
