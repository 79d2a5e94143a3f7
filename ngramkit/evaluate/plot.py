"""Pictures of replays: tokens/step against budget, and a radar by category.

Knows results only; matplotlib is imported when a picture is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ngramkit.evaluate.replay import Replay, categories


def plot(results: Sequence[Replay], path: Path) -> None:
    """Writes a PNG (or whatever `path`'s suffix says) of all results."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(result.drafter for result in results))
    spokes = categories(results)
    radar = len(spokes) > 2
    figure = pyplot.figure(figsize=(13 if radar else 7, 5.5), layout="constrained")
    colors = {name: f"C{i}" for i, name in enumerate(names)}
    draw_lines(figure.add_subplot(1, 2 if radar else 1, 1), results, colors)
    if radar:
        widest = max(result.budget for result in results)
        values = {
            result.drafter: [result.by_category[spoke].tokens_per_step for spoke in spokes]
            for result in results
            if result.budget == widest
        }
        axes = figure.add_subplot(1, 2, 2, projection="polar")
        draw_radar(axes, values, spokes, colors, f"by category, {widest} nodes")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def draw_lines(axes: Any, results: Sequence[Replay], colors: Mapping[str, str]) -> None:
    """tokens/step against budget, a line per drafter."""
    for name, color in colors.items():
        points = sorted((r.budget, r.total.tokens_per_step) for r in results if r.drafter == name)
        budgets, heights = zip(*points, strict=True)
        axes.plot(budgets, heights, marker="o", label=name, color=color)
        axes.annotate(
            f"{heights[-1]:.2f}",
            (budgets[-1], heights[-1]),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=color,
        )
    axes.axhline(1, color="gray", linewidth=0.8, linestyle=":")
    axes.set(xlabel="draft nodes per pass", ylabel="tokens/step", title="tokens/step by budget")
    axes.margins(x=0.1)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


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
        axes.fill(angles, heights, color=colors[name], alpha=0.08)
    axes.set_xticks(angles, spokes)
    axes.tick_params(axis="x", pad=12)
    axes.set_ylim(bottom=0)
    axes.set_rlabel_position(180 / len(spokes))
    axes.set_title(title, pad=18)
