"""The picture of tokens/step against bytes: a colour for each drafter, a stroke and a mark for each
curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ngramkit.evaluate.style import MUTED, legend_below

STROKES = ("-o", "--s", ":^", "-.D")  # of matplotlib; the mark tells curves of one point apart
Points = Sequence[tuple[int, float]]  # bytes, tokens/step


def draw_bytes(axes: Any, curves: Mapping[str, Mapping[str, Points]]) -> None:
    """`curves`: {drafter: {curve: points}}. A curve without a name is not in the legend."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    names = list(dict.fromkeys(name for lines in curves.values() for name in lines))
    strokes = {name: STROKES[i % len(STROKES)] for i, name in enumerate(names)}
    for number, (drafter, lines) in enumerate(curves.items()):
        color = f"C{number}"
        axes.plot([], [], color=color, label=drafter)
        for name, points in lines.items():
            sizes, steps = zip(*((size / 1e6, step) for size, step in points), strict=True)
            axes.plot(sizes, steps, strokes[name], markersize=4, color=color)
    for name in filter(None, names):
        axes.plot([], [], strokes[name], markersize=4, color=MUTED, label=name)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, place: f"{size:,g}"))
    axes.set(xlabel="MB drafted from", ylabel="tokens/step")
    legend_below(axes, len(axes.get_legend_handles_labels()[1]))
    axes.spines[["top", "right"]].set_visible(False)
