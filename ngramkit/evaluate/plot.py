"""Pictures of replays: tokens/step against budget, against requests seen, and by category.

Knows results only; matplotlib is imported when a picture is asked for.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.evaluate.replay import Replay, categories

LINE = 0.042  # a line of text, as a share of the axes' height
STEPS, RINGS = (0.25, 0.5, 1, 2, 5, 10, 20), 6  # between the radar's rings; how many there may be
WIDE = 6  # times the lowest: from there on heights are drawn as powers


def plot(results: Sequence[Replay], path: Path, *, learning: bool = False) -> None:
    """Writes a PNG (or whatever `path`'s suffix says) of all results.

    `learning` where drafters kept their state: adds tokens/step against requests seen.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(result.drafter for result in results))
    spokes = categories(results)
    radar = len(spokes) > 2
    panels = 1 + learning + radar
    figure = pyplot.figure(figsize=(0.5 + 6.3 * panels, 5.5), layout="constrained")
    colors = {name: f"C{i}" for i, name in enumerate(names)}
    draw_lines(figure.add_subplot(1, panels, 1), results, colors)
    widest = max(result.budget for result in results)
    shown = [result for result in results if result.budget == widest]
    if learning:
        draw_learning(figure.add_subplot(1, panels, 2), shown, colors)
    if radar:
        values = {
            result.drafter: [result.by_category[spoke].tokens_per_step for spoke in spokes]
            for result in shown
        }
        axes = figure.add_subplot(1, panels, panels, projection="polar")
        draw_radar(axes, values, spokes, colors, f"by category, {widest} nodes")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def draw_lines(axes: Any, results: Sequence[Replay], colors: Mapping[str, str]) -> None:
    """tokens/step against budget, a line per drafter with its name at its end."""
    ends = {}
    for name, color in colors.items():
        points = sorted((r.budget, r.total.tokens_per_step) for r in results if r.drafter == name)
        budgets, heights = zip(*points, strict=True)
        axes.plot(budgets, heights, marker="o", color=color)
        ends[name] = budgets[-1], heights[-1]
    ticks = sorted({result.budget for result in results})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, map(str, ticks))
    axes.set(xlabel="draft nodes per pass", ylabel="tokens/step", title="tokens/step by budget")
    _mark_no_drafts(axes)
    _name_ends(axes, ends, colors)
    axes.spines[["top", "right"]].set_visible(False)


def _name_ends(
    axes: Any, ends: Mapping[str, tuple[float, float]], colors: Mapping[str, str]
) -> None:
    """Names and heights right of the last points, moved down where they would overlap."""
    low, high = axes.get_ylim()
    free = high
    for name in sorted(ends, key=lambda name: -ends[name][1]):
        x, height = ends[name]
        place = min(height, free)
        free = place - (high - low) * LINE
        axes.annotate(
            f"{name} {height:.2f}",
            (x, place),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            color=colors[name],
            annotation_clip=False,  # below the axes it is still to be seen
        )


def _mark_no_drafts(axes: Any) -> None:
    """A line at one token per pass."""
    axes.axhline(1, color="gray", linewidth=0.8, linestyle=":")
    axes.annotate(
        "no drafts",
        (0, 1),
        xycoords=("axes fraction", "data"),
        xytext=(3, 2),
        textcoords="offset points",
        color="gray",
        fontsize="small",
    )


def draw_learning(axes: Any, results: Sequence[Replay], colors: Mapping[str, str]) -> None:
    """tokens/step while questions go by: those asked before are lines of their own."""
    for result in results:
        for again, style in ((False, "-"), (True, "--")):
            seen, steps = learning(result, again=again)
            label = result.drafter + (", asked before" if again else ", new questions")
            if len(steps):
                axes.plot(seen, steps, style, color=colors[result.drafter], label=label)
    low, high = axes.get_ylim()
    if high > WIDE * low:
        axes.set_yscale("log")
        ticks = [tick for tick in (1, 2, 5, 10, 20, 50) if tick <= high]
        axes.set_yticks(ticks, map(str, ticks))
        axes.minorticks_off()
        axes.set_ylim(bottom=0.9)
    axes.set(
        xlabel="questions answered so far",
        ylabel="tokens/step (mean of neighbouring questions)",
        title=f"what is learnt from past questions, {results[0].budget} nodes",
    )
    _mark_no_drafts(axes)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def learning(result: Replay, *, again: bool) -> tuple[Any, Any]:
    """float64[n], float64[n]: questions answered so far, and the tokens/step around there of
    questions asked for the first time, or `again`; each a mean over a tenth of them."""
    known: set[str] = set()
    rows = []
    for i, (name, tally) in enumerate(zip(result.names, result.by_record, strict=True)):
        if (name in known) == again:
            rows.append((i, tally.tokens, tally.passes))
        known.add(name)
    at, tokens, passes = np.array(rows, float).reshape(-1, 3).T
    width = max(1, len(rows) // 10)
    if len(rows) == 0:
        return at, tokens
    steps = _moving_sum(tokens, width) / np.maximum(_moving_sum(passes, width), 1)
    return _moving_sum(at, width) / width, steps


def _moving_sum(values: Any, width: int) -> Any:
    """float64[n - width + 1]"""
    return np.convolve(values, np.ones(width), "valid")


def draw_radar(
    axes: Any,
    values: Mapping[str, Sequence[float]],
    spokes: Sequence[str],
    colors: Mapping[str, str],
    title: str,
) -> None:
    """`values` has one figure per spoke for every name; `axes` are polar."""
    angles = [2 * math.pi * i / len(spokes) for i in range(len(spokes))]
    for name, heights in values.items():
        axes.plot([*angles, angles[0]], [*heights, heights[0]], color=colors[name], label=name)
    axes.set_xticks(angles, [textwrap.fill(spoke.replace("_", " "), 14) for spoke in spokes])
    for label, angle in zip(axes.get_xticklabels(), angles, strict=True):
        side = round(math.cos(angle), 3)
        label.set_horizontalalignment("left" if side > 0 else "right" if side < 0 else "center")
    axes.tick_params(axis="x", pad=2)
    axes.set_ylim(bottom=0)
    top = axes.get_ylim()[1]
    step = next((step for step in STEPS if top / step <= RINGS), STEPS[-1])
    axes.set_yticks(np.arange(step, top, step))
    axes.tick_params(axis="y", labelcolor="gray", labelsize="small")
    axes.set_rlabel_position(180 / len(spokes))
    axes.set_title(title, pad=18)
    columns = min(len(values), 4)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=columns, frameon=False)
