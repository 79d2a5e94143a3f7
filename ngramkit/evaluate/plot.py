"""Pictures of replays: tokens/step against budget, requests seen, or bytes, and by category.

Knows results only; matplotlib is imported when a picture is asked for. Who draws names the picture:
plot() above the axes, the report of a benchmark in its page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.errors import UsageError
from ngramkit.evaluate.curves import ByBytes
from ngramkit.evaluate.plot_bytes import draw_bytes
from ngramkit.evaluate.plot_categories import draw_categories, projection
from ngramkit.evaluate.replay import Replay, categories
from ngramkit.evaluate.style import MUTED, legend_below, styled

LINE = 0.05  # a line of text, as a share of the axes' height
WIDE = 6  # times the lowest: from there on heights are drawn as powers


PICTURES = (".png", ".svg", ".pdf", ".jpg", ".jpeg", ".webp", ".eps")


def require_picture(path: Path) -> None:
    """Raises UsageError where the suffix of `path` is of no picture; before the work, that is."""
    if path.suffix.lower() not in PICTURES:
        raise UsageError(
            f"{path} is no picture's name", f"end it with {', '.join(PICTURES)}", option="plot"
        )


def plot(
    results: Sequence[Replay],
    path: Path,
    *,
    learning: bool = False,
    by_bytes: ByBytes | None = None,
) -> None:
    """Writes a PNG (or whatever `path`'s suffix says) of all results.

    `learning` where drafters kept their state: adds tokens/step against requests seen. `by_bytes`
    of curves: tokens/step against bytes, and nothing else.
    """
    require_picture(path)
    if by_bytes:
        _plot_bytes(by_bytes, max(result.budget for result in results), path)
        return
    names = list(dict.fromkeys(result.drafter for result in results))
    spokes = categories(results)
    panels = 1 + learning + (len(spokes) > 1)
    colors = {name: f"C{i}" for i, name in enumerate(names)}
    widest = max(result.budget for result in results)
    shown = [result for result in results if result.budget == widest]
    with styled():
        from matplotlib import pyplot

        figure = pyplot.figure(figsize=(0.5 + 6.3 * panels, 5.5), layout="constrained")
        draw_lines(_titled(figure, panels, 1, "tokens/step by budget"), results, colors)
        if learning:
            title = f"what is learnt from past questions, {widest} nodes"
            draw_learning(_titled(figure, panels, 2, title), shown, colors)
        if len(spokes) > 1:
            values = {
                result.drafter: [result.by_category[spoke].tokens_per_step for spoke in spokes]
                for result in shown
            }
            axes = _titled(figure, panels, panels, f"by category, {widest} nodes", spokes)
            draw_categories(axes, values, spokes, colors, "tokens/step")
        figure.savefig(path, dpi=120)
        pyplot.close(figure)


def _plot_bytes(by_bytes: ByBytes, budget: int, path: Path) -> None:
    with styled():
        from matplotlib import pyplot

        figure = pyplot.figure(figsize=(6.8, 5.5), layout="constrained")
        axes = _titled(figure, 1, 1, f"tokens/step by bytes drafted from, {budget} nodes")
        draw_bytes(axes, by_bytes)
        figure.savefig(path, dpi=120)
        pyplot.close(figure)


def _titled(figure: Any, panels: int, place: int, title: str, spokes: Sequence[str] = ()) -> Any:
    axes = figure.add_subplot(1, panels, place, projection=projection(spokes))
    axes.set_title(title, pad=18 if projection(spokes) else 6)
    return axes


def draw_lines(axes: Any, results: Sequence[Replay], colors: Mapping[str, str]) -> None:
    """tokens/step against budget, a line per drafter with its name at its end."""
    ends = []
    for name, color in colors.items():
        points = sorted((r.budget, r.total.tokens_per_step) for r in results if r.drafter == name)
        if not points:  # nothing of ours to replay: transformers' own ways
            continue
        budgets, heights = zip(*points, strict=True)
        axes.plot(budgets, heights, marker="o", color=color)
        ends.append((f"{name} {heights[-1]:.2f}", budgets[-1], heights[-1], color))
    ticks = sorted({result.budget for result in results})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, map(str, ticks))
    axes.set(xlabel="draft nodes per pass", ylabel="tokens/step")
    _mark_no_drafts(axes)
    _name_ends(axes, ends)
    axes.spines[["top", "right"]].set_visible(False)


def _name_ends(axes: Any, ends: Sequence[tuple[str, float, float, str]]) -> None:
    """Each text right of its line's last point (x, y), moved where two would overlap."""
    axes.get_ylim()  # settles the limits
    ends = sorted(ends, key=lambda end: -end[2])
    at = axes.transData.transform([(x, y) for _, x, y, _ in ends])
    places = axes.transAxes.inverted().transform(at)[:, 1]  # share of the axes' height
    for i in range(1, len(places)):
        places[i] = min(places[i], places[i - 1] - LINE)
    lowest = 0.0
    for i in reversed(range(len(places))):  # what was moved out below comes up again
        places[i] = max(places[i], lowest)
        lowest = places[i] + LINE
    for (text, x, _, color), place in zip(ends, places, strict=True):
        axes.annotate(
            text,
            (x, place),
            xycoords=("data", "axes fraction"),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            color=color,
            annotation_clip=False,
        )


def _mark_no_drafts(axes: Any) -> None:
    """A line at one token per pass."""
    axes.axhline(1, color=MUTED, linewidth=0.8, linestyle=":")
    axes.annotate(
        "no drafts",
        (0, 1),
        xycoords=("axes fraction", "data"),
        xytext=(3, 2),
        textcoords="offset points",
        color=MUTED,
        fontsize="small",
    )


def draw_learning(axes: Any, results: Sequence[Replay], colors: Mapping[str, str]) -> None:
    """tokens/step while questions go by: those asked before are broken lines of their own. Names
    stand with what each came to, with questions asked before where there are any."""
    ends, styles = [], {}
    for result in results:
        color, last = colors[result.drafter], 0.0
        for again, style in ((False, "-"), (True, "--")):
            seen, steps = learning(result, again=again)
            if len(steps):
                axes.plot(seen, steps, style, color=color)
                last = float(steps[-1])
                styles[style] = "asked before" if again else "new questions"
        ends.append((f"{result.drafter} {last:.2f}", len(result.names) - 1.0, last, color))
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
    )
    _mark_no_drafts(axes)
    _name_ends(axes, ends)
    for style, label in styles.items():
        axes.plot([], [], style, color=MUTED, label=label)
    legend_below(axes, len(styles))
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
