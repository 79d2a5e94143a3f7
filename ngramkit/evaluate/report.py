"""report.html of a benchmark: one file, pictures inside, nothing loaded from elsewhere.

Knows results only. Pictures are SVG that matplotlib draws; it is imported when they are.
"""

from __future__ import annotations

import html
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ngramkit.evaluate.plot import draw_lines, draw_radar
from ngramkit.evaluate.replay import Replay
from ngramkit.evaluate.results import Result
from ngramkit.formats.writer import write_text

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 68em; padding: 0 1em;
       color: #222; background: #fff }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin-top: 2em }
table { border-collapse: collapse } td, th { padding: .25em .7em; border-bottom: 1px solid #ddd;
       text-align: right; white-space: nowrap }
td:first-child, th:first-child { text-align: left; white-space: normal }
.wide { overflow-x: auto }
table.facts td { text-align: left; white-space: normal; overflow-wrap: anywhere }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(26em, 1fr));
       gap: 1.5em; margin: 2em 0 }
svg { width: 100%; height: auto }
"""
LENGTHS = 10  # shown one by one, the last for all that are longer
COLUMNS = (
    "drafter",
    "tokens/step",
    "tokens/s",
    "speed-up",
    "95% interval",
    "drafting",
    "answers as without drafts",
)


def write_report(
    path: Path,
    title: str,
    results: Sequence[Result],
    curves: Sequence[Replay],
    plan: Mapping[str, Any],
    machine: Mapping[str, str],
) -> None:
    """`results[0]` is the baseline; `curves` are replays of its answers at several budgets."""
    drafters = list(results[1:])
    colors = {result.drafter: f"C{i}" for i, result in enumerate(drafters)}
    pictures = [_picture(lambda figure: _speedups(figure, drafters, colors))]
    spokes = list(results[0].by_category)
    if len(spokes) > 2:
        pictures.append(_picture(lambda figure: _radar(figure, drafters, spokes, colors)))
    if curves:
        pictures.append(_picture(lambda f: draw_lines(f.add_subplot(), curves, colors)))
    pictures.append(_picture(lambda figure: _histograms(figure, drafters, colors)))
    body = [
        f"<h1>{html.escape(title)}</h1>",
        _table(COLUMNS, [_row(result) for result in results]),
        '<div class="pictures">',
        *pictures,
        "</div><h2>By category: tokens/step and speed-up</h2>",
        _categories(drafters, spokes),
        "<h2>What was measured</h2>",
        _facts({key: _said(value) for key, value in plan.items()}),
        "<h2>Machine and versions</h2>",
        _facts(machine),
    ]
    page = "\n".join(body)
    write_text(
        path,
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head>\n<body>{page}</body>"
        "</html>\n",
    )


def _row(result: Result) -> tuple[str, ...]:
    wrong = len(result.differing)
    return (
        result.drafter,
        f"{result.tokens_per_step:.2f}",
        f"{result.tokens_per_second:,.1f}",
        f"{result.speedup:.2f}",
        f"{result.speedup_low:.2f} to {result.speedup_high:.2f}",
        f"{result.draft_seconds / result.seconds:.1%} of the time",
        "all" if not wrong else f"all but {wrong}",
    )


def _categories(drafters: Sequence[Result], spokes: Sequence[str]) -> str:
    rows = []
    for spoke in spokes:
        found = [result.by_category[spoke] for result in drafters]
        cells = [f"{f['tokens_per_step']:.2f}, {f['speedup']:.2f}x" for f in found]
        rows.append((spoke, *cells))
    return _table(("", *(result.drafter for result in drafters)), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

    titles = line("th", head) if any(head) else ""
    body = titles + "".join(line("td", row) for row in rows)
    return f'<div class="wide"><table>{body}</table></div>'


def _facts(rows: Mapping[str, str]) -> str:
    return _table(("", ""), list(rows.items())).replace("<table>", '<table class="facts">', 1)


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _picture(draw: Callable[[Any], None]) -> str:
    """Inline SVG; text stays text."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "ngramkit"}):
        figure = pyplot.figure(figsize=(6.6, 5.2), layout="constrained")
        draw(figure)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
        pyplot.close(figure)
    text = out.getvalue()
    return text[text.index("<svg") :]


def _speedups(figure: Any, drafters: Sequence[Result], colors: Mapping[str, str]) -> None:
    axes = figure.add_subplot()
    names = [result.drafter for result in drafters]
    widths = [result.speedup for result in drafters]
    below = [result.speedup - result.speedup_low for result in drafters]
    above = [result.speedup_high - result.speedup for result in drafters]
    axes.barh(
        names, widths, xerr=[below, above], capsize=4, color=[colors[n] for n in names], height=0.6
    )
    for i, result in enumerate(drafters):
        axes.annotate(
            f"{result.speedup:.2f}",
            (result.speedup_high, i),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
        )
    axes.invert_yaxis()
    axes.axvline(1, color="gray", linewidth=0.8, linestyle=":")
    axes.set(xlabel="speed-up", title="speed-up over no drafts, 95% interval over questions")
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)


def _radar(
    figure: Any, drafters: Sequence[Result], spokes: list[str], colors: Mapping[str, str]
) -> None:
    axes = figure.add_subplot(projection="polar")
    values = {
        result.drafter: [result.by_category[spoke]["speedup"] for spoke in spokes]
        for result in drafters
    }
    draw_radar(axes, values, spokes, colors, "speed-up by category")


def _histograms(figure: Any, drafters: Sequence[Result], colors: Mapping[str, str]) -> None:
    axes = figure.add_subplot()
    longest = max((int(n) for r in drafters for n in r.accepted_lengths), default=1)
    shown, width = min(longest, LENGTHS), 0.8 / max(len(drafters), 1)
    for i, result in enumerate(drafters):
        counts = [0] * shown
        for length, passes in result.accepted_lengths.items():
            counts[min(max(int(length), 1), shown) - 1] += passes
        places = [n + 1 + (i - (len(drafters) - 1) / 2) * width for n in range(shown)]
        shares = [count / max(result.passes, 1) for count in counts]
        name = result.drafter
        axes.bar(places, shares, width=width, color=colors[name], label=name)
    ticks = [str(n + 1) for n in range(shown)]
    if longest > shown:
        ticks[-1] += "+"
    axes.set_xticks(range(1, shown + 1), ticks)
    axes.set(
        xlabel="tokens of a pass", ylabel="share of passes", title="tokens written by one pass"
    )
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
