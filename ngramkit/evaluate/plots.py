"""Plots of replays."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from ngramkit.basics.errors import UsageError
from ngramkit.basics.machine import require_package
from ngramkit.basics.terminal_text import counted, fold_name
from ngramkit.evaluate.replay_figures import Replay, Tally, categories_of
from ngramkit.evaluate.statistics import Interval
from ngramkit.formats.replacing import require_room_for_file

SUFFIXES = (".png", ".svg", ".pdf", ".jpg", ".jpeg", ".webp", ".eps")
MUTED = "#6a737d"
MAX_ROWS = 40  # kinds of requests per plot
PALETTE = (  # distinct on white for the colour-blind too: tests/evaluate/test_plots.py
    "#0066cc", "#dd5500", "#00a664", "#222222", "#8800ff",
    "#772211", "#aa6699", "#550066", "#3300aa", "#665555",
)  # fmt: skip
LEGEND_ROOM = 0.6  # inches of height for a legend, three lines
# Between the error bars of two drafters, as a share of the budgets' range.
ERROR_BAR_DISTANCE = 0.012
MARKS = "os^DvPX"  # of lines, for the colour-blind
HOLLOW = "hollow: too low, contexts were not on record"
STROKES = ("-o", "--s", ":^", "-.D")  # of matplotlib; marks distinguish curves of one point
ByBytes = Mapping[str, Mapping[str, Sequence[Replay]]]  # {drafter: {curve: replays}}
Colors = Mapping[str, str]


class Picture(NamedTuple):
    name: str  # of its file, without a suffix
    title: str
    draw: Callable[[Any], None]  # into axes
    size: tuple[float, float] = (6.8, 5.5)  # inches
    description: str = ""  # alternative text


def require_picture(path: Path) -> None:
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(
            f"unknown image format {path.suffix!r} of {path}",
            f"Choose from {', '.join(SUFFIXES)}.",
            option="plot",
        )
    require_package("matplotlib", "draw a plot")
    require_room_for_file(path, "plot")


def replay_pictures(
    results: Sequence[Replay], *, learning: bool = False, by_bytes: ByBytes | None = None
) -> list[Picture]:
    """Return the pictures of replays.

    `learning` adds tokens/step by requests answered; `by_bytes` gives tokens/step by bytes only.
    """
    nodes = max(result.budget for result in results)
    if by_bytes:
        title = f"tokens/step by bytes drafted from, {nodes} nodes"
        return [Picture("bytes", title, lambda axes: draw_bytes(axes, by_bytes))]
    colors = colors_of(result.drafter for result in results)
    widest = [result for result in results if result.budget == nodes]
    pictures = [
        Picture("budgets", "tokens/step by budget", lambda axes: draw_lines(axes, results, colors))
    ]
    if learning:
        title = f"what is learnt from past questions, {nodes} nodes"
        pictures.append(
            Picture("learning", title, lambda axes: draw_learning(axes, widest, colors))
        )
    if len(categories_of(results)) > 1:
        title = f"by category, {nodes} nodes"
        pictures.append(Picture("categories", title, lambda axes: draw_steps(axes, widest, colors)))
    return pictures


def plot_warming(results: Sequence[Replay], path: Path) -> None:
    colors = colors_of(result.drafter for result in results)
    title = "tokens/step over the log, a line per length of drafts"
    pictures = [
        Picture("log", title, lambda axes: draw_learning(axes, results, colors, "requests"))
    ]
    if 1 < len(categories_of(results)) <= MAX_ROWS:
        title = "by kind of request"
        pictures.append(Picture("kinds", title, lambda axes: draw_steps(axes, results, colors)))
    draw_together(path, pictures)


def draw_together(path: Path, pictures: Sequence[Picture]) -> None:
    """Draw all pictures into one image; `path`'s suffix sets the format."""
    require_picture(path)
    with saved_figure(path, (0.5 + 6.3 * len(pictures), 5.5)) as figure:
        places = figure.subplots(1, len(pictures), squeeze=False)[0]
        for axes, picture in zip(places, pictures, strict=True):
            axes.set_title(picture.title)
            picture.draw(axes)


def draw_steps(axes: Any, results: Sequence[Replay], colors: Colors) -> None:
    rows = categories_of(results)
    values = {
        r.drafter: [r.by_category.get(row, Tally()).tokens_per_step for row in rows]
        for r in results
    }
    intervals = {r.drafter: [r.interval_of(row) for row in rows] for r in results}
    incomplete = {r.drafter for r in results if r.incomplete}
    draw_categories(axes, values, rows, colors, "tokens/step", intervals, incomplete)


@contextmanager
def saved_figure(
    targets: Path | IO[bytes] | Sequence[Path], size: tuple[float, float]
) -> Iterator[Any]:
    """Yield a matplotlib figure of `size` inches, and save it to all `targets`.

    A path's suffix sets the format; a file gets an SVG. Output is deterministic.
    """
    import matplotlib

    matplotlib.use("Agg")
    from cycler import cycler
    from matplotlib import pyplot

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {"axes.prop_cycle": cycler(color=PALETTE), "svg.hashsalt": "ngramkit",
             "svg.fonttype": "none", "axes.spines.top": False, "axes.spines.right": False,
             "text.parse_math": False, "pdf.fonttype": 42}  # conferences refuse Type 3
        )  # fmt: skip
        figure = pyplot.figure(figsize=size, layout="constrained")
        try:
            yield figure
            _make_room_for_legend(figure)
            for target in targets if isinstance(targets, Sequence) else [targets]:
                kind = target.suffix[1:].lower() if isinstance(target, Path) else "svg"
                metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
                figure.savefig(target, format=kind, dpi=120, metadata=metadata)
                figure.set_layout_engine("none")  # laid out already
        finally:
            pyplot.close(figure)


def _make_room_for_legend(figure: Any) -> None:
    renderer = figure.canvas.get_renderer()
    legends = [axes.get_legend() for axes in figure.axes]
    heights = [each.get_window_extent(renderer).height for each in legends if each is not None]
    highest = max(heights, default=0) / figure.dpi
    figure.set_figheight(figure.get_figheight() + max(highest - LEGEND_ROOM, 0))


def colors_of(names: Any) -> dict[str, str]:
    return {name: f"C{i}" for i, name in enumerate(dict.fromkeys(names))}


def draw_lines(axes: Any, results: Sequence[Replay], colors: Colors) -> None:
    from matplotlib.ticker import NullLocator

    lines = {name: line for name in colors if (line := _results_of_drafter(results, name))}
    ticks = sorted({result.budget for result in results})
    apart = any(r.interval.low is not None for line in lines.values() for r in line)
    step = ERROR_BAR_DISTANCE * (math.log2(ticks[-1] / ticks[0]) or 1.0) if apart else 0.0
    marks = dict(zip(colors, cycle(MARKS), strict=False))
    for i, (name, line) in enumerate(lines.items()):  # transformers' own methods have none
        aside = (i - (len(lines) - 1) / 2) * step
        budgets = [r.budget * 2**aside for r in line]  # error bars do not cover each other
        heights = [r.total.tokens_per_step for r in line]
        label = shown_name(name, "n/a" if math.isnan(heights[-1]) else f"{heights[-1]:.2f}")
        axes.plot(budgets, heights, f"-{marks[name]}", color=colors[name], label=label)
        if low := [i for i, r in enumerate(line) if r.incomplete]:
            points = [budgets[i] for i in low], [heights[i] for i in low]
            axes.plot(*points, marks[name], color=colors[name], markerfacecolor="white")
        draw_intervals(axes.vlines, budgets, [r.interval for r in line], colors[name])
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, map(str, ticks))
    axes.xaxis.set_minor_locator(NullLocator())  # its labels would be formulas
    axes.set(xlabel="draft nodes per pass", ylabel="tokens/step")
    draw_no_gain(axes.axhline)
    title = f"tokens/step with {counted(ticks[-1], 'node')}"
    incomplete = any(r.incomplete for line in lines.values() for r in line)
    legend_below(axes, f"{title}; {HOLLOW}" if incomplete else title)


def _results_of_drafter(results: Sequence[Replay], drafter: str) -> list[Replay]:
    return sorted((r for r in results if r.drafter == drafter), key=lambda r: r.budget)


def draw_intervals(
    lines: Callable[..., Any], places: Sequence[float], intervals: Sequence[Interval], color: str
) -> None:
    """Draw error bars with `axes.vlines` or `axes.hlines` where there are intervals."""
    bars = [
        (place, each.low, each.high)
        for place, each in zip(places, intervals, strict=True)
        if each.low is not None
    ]
    if bars:
        lines(*zip(*bars, strict=True), color=color, linewidth=1.2, alpha=0.6)


def draw_learning(
    axes: Any, results: Sequence[Replay], colors: Colors, what: str = "questions"
) -> None:
    """Draw tokens/step by questions answered; repeated ones are dashed."""
    for mark, result in zip(cycle(MARKS), results, strict=False):
        color = colors[result.drafter]
        for again, style in ((False, "-"), (True, "--")):
            at, steps = learning_curve(result, again=again)
            if len(steps):
                name = shown_name(result.drafter + ", asked before" * again, f"{steps[-1]:.2f}")
                every = max(len(at) // 8, 1)
                axes.plot(at, steps, style + mark, color=color, label=name, markevery=every)
    axes.set(xlabel=f"{what} answered so far", ylabel=f"tokens/step (mean of neighbouring {what})")
    draw_no_gain(axes.axhline)
    legend_below(axes, "tokens/step at the end")


def learning_curve(result: Replay, *, again: bool) -> tuple[Any, Any]:
    """Return requests answered and tokens/step around them, float64[n] each.

    `again` selects those with a repeated first prompt.
    """
    rows = [
        (i, tally.tokens, tally.passes)
        for i, (before, tally) in enumerate(zip(result.asked_before, result.by_record, strict=True))
        if before == again
    ]
    if not rows:
        return np.empty(0), np.empty(0)
    window = np.ones(max(1, len(rows) // 10))
    at, tokens, passes = (
        np.convolve(column, window, "valid") for column in np.array(rows, float).T
    )
    return at / len(window), tokens / np.maximum(passes, 1)


def draw_bytes(axes: Any, curves: ByBytes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    names = list(dict.fromkeys(name for lines in curves.values() for name in lines))
    strokes = {name: STROKES[i % len(STROKES)] for i, name in enumerate(names)}
    for number, (drafter, lines) in enumerate(curves.items()):
        color = f"C{number}"
        axes.plot([], [], color=color, label=shown_name(drafter))
        for name, replays in lines.items():
            sizes = [each.bytes / 1e6 for each in replays]
            steps = [each.total.tokens_per_step for each in replays]
            axes.plot(sizes, steps, strokes[name], markersize=4, color=color)
            draw_intervals(axes.vlines, sizes, [each.interval for each in replays], color)
    for name in filter(None, names):
        axes.plot([], [], strokes[name], markersize=4, color=MUTED, label=shown_name(name))
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, place: f"{size:,g}"))
    axes.set(xlabel="MB drafted from", ylabel="tokens/step")
    legend_below(axes)


def draw_categories(
    axes: Any,
    values: Mapping[str, Sequence[float]],
    rows: Sequence[str],
    colors: Colors,
    unit: str,
    intervals: Mapping[str, Sequence[Interval]],
    incomplete: Collection[str] = (),
) -> None:
    """Draw a row of dots per category; `values`, `intervals`: by name and row.

    Dots of `incomplete` names are hollow.
    """
    step = min(0.15, 0.7 / max(len(values) - 1, 1))
    for i, (mark, (name, figures)) in enumerate(zip(cycle(MARKS), values.items(), strict=False)):
        heights = [row + (i - (len(values) - 1) / 2) * step for row in range(len(rows))]
        style = "none" if name in incomplete else "full"
        axes.plot(
            figures, heights, mark, color=colors[name], label=shown_name(name), fillstyle=style
        )
        draw_intervals(axes.hlines, heights, intervals[name], colors[name])
    labels = [textwrap.fill(row.replace("_", " "), 14) for row in rows]
    lines = max(1 + label.count("\n") for label in labels)
    row_height = max(0.12 + 0.17 * lines, 0.1 + 0.06 * len(values))
    figure = axes.figure
    figure.set_figheight(max(figure.get_figheight(), 1.4 + row_height * len(rows)))
    axes.set_yticks(range(len(rows)), labels)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    for row in range(len(rows) - 1):
        axes.axhline(row + 0.5, color=MUTED, linewidth=0.4)
    ends = [each.high or 0.0 for found in intervals.values() for each in found]
    most = np.nanmax([1.0, *ends, *(f for figures in values.values() for f in figures)])
    axes.set_xlim(0, 1.05 * float(most))
    axes.set_xlabel(unit)
    draw_no_gain(axes.axvline)
    legend_below(axes, HOLLOW if incomplete else "")


def shown_name(name: str, *figures: str) -> str:
    """Return a name's label; matplotlib omits labels that begin with "_"."""
    label = " ".join([fold_name(name), *figures])
    return f"\u200b{label}" if label.startswith("_") else label


def draw_no_gain(line: Callable[..., Any]) -> None:
    line(1, color=MUTED, linewidth=1.2, linestyle="--", zorder=0)


def legend_below(axes: Any, title: str = "") -> None:
    from matplotlib.transforms import ScaledTranslation

    labels = axes.get_legend_handles_labels()[1]
    if not labels:
        return
    longest = max(len(line) for label in labels for line in label.split("\n"))
    figure = axes.figure
    room = figure.get_figwidth() / len(figure.axes)  # inches
    columns = int(room / (0.6 + 0.085 * longest))
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        bbox_transform=axes.transAxes + ScaledTranslation(0, -0.5, figure.dpi_scale_trans),
        ncols=min(max(columns, 1), 3),
        frameon=False,
        title=title,
    )
