"""`ngramkit forecast`: what drafts would save a server. `ngramkit pass-cost`: what passes cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import ngramkit
from ngramkit.basics.terminal_text import counted
from ngramkit_cli.output import Output
from ngramkit_cli.python_drafters import named_drafter
from ngramkit_cli.shared_options import (
    DRAFTER_OR_CLASS,
    FORCE,
    LIMIT,
    LOGS,
    MODEL,
    REMEMBER_PROMPTS,
    TEMPLATE_OF_QUESTIONS,
    LogOptions,
    SourceOptions,
    size_in_bytes,
    takes_urls,
    the_model,
    whole_numbers,
)
from ngramkit_cli.stdin_log import with_stdin
from ngramkit_cli.tables import table_of_figures

if TYPE_CHECKING:
    from ngramkit.evaluate.forecast_results import Forecasts
    from ngramkit.evaluate.replay_figures import Tally

SHOWN_ROWS = 20  # rows of a table


def say_forecast(results: Forecasts, out: Output) -> None:
    best = results.best
    rows = [
        [
            str(each.budget),
            f"{each.batch:.1f}",
            f"{each.passes_share:.3f}",
            f"{each.time_share:.3f}",
            f"{each.replay.total.tokens_per_step:.2f}",
            f"{each.drafted:,}",
            f"{each.accepted_share:.0%}",
            f"{each.draft_us:.0f} us",
        ]
        for each in results
    ]
    head = ["budget", "batch", "passes share", "time share", "tokens/step", "drafted",
            "accepted share", "draft us"]  # fmt: skip
    if results.replayed.share < 1:
        out.show(f"replayed: {results.replayed}")
    requests = counted(len(best.replay.names), "request")
    out.show(
        f"{requests}, while the batch is fullest ({best.output_share:.0%} of the output tokens); "
        "shares of what the same requests take without drafts"
    )
    out.show(*table_of_figures(rows, head, justify="right"))
    for what, tallies in (("kind", best.by_kind()), ("run", best.by_run())):
        if len(tallies) > 1 or what == "kind":
            out.show("", f"by {what} of request, drafts of at most {best.budget} nodes")
            out.show(*_table_of_tallies(tallies))
    parts = best.over_time()
    if len(parts) > 1:
        out.show("", "tokens/step from the log's first tenth to its last")
        out.show("  " + " ".join(f"{steps:.2f}" for steps in parts))
    out.show("", results.sentence)
    if results.note:
        out.show(f"note: {results.note}")
    if best.warning:
        out.show(f"warning: {best.warning}")


def _table_of_tallies(tallies: dict[str, Tally]) -> list[str]:
    from ngramkit.evaluate.forecast_results import passes_share

    rows = [
        [name, f"{t.tokens:,}", f"{passes_share(t):.3f}", f"{t.tokens_per_step:.2f}"]
        for name, t in list(tallies.items())[:SHOWN_ROWS]
    ]
    head = ["", "output tokens", "passes share", "tokens/step"]
    lines = list(table_of_figures(rows, head, justify="right"))
    more = len(tallies) - SHOWN_ROWS
    return [*lines, f"and {more:,} more"] if more > 0 else lines


@takes_urls
def forecast(
    *,
    files: list[Path] = LOGS,
    log: LogOptions,
    template: str = TEMPLATE_OF_QUESTIONS,
    drafter: str | None = DRAFTER_OR_CLASS,
    concurrency: int | None = typer.Option(
        None,
        min=1,
        max=4096,
        help="Requests at once, at most. Default: 16; 1 for sessions of agents.",
    ),
    budget: Any = typer.Option(
        "16",
        "--budget",
        "--tokens",
        metavar="N,N,...",
        parser=whole_numbers,
        help="Draft nodes of a request per pass, at most, as the engine is asked for.",
    ),
    pass_cost: str | None = typer.Option(
        None,
        metavar="X|N:X,...|FILE",
        help="Cost of a pass over 9 tokens, in passes over one, like 1.1; or times by tokens, "
        "like 1:57,9:109; or a profile of ngramkit pass-cost. Default: the engines' assumption "
        "for a GPU.",
    ),
    sources: SourceOptions,
    prompts: bool = REMEMBER_PROMPTS,
    limit: int | None = LIMIT,
    newest: Any = typer.Option(
        None,
        metavar="SIZE",
        parser=size_in_bytes,
        help="Characters of sessions of agents to replay, the newest first. Default: 2M.",
    ),
    plot: Path | None = typer.Option(None, metavar="FILE.png", help="Draw it over the log's time."),
    model: str | None = MODEL,
    out: Output,
) -> None:
    """Forecast what drafts would save a server: its logged requests are served again.

    Drafts are those of the engines' adapters, with a history that grows with the requests. With
    --no-store there is none; with --history DIR it starts from that one, which is not changed.

    Example: ngramkit forecast server.log --model qwen3-8b --concurrency 16 --budget 8,16
    --pass-cost 1.1
    """
    from ngramkit.drafters.registry import DEFAULT_DRAFTER

    if plot is not None:
        from ngramkit.evaluate.plots import require_picture

        require_picture(plot)
    chosen = the_model(model, out)
    with with_stdin(files, out.reporter) as logs:
        results = ngramkit.forecast(
            logs,
            model=chosen,
            **vars(log),
            template=template,
            drafter=named_drafter(drafter) or DEFAULT_DRAFTER,
            **sources.keywords(),
            concurrency=concurrency,
            budgets=budget,
            pass_cost=pass_cost,
            prompts=prompts,
            limit=limit,
            newest=newest,
            reporter=out.reporter,
        )
    say_forecast(results, out)
    out.result(plot, **results.to_dict())
    if plot is not None:
        from ngramkit.evaluate.plots import plot_warming

        plot_warming([each.replay for each in results], plot)
        out.show(f"picture: {plot}")


def pass_cost(
    *,
    files: list[Path] = typer.Argument(
        metavar="FILE...",
        help="Results of `vllm bench serve --save-result` or `sglang.bench_serving --output-file`, "
        "with --max-concurrency 1 and more.",
    ),
    out_path: Path = typer.Option(..., "--out", metavar="FILE.json", help="The profile."),
    force: bool = FORCE,
    out: Output,
) -> None:
    """Turn runs of an engine's benchmark into the profile that forecast --pass-cost reads.

    With N requests at once, each token of a request takes one pass over N tokens.

    Example: ngramkit pass-cost runs/*.json --out server.json
    """
    from ngramkit.budget.pass_times import REPORTED_SIZE as SHOWN_PASS

    found = ngramkit.pass_cost(files, out_path, force=force)
    rows = [
        (f"{row['tokens']:,}", f"{row['ms']:.2f}", f"{row['cost']:.2f}") for row in found.rows()
    ]
    out.show(
        f"{counted(len(found.runs), 'run')} of {found.profile.model or 'a server'}; "
        f"a pass over {SHOWN_PASS} tokens costs {found.cost:.2f} passes over one"
        + ("" if found.profile.sizes[-1] + 1 >= SHOWN_PASS else ", extrapolated"),
        *table_of_figures(rows, ["tokens", "ms", "cost"], justify="right"),
    )
    out.result(found.path, **found.to_dict())
