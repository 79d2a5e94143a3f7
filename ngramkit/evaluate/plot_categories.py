"""A figure per category of every drafter: a radar, or where categories are few rows of dots."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ngramkit.evaluate.style import MUTED, legend_below

STEPS, RINGS = (0.25, 0.5, 1, 2, 5, 10, 20), 6  # between the radar's rings; how many there may be
RADAR = 5  # categories: a radar of fewer has no shape


def projection(spokes: Sequence[str]) -> str | None:
    """Of the axes that draw_categories takes."""
    return "polar" if len(spokes) >= RADAR else None


def draw_categories(
    axes: Any,
    values: Mapping[str, Sequence[float]],
    spokes: Sequence[str],
    colors: Mapping[str, str],
    unit: str,
) -> None:
    """`values` has one figure of `unit` per spoke for every name: a radar, or where the spokes are
    few a row of dots for each. `axes` have projection(spokes)."""
    if projection(spokes):
        _draw_radar(axes, values, spokes, colors)
    else:
        _draw_dots(axes, values, spokes, colors)
        axes.set_xlabel(unit)
    legend_below(axes, len(values))


def _draw_radar(
    axes: Any,
    values: Mapping[str, Sequence[float]],
    spokes: Sequence[str],
    colors: Mapping[str, str],
) -> None:
    angles = [2 * math.pi * i / len(spokes) for i in range(len(spokes))]
    for name, heights in values.items():
        axes.plot([*angles, angles[0]], [*heights, heights[0]], color=colors[name], label=name)
    axes.set_xticks(angles, [_in_lines(spoke) for spoke in spokes])
    for label, angle in zip(axes.get_xticklabels(), angles, strict=True):
        side = round(math.cos(angle), 3)
        label.set_horizontalalignment("left" if side > 0 else "right" if side < 0 else "center")
    axes.tick_params(axis="x", pad=2)
    axes.set_ylim(bottom=0)
    top = axes.get_ylim()[1]
    step = next((step for step in STEPS if top / step <= RINGS), STEPS[-1])
    axes.set_yticks(np.arange(step, top, step))
    axes.tick_params(axis="y", labelcolor=MUTED, labelsize="small")
    axes.set_rlabel_position(180 / len(spokes))


def _draw_dots(
    axes: Any,
    values: Mapping[str, Sequence[float]],
    spokes: Sequence[str],
    colors: Mapping[str, str],
) -> None:
    """Within a row every name has a height of its own, so that no dot hides another."""
    step = min(0.15, 0.7 / max(len(values) - 1, 1))
    for i, (name, figures) in enumerate(values.items()):
        rows = [row + (i - (len(values) - 1) / 2) * step for row in range(len(spokes))]
        axes.plot(figures, rows, "o", color=colors[name], label=name)
    axes.set_yticks(range(len(spokes)), [_in_lines(spoke) for spoke in spokes])
    axes.set_ylim(len(spokes) - 0.5, -0.5)
    for row in range(len(spokes) - 1):
        axes.axhline(row + 0.5, color=MUTED, linewidth=0.4)
    axes.set_xlim(left=0)
    axes.axvline(1, color=MUTED, linewidth=0.8, linestyle=":")
    axes.spines[["top", "right"]].set_visible(False)


def _in_lines(name: str) -> str:
    return textwrap.fill(name.replace("_", " "), 14)
