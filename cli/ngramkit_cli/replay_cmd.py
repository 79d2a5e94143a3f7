"""`ngramkit replay`: tokens/step of drafters on recorded answers, without the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import ngramkit
from ngramkit.basics.errors import UsageError
from ngramkit.basics.kinds import KIND_OF_ROLE
from ngramkit_cli.errors import lack_line
from ngramkit_cli.output import Output
from ngramkit_cli.python_drafters import named_drafter
from ngramkit_cli.shared_options import (
    ANSWERED_QUESTIONS,
    BASELINE,
    DRAFTER_NAMES,
    FORCE,
    LIMIT,
    MODEL,
    TEMPLATE_OF_QUESTIONS,
    LogOptions,
    SourceOptions,
    takes_urls,
    the_model,
    whole_numbers,
)
from ngramkit_cli.tables import lines_of_ratios, table_of_figures

if TYPE_CHECKING:
    from ngramkit.evaluate.replay_figures import Replay, Tally
    from ngramkit.evaluate.replay_tables import Replays


@dataclass(frozen=True)
class ReplaySources(SourceOptions):
    """Sources of drafts, by default those under artifacts/ that fit. A field is an option."""

    curve: list[str] | None = typer.Option(
        None,
        metavar="[NAME=]PATH|URL",
        help="An artifact by itself, in place of --datastore and the like; may be repeated. "
        "Tokens/step by bytes, a line for each NAME.",
    )

    def curves(self, given: list[str]) -> dict[str, Any]:
        """Return the artifacts of --curve as keywords; it excludes other sources."""
        shared = (*(role.removesuffix("s") for role in KIND_OF_ROLE), "history")
        for name in shared:
            if getattr(self, name) is not None:
                raise UsageError(
                    f"cannot use curve with {name}",
                    "Leave out one of them.",
                    option=("curve", name),
                )
        return {"artifacts": parse_curves(given)}


def parse_curves(given: list[str]) -> dict[str, list[str]]:
    """Return artifacts by curve from NAME=PATH or PATH; an existing path has no name."""
    curves: dict[str, list[str]] = {}
    for text in given:
        name, sign, path = text.partition("=")
        named = sign and path and not set("/\\:") & set(name) and not Path(text).exists()
        curves.setdefault(name if named else "", []).append(path if named else text)
    return curves


# The tables of `ngramkit replay`.


NOT_COUNTED = "n/a"


def say_replay(results: Replays, out: Output) -> None:
    budgets = sorted({r.budget for r in results})
    widest = [r for r in results if r.budget == budgets[-1]]
    replayed = [r for r in widest if r.missing is None]
    passes = f"{replayed[0].total.tokens:,} tokens after the prefills'"
    out.show(f"tokens/step by draft nodes per pass ({passes})")
    _say_budgets(results, budgets, out)
    if remarks := _remarks_by_drafter(results):
        out.show("", *remarks)
    if results.curves:
        _say_curves(results, out)
    else:
        out.show("", f"with {budgets[-1]} nodes")
        _say_passes(replayed, out)
        _say_categories(replayed, out)
    if (results.baseline or not results.curves) and (ratios := results.ratios()):
        title = f"ratios of tokens/step with {budgets[-1]} nodes"
        out.show("", *lines_of_ratios(title, ratios))


def _say_budgets(results: Sequence[Replay], budgets: list[int], out: Output) -> None:
    cell = {(r.drafter, r.budget): _steps_of(r, r.total) for r in results}
    names = dict.fromkeys(r.drafter for r in results)
    rows = [[name, *(cell[name, budget] for budget in budgets)] for name in names]
    out.show(*table_of_figures(rows, ["", *map(str, budgets)], justify="right"))


def _remarks_by_drafter(results: Sequence[Replay]) -> list[str]:
    """Return a line per drafter that was not replayed or lacked evidence."""
    missing = {r.drafter: r.missing for r in results if r.missing is not None}
    lines = [lack_line(name, needs) for name, needs in missing.items()]
    for r in results:
        if r.misses is not None and r.misses.missing:
            share = f"{r.misses.missing:,} of {r.misses.rows:,} contexts"
            percent = f"{_share_of(r.misses.missing, r.misses.rows):.1%}"
            low = "; * too low, left out of ratios; --model verifies them" if r.incomplete else ""
            lines.append(
                f"{r.drafter}, {r.budget} nodes: {share} ({percent}) were not on record{low}"
            )
    return lines


def _say_curves(results: Replays, out: Output) -> None:
    budget = max(r.budget for r in results)
    rows = [
        [drafter, curve, f"{size / 1e6:,.{1 if size >= 1e6 else 3}f}", f"{steps:.3f}"]
        for drafter, curves in results.by_bytes().items()
        for curve, points in curves.items()
        for size, steps in points
    ]
    out.show("", f"tokens/step by bytes, {budget} nodes")
    out.show(*table_of_figures(rows, ["", "curve", "MB", "tokens/step"], justify="right"))


def _say_passes(results: Sequence[Replay], out: Output) -> None:
    from ngramkit.evaluate.statistics import shown_interval

    over = dict.fromkeys(r.interval.over for r in results if r.interval.low is not None)
    head = ["", *(["95 % interval"] if over else []), "draft p50", "p99", "empty"]
    head.append("tokens of a pass: 1, 2, 3, ...")
    rows = []
    for r in results:
        t = r.total
        shares = " ".join(f"{_share_of(t.lengths[i], t.passes):.0%}" for i in range(1, 9))
        more = sum(n for i, n in t.lengths.items() if i > 8)
        times = (f"{t.draft_us(percent):.0f} us" for percent in (50, 99))
        lengths = f"{shares}, more {_share_of(more, t.passes):.0%}"
        ends = [shown_interval(r.interval.low, r.interval.high, 3)] if over else []
        rows.append([r.drafter, *ends, *times, f"{_share_of(t.empty, t.passes):.0%}", lengths])
    out.show(*table_of_figures(rows, head))
    if over:
        out.show(f"intervals of tokens/step: {', '.join(over)}")


def _say_categories(results: Sequence[Replay], out: Output) -> None:
    from ngramkit.evaluate.replay_figures import categories_of

    shown = categories_of(results)
    if len(shown) < 2:
        return
    out.show("", "by category")
    rows = [[c, *(_steps_of(r, r.by_category[c]) for r in results)] for c in shown]
    out.show(*table_of_figures(rows, ["", *(r.drafter for r in results)], justify="right"))


def _steps_of(result: Replay, tally: Tally) -> str:
    """Return tokens/step; a star marks those that lack evidence."""
    mark = "*" * (result.incomplete is not None)
    return f"{tally.tokens_per_step:.3f}{mark}" if tally.passes else NOT_COUNTED


def _share_of(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


@takes_urls
def replay(
    *,
    answers: list[Path] | None = typer.Option(
        None,
        metavar="FILE|DIR",
        help="Recorded answers: a log of a server, trajectories of agents, rollouts, lines with "
        "prompt and output, or with --questions FastChat's; may be repeated. See docs/logs.md.",
    ),
    log: LogOptions,
    questions: Path | None = ANSWERED_QUESTIONS,
    evidence: Path | None = typer.Option(
        None,
        "--evidence",
        "--oracle",
        metavar="DIR",
        help="A folder of ngramkit record: its answers, and the model's top-k at verified nodes, "
        "which drafters get as evidence. With --model, the model verifies what is not on record.",
    ),
    template: str = TEMPLATE_OF_QUESTIONS,
    drafter: list[str] | None = DRAFTER_NAMES,
    budget: Any = typer.Option(
        "8,16,32,64,96", metavar="N,N,...", parser=whole_numbers, help="Draft nodes per pass."
    ),
    chain: bool = typer.Option(
        False,
        "--chain",
        help="Draft one path of --budget tokens, as for engines that do not verify trees.",
    ),
    sources: ReplaySources,
    keep_state: bool = typer.Option(
        False,
        "--keep-state",
        help="One drafter for all requests, in their order: its history grows.",
    ),
    prompts: bool = typer.Option(
        False, "--prompts", help="With --keep-state: remember prompts too."
    ),
    seed: int | None = typer.Option(
        None, help="With --keep-state: shuffle the requests. Default: by time."
    ),
    repeat: int = typer.Option(1, min=1, help="With --keep-state: ask every question N times."),
    drop_leaked: bool = typer.Option(
        False, "--drop-leaked", help="Leave out answers that a datastore or the history contains."
    ),
    limit: int | None = LIMIT,
    baseline: str | None = BASELINE,
    plot: Path | None = typer.Option(None, metavar="FILE.png", help="Draw the results."),
    out_path: Path | None = typer.Option(
        None,
        "--out",
        metavar="DIR",
        help="A new folder for results.json with provenance, results.csv, tables in Markdown and "
        "LaTeX, and pictures.",
    ),
    html: Path | None = typer.Option(
        None,
        metavar="FILE.html",
        help="A page of the first answers: each token has the colour of the source that drafted "
        "it. It holds their text. With the first of --budget.",
    ),
    force: bool = FORCE,
    model: str | None = MODEL,
    out: Output,
) -> None:
    """Replay recorded answers: tokens/step of any drafter, without the model.

    With --evidence DIR in place of --answers, drafters also get the model's top-k at verified
    nodes, from ngramkit record.

    Example: ngramkit replay --questions question.jsonl --answers model_answer.jsonl
    --model vicuna-7b --drafter blend --drafter rest:max_match=8 --budget 16,64
    """
    from ngramkit.drafters.registry import DEFAULT_DRAFTER
    from ngramkit.evaluate.result_folder import TEXT_FILES

    if not keep_state and (seed is not None or repeat != 1 or prompts):
        raise UsageError(
            "cannot use --seed, --repeat or --prompts without --keep-state", "Add --keep-state."
        )
    if plot is not None:
        from ngramkit.evaluate.plots import require_picture

        require_picture(plot)
    results = ngramkit.replay(
        answers,
        questions,
        **vars(log),
        model=model if evidence is not None else the_model(model, out),
        drafters=[named_drafter(each) for each in drafter or ()] or DEFAULT_DRAFTER,
        budgets=budget,
        **(sources.keywords() if sources.curve is None else sources.curves(sources.curve)),
        template=template,
        chain=chain,
        keep_state=ngramkit.KeepState(seed, repeat, prompts) if keep_state else None,
        drop_leaked=drop_leaked,
        limit=limit,
        evidence=evidence,
        baseline=named_drafter(baseline),
        out=out_path,
        html=html,
        force=force,
        reporter=out.reporter,
    )
    say_replay(results, out)
    out.result(out_path or plot or html, **results.to_dict())
    if plot is not None:
        results.plot(plot)
        out.show(f"picture: {plot}")
    if html is not None:
        out.show(f"page: {html}")
    if out_path is not None:
        out.show("", f"{out_path}/{', '.join(TEXT_FILES)}, pictures")
