"""How every picture looks: colours that can be told apart, and read as text on white."""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.errors import UsageError
from ngramkit.evaluate.curves import ByBytes
from ngramkit.evaluate.simulation import Replay, categories

INK, MUTED = "#24292f", "#6a737d"
PALETTE = (
    "#0b63c5", "#b45309", "#15803d", "#c81e1e", "#7c3aed",
    "#7a4b2a", "#be1a75", "#57606a", "#6b6b00", "#0e7490",
)  # fmt: skip
DARK = (  # the same hues, on a dark page
    "#6cb0ff", "#f5a95a", "#5fd38a", "#ff8a80", "#b79cff",
    "#d3a684", "#ff8cc6", "#a8b1bb", "#cfcf5c", "#5cd0e0",
)  # fmt: skip


@contextmanager
def styled(**settings: Any) -> Iterator[None]:
    """Figures made inside have the colours above, and matplotlib's `settings` ("svg_fonttype");
    nothing of a matplotlibrc that lies in the working folder."""
    import matplotlib

    matplotlib.use("Agg")
    from cycler import cycler

    given: Any = {name.replace("_", ".", 1): value for name, value in settings.items()}
    parts = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    given |= dict.fromkeys(parts, INK) | {"axes.prop_cycle": cycler(color=PALETTE)}
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(given)
        yield


def legend_below(axes: Any, entries: int) -> None:
    """Outside the axes, where it covers nothing."""
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.14),
        ncols=min(max(entries, 1), 3),
        frameon=False,
    )


# One matplotlib figure as SVG for a page: text stays text, colours are the page's.
#
# Knows nothing of results. Colours become CSS variables, so that one picture serves a light page
# and a dark one; the page sets them (report.html.jinja).

VARIABLES = {INK: "ink", MUTED: "muted"} | {color: f"c{i}" for i, color in enumerate(PALETTE)}
UNREAD = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # metadata that is left out


@dataclass(frozen=True)
class Picture:
    title: str
    description: str  # what it shows, in words, for those who do not see it
    box: str  # the viewBox
    content: str  # what stands inside <svg>


def picture(
    title: str,
    description: str,
    draw: Callable[[Any], None],
    size: tuple[float, float] = (5.0, 4.2),
) -> Picture:
    """`draw` fills a new figure of `size` inches: small, so that its text can be read on a phone.

    The same drawing gives the same bytes.
    """
    with styled(svg_fonttype="none", svg_hashsalt=title):
        from matplotlib import pyplot

        figure = pyplot.figure(figsize=size, layout="constrained")
        draw(figure)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata=UNREAD, transparent=True)
        pyplot.close(figure)
    text = out.getvalue()
    found = re.search(r'<svg[^>]*viewBox="([-0-9. ]+)"[^>]*>(.*)</svg>', text, re.DOTALL)
    assert found is not None
    return Picture(title, description, found[1], _for_the_page(found[2]))


def _for_the_page(content: str) -> str:
    """With the page's colours, and without what would reach beyond this picture: rules for every
    element of the page, and ids that every picture gives."""
    content = re.sub(r"<style.*?</style>", "", content, flags=re.DOTALL)
    content = re.sub(r'<g id="[^"]*"', "<g", content)
    for color, name in VARIABLES.items():
        content = content.replace(color, f"var(--{name})")
    return content


# Pictures of replays: tokens/step against budget, requests seen, or bytes, and by category.
#
# Knows results only; matplotlib is imported when a picture is asked for. Who draws names the
# picture: plot() above the axes, the report of a benchmark in its page.

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


# The picture of tokens/step against bytes: a colour for each drafter, a stroke and a mark for each
# curve.

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


# A figure per category of every drafter: a radar, or where categories are few rows of dots.

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
