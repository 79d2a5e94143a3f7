"""report.html of a benchmark: one file with its pictures.

The template report.html.jinja escapes every value.
"""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from markupsafe import Markup

from ngramkit.basics.terminal_text import device_text, fold_name
from ngramkit.evaluate.bench_figures import BenchResult, shown_speedup
from ngramkit.evaluate.bench_runs import BASELINE_DRAFTER
from ngramkit.evaluate.plots import (
    MUTED,
    Colors,
    Picture,
    colors_of,
    draw_categories,
    draw_lines,
    draw_no_gain,
    legend_below,
    saved_figure,
    shown_name,
)
from ngramkit.evaluate.replay_figures import Replay
from ngramkit.evaluate.result_folder import write_text
from ngramkit.evaluate.statistics import shown_interval

LINE_BREAKS = re.compile(r"(?<=[:,=_])(?=\w)|(?<=\.)(?=[^\W\d])")  # possible line breaks in a name
PICTURE_WIDTH = 5.0  # inches, readable on a phone
PICTURE_SIZE = (PICTURE_WIDTH, 4.2)
LENGTH_BARS = 10  # bars; the last counts all longer ones too
TABLE_COLUMNS = (
    "drafter",
    "answers as without drafts",
    "speed-up",
    "95 % interval over questions",
    "as Spec-Bench counts",
    "tokens/step",
    "tokens/s",
    "time spent drafting",
)
NOTE_MEASURED = "Each drafter has one speed-up, the measured one above: all tokens by all seconds. "
NOTE_AUTO = (
    "Its drafts were as large as paid for their time on this machine (budget auto), small where a "
    "pass is costly. "
)
NOTE_FIXED = (
    "Its drafts had at most {} nodes per pass; a drafter with a budget of its own names it. "
)
NOTE_SPEC_BENCH = (
    "Spec-Bench's evaluation/speed.py, given the same answers, averages the questions' rates, and "
    "counts the baseline's tokens anew from its text. "
)
NOTE_REPLAYED = (
    "The curve by budget is no second measurement: it replays the answers that were written "
    "without drafts at fixed budgets and counts passes, not time. So it rises with the budget even "
    "where larger drafts cost more than they save. It also lacks the evidence of "
    "rejected nodes, which decoding knows. A drafter with a budget of its own has no curve."
)


def with_line_breaks(text: str) -> Markup:
    return Markup("<wbr>").join(LINE_BREAKS.split(text))


def write_report(
    path: Path,
    title: str,
    results: Sequence[BenchResult],
    curves: Sequence[Replay],
    plan: Mapping[str, Any],
    machine: Mapping[str, str],
    missing: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write the page; `results[0]` is the baseline."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("ngramkit.evaluate", ""),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters["breakable"] = with_line_breaks
    environment.filters["label"] = lambda text: "\u200b".join(LINE_BREAKS.split(text))
    environment.filters["as_url"] = _picture_as_url
    drafters, blank = list(results[1:]), [""] * (len(TABLE_COLUMNS) - 2)
    drafts = NOTE_AUTO if plan["budget"] == "auto" else NOTE_FIXED.format(plan["budget"])
    page = environment.get_template("report.html.jinja").render(
        title=title,
        columns=TABLE_COLUMNS,
        rows=[
            *map(_row_of_drafter, results),
            *((name, f"n/a: {needs}", *blank) for name, needs in missing.items()),
        ],
        explanation=NOTE_MEASURED + drafts + NOTE_SPEC_BENCH + NOTE_REPLAYED * bool(curves),
        pictures=bench_pictures(results, curves),
        budgets=_table_by_budget(drafters, curves, plan["budget"]),
        categories=_table_by_category(drafters),
        plan=_facts_as_texts(plan),
        machine=_facts_as_texts(machine),
    )
    write_text(path, page)


def _row_of_drafter(result: BenchResult) -> tuple[str, ...]:
    wrong = len(result.differing)
    interval = "" if result.drafter == BASELINE_DRAFTER else _show_interval(result)
    return (
        result.drafter,
        "all"
        if not wrong
        else f"all but {wrong}" + " (near ties)" * (wrong == len(result.near_ties)),
        shown_speedup(result.speedup),
        interval,
        f"{result.spec_bench['speedup']:.2f}" if result.spec_bench else "",
        f"{result.tokens_per_step:.2f}",
        f"{result.tokens_per_second:,.1f}",
        f"{result.draft_seconds / result.seconds:.1%}",
    )


def _show_interval(result: BenchResult) -> str:
    return shown_interval(result.speedup_low, result.speedup_high) or result.speedup_interval


def _table_by_budget(
    drafters: Sequence[BenchResult], curves: Sequence[Replay], budget: int | str
) -> list[tuple[str, ...]]:
    if not curves:
        return []
    nodes = sorted({curve.budget for curve in curves})
    points = {(c.drafter, c.budget): f"{c.total.tokens_per_step:.2f}" for c in curves}
    rows = [
        (
            result.drafter,
            *(points.get((result.drafter, n), "") for n in nodes),
            f"{result.tokens_per_step:.2f}",
        )
        for result in drafters
    ]
    return [("drafter", *map(str, nodes), f"measured, {budget}"), *rows]


def _table_by_category(drafters: Sequence[BenchResult]) -> list[tuple[str, ...]]:
    rows = [("category", *(result.drafter for result in drafters))]
    for name in drafters[0].by_category if drafters else ():
        figures = [result.by_category[name] for result in drafters]
        rows.append(
            (
                name,
                *(
                    f"{f['tokens_per_step']:.2f}, {shown_speedup(f['speedup'], 'x')}"
                    for f in figures
                ),
            )
        )
    return rows


def _facts_as_texts(facts: Mapping[str, Any]) -> dict[str, str]:
    texts = {key: _as_text(value) for key, value in facts.items()}
    if "device" in texts:
        texts["device"] = device_text(texts["device"])
    return {key: text for key, text in texts.items() if text}


def _as_text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def bench_pictures(results: Sequence[BenchResult], curves: Sequence[Replay]) -> list[Picture]:
    """Return the pictures of a benchmark; `results[0]` is the baseline."""
    drafters = list(results[1:])
    colors = colors_of(result.drafter for result in drafters)
    names = list(drafters[0].by_category) if drafters else []
    has_interval = any(result.speedup_low is not None for result in drafters)
    pictures = [
        Picture(
            "speedups",
            "Speed-up over no drafts" + ", with its 95 % interval over questions" * has_interval,
            lambda axes: _draw_speedups(axes, drafters, colors),
            (PICTURE_WIDTH, 1.2 + 0.55 * max(len(drafters), 2)),
            "; ".join(
                f"{r.drafter} {shown_speedup(r.speedup)} ({_show_interval(r)})" for r in drafters
            ),
        )
    ]
    if len(names) > 1:
        speedups = {
            r.drafter: [r.by_category[name]["speedup"] or math.nan for name in names]
            for r in drafters
        }
        intervals = {r.drafter: [r.interval_of(name) for name in names] for r in drafters}
        pictures.append(
            Picture(
                "categories",
                "Speed-up by category",
                lambda axes: draw_categories(axes, speedups, names, colors, "speed-up", intervals),
                PICTURE_SIZE,
                f"The figures of the table by category: {', '.join(names)}.",
            )
        )
    if curves:
        pictures.append(
            Picture(
                "budgets",
                "Tokens/step by budget, replayed",
                lambda axes: draw_lines(axes, curves, colors),
                PICTURE_SIZE,
                "A line per drafter over draft nodes per pass; the table by budget has its points.",
            )
        )
    pictures.append(
        Picture(
            "lengths",
            "Tokens written by one pass: shares of passes",
            lambda axes: _draw_lengths(axes, drafters, colors),
            PICTURE_SIZE,
            "; ".join(f"{r.drafter} {r.tokens_per_step:.2f} on average" for r in drafters),
        )
    )
    return pictures


def _picture_as_url(picture: Picture) -> str:
    out = io.BytesIO()
    with saved_figure(out, picture.size) as figure:
        picture.draw(figure.add_subplot())
    return f"data:image/svg+xml;base64,{base64.b64encode(out.getvalue()).decode()}"


def _draw_speedups(axes: Any, drafters: Sequence[BenchResult], colors: Colors) -> None:
    for i, result in enumerate(drafters):
        axes.barh(i - 0.1, result.speedup or 0.0, height=0.42, color=colors[result.drafter])
        axes.annotate(
            shown_speedup(result.speedup),
            (result.speedup or 0.0, i - 0.1),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},  # above the line at 1
        )
        if result.speedup_low is not None:
            ends = [result.speedup_low, result.speedup_high]
            axes.plot(ends, [i + 0.26] * 2, "|-", color=MUTED, markersize=5, linewidth=1)
    axes.set_yticks(range(len(drafters)), [fold_name(result.drafter) for result in drafters])
    axes.set_ylim(len(drafters) - 0.45, -0.55)
    axes.set_xlim(0, 1.15 * max((1.0, *(r.speedup_high or r.speedup or 0.0 for r in drafters))))
    axes.set_xlabel("speed-up")
    draw_no_gain(axes.axvline)


def _draw_lengths(axes: Any, drafters: Sequence[BenchResult], colors: Colors) -> None:
    longest = max((int(n) for r in drafters for n in r.accepted_lengths), default=1)
    shown, width = min(longest, LENGTH_BARS), 0.8 / max(len(drafters), 1)
    for i, result in enumerate(drafters):
        counts = [0] * shown
        for length, passes in result.accepted_lengths.items():
            counts[min(max(int(length), 1), shown) - 1] += passes
        places = [n + 1 + (i - (len(drafters) - 1) / 2) * width for n in range(shown)]
        shares = [count / max(result.passes, 1) for count in counts]
        name = result.drafter
        axes.bar(places, shares, width=width, color=colors[name], label=shown_name(name))
    ticks = [str(n + 1) for n in range(shown)]
    if longest > shown:
        ticks[-1] += "+"
    axes.set_xticks(range(1, shown + 1), ticks)
    axes.set(xlabel="tokens of a pass", ylabel="share of passes")
    legend_below(axes)
