"""Pictures of replays: tokens/step against budget, against requests seen, and by category.

Knows results only; matplotlib is imported when a picture is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.evaluate.replay import Replay, categories


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


def draw_learning(axes: Any, results: Sequence[Replay], colors: Mapping[str, str]) -> None:
    """tokens/step against questions seen: the mean over a tenth of them around each."""
    for result in results:
        tokens = np.array([tally.tokens for tally in result.by_record], float)
        passes = np.array([tally.passes for tally in result.by_record], float)
        width = max(1, len(tokens) // 10)
        steps = _moving_sum(tokens, width) / np.maximum(_moving_sum(passes, width), 1)
        seen = np.arange(len(steps)) + width / 2
        axes.plot(seen, steps, color=colors[result.drafter], label=result.drafter)
    axes.axhline(1, color="gray", linewidth=0.8, linestyle=":")
    axes.set(
        xlabel="questions seen",
        ylabel="tokens/step",
        title=f"tokens/step by questions seen, {results[0].budget} nodes",
    )
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


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
        axes.fill(angles, heights, color=colors[name], alpha=0.08)
    axes.set_xticks(angles, spokes)
    axes.tick_params(axis="x", pad=12)
    axes.set_ylim(bottom=0)
    axes.set_rlabel_position(180 / len(spokes))
    axes.set_title(title, pad=18)
