"""The documentation's pictures of tokens/step by draft nodes."""

from __future__ import annotations

import io
from collections.abc import Mapping


def lines_picture(title: str, steps: Mapping[str, Mapping[str, float]]) -> str:
    """Return an SVG. `steps`: {drafter: {budget: tokens/step}}."""
    from ngramkit.evaluate.plots import colors_of, draw_lines, saved_figure
    from ngramkit.evaluate.simulation import Replay, Tally

    passes = 10_000
    curves = [
        Replay(name, int(budget), Tally(tokens=round(step * passes), passes=passes))
        for name, by_budget in steps.items()
        for budget, step in by_budget.items()
    ]
    out = io.BytesIO()
    with saved_figure(out, (7.0, 4.0)) as figure:
        draw_lines(figure.add_subplot(title=title), curves, colors_of(steps))
    return out.getvalue().decode()
