"""tokens/step by budget as a whole SVG file, for light pages and dark ones."""

from __future__ import annotations

from collections.abc import Mapping

PAGE = """<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"
 viewBox="{box}" role="img" aria-labelledby="title"><title id="title">{title}</title>
<style>svg {{ --ink: #24292f; --muted: #626b74; {light} color: var(--ink); fill: var(--ink) }}
@media (prefers-color-scheme: dark) {{ svg {{ --ink: #e3e7eb; --muted: #9aa4ae; {dark} }} }}
svg * {{ stroke-linejoin: round }} text {{ font-family: system-ui, sans-serif !important }}</style>
{content}</svg>
"""


def lines_picture(title: str, steps: Mapping[str, Mapping[str, float]]) -> str:
    """`steps`: {drafter: {budget: tokens/step}}."""
    from ngramkit.evaluate.plot import draw_lines
    from ngramkit.evaluate.replay import Replay, Tally
    from ngramkit.evaluate.style import DARK, PALETTE
    from ngramkit.evaluate.svg import picture

    passes = 10_000
    curves = [
        Replay(name, int(budget), Tally(tokens=round(step * passes), passes=passes))
        for name, by_budget in steps.items()
        for budget, step in by_budget.items()
    ]
    colors = {name: f"C{i}" for i, name in enumerate(steps)}
    drawn = picture(title, "", lambda f: draw_lines(f.add_subplot(), curves, colors), (7.0, 4.0))
    variables = [
        " ".join(f"--c{i}: {color};" for i, color in enumerate(colors_of))
        for colors_of in (PALETTE, DARK)
    ]
    return PAGE.format(
        box=drawn.box, title=title, content=drawn.content, light=variables[0], dark=variables[1]
    )
