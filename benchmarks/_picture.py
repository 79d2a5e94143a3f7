"""Pictures of the documentation as whole SVG files, for light pages and dark ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

PAGE = """<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"
 viewBox="{box}" role="img" aria-labelledby="title"><title id="title">{title}</title>
<style>svg {{ --ink: #24292f; --muted: #626b74; {light} color: var(--ink); fill: var(--ink) }}
@media (prefers-color-scheme: dark) {{ svg {{ --ink: #e3e7eb; --muted: #9aa4ae; {dark} }} }}
svg * {{ stroke-linejoin: round }} text {{ font-family: system-ui, sans-serif !important }}</style>
{content}</svg>
"""


def lines_picture(title: str, steps: Mapping[str, Mapping[str, float]]) -> str:
    """`steps`: {drafter: {budget: tokens/step}}."""
    from ngramkit.evaluate.plots import draw_lines, picture
    from ngramkit.evaluate.simulation import Replay, Tally

    passes = 10_000
    curves = [
        Replay(name, int(budget), Tally(tokens=round(step * passes), passes=passes))
        for name, by_budget in steps.items()
        for budget, step in by_budget.items()
    ]
    colors = {name: f"C{i}" for i, name in enumerate(steps)}
    drawn = picture(title, "", lambda f: draw_lines(f.add_subplot(), curves, colors), (7.0, 4.0))
    return page(drawn)


def needles_picture(cells: Sequence[Mapping[str, Any]]) -> str:
    """Length by depth, a panel per cache; the colour is the loss of the needle's number."""
    from ngramkit.evaluate.plots import picture

    title = "Loss of a needle's number by context length and depth, per cache"
    return page(picture(title, "", lambda figure: _draw_needles(figure, cells), (7.0, 5.0)))


def _draw_needles(figure: Any, cells: Sequence[Mapping[str, Any]]) -> None:
    names = list(cells[0]["loss"])
    lengths, depths = (sorted({cell[key] for cell in cells}) for key in ("length", "depth"))
    grid = figure.subplots(2, 3, sharex=True, sharey=True)
    places = [grid[0, 0], grid[0, 1], grid[0, 2], grid[1, 1], grid[1, 2]]
    grid[1, 0].set_visible(False)
    most = max(loss for cell in cells for loss in cell["loss"].values())
    mesh: Any = None
    for axes, name in zip(places, names, strict=True):
        loss = [[_of(cells, length, depth, "loss", name) for length in lengths] for depth in depths]
        mesh = axes.pcolormesh(loss, cmap="YlOrRd", vmin=0, vmax=most, edgecolors="face")
        for row, depth in enumerate(depths):
            for column, length in enumerate(lengths):
                exact = _of(cells, length, depth, "exact", name)
                dark = loss[row][column] > 0.6 * most
                axes.text(
                    column + 0.5,
                    row + 0.5,
                    f"{loss[row][column]:.1f}" if exact < 1 else "\u2713",
                    ha="center",
                    va="center",
                    fontsize=9,
                    color="#fefefe" if dark else "#111111",
                )
        axes.set_title(name, fontsize=10)
        axes.set_xticks([i + 0.5 for i in range(len(lengths))], [_short(n) for n in lengths])
        axes.set_yticks([i + 0.5 for i in range(len(depths))], [f"{d:.0%}" for d in depths])
        axes.tick_params(length=0, labelbottom=True)
    grid[0, 0].invert_yaxis()
    grid[0, 0].set_ylabel("depth of the needle")
    figure.supxlabel("tokens of context", fontsize=10)
    figure.colorbar(mesh, ax=grid, label="nats per token", shrink=0.8)


def _of(
    cells: Sequence[Mapping[str, Any]], length: int, depth: float, key: str, name: str
) -> float:
    found = (c for c in cells if (c["length"], c["depth"]) == (length, depth))
    return float(next((cell[key][name] for cell in found), float("nan")))


def _short(tokens: int) -> str:
    return f"{tokens // 1024}k" if tokens >= 1024 else str(tokens)


def page(drawn: Any) -> str:
    from ngramkit.evaluate.plots import DARK, PALETTE

    variables = [
        " ".join(f"--c{i}: {color};" for i, color in enumerate(colors_of))
        for colors_of in (PALETTE, DARK)
    ]
    return PAGE.format(
        box=drawn.box,
        title=drawn.title,
        content=drawn.content,
        light=variables[0],
        dark=variables[1],
    )
