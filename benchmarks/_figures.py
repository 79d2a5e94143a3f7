"""Figures that the documentation keeps: docs/NAME.json, and the pictures drawn of them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"


def read_figures(name: str) -> Any:
    """Read docs/NAME.json."""
    return json.loads((DOCS / f"{name}.json").read_text(encoding="utf-8"))


def write_figures(name: str, figures: Any) -> None:
    """Write docs/NAME.json."""
    text = json.dumps(figures, indent=1) + "\n"
    (DOCS / f"{name}.json").write_text(text, encoding="utf-8")


def draw_steps(name: str, title: str, steps: Mapping[str, Mapping[str, float]]) -> None:
    """Draw docs/NAME.svg: tokens/step by draft nodes. `steps`: {drafter: {budget: tokens/step}}."""
    from ngramkit.evaluate.drafter_replay import Replay, Tally
    from ngramkit.evaluate.plots import colors_of, draw_lines, saved_figure

    passes = 10_000
    curves = [
        Replay(drafter, int(budget), Tally(tokens=round(step * passes), passes=passes))
        for drafter, by_budget in steps.items()
        for budget, step in by_budget.items()
    ]
    out = io.BytesIO()
    with saved_figure(out, (5.6, 4.4)) as figure:  # small, so that its text can be read on a phone
        draw_lines(figure.add_subplot(title=title), curves, colors_of(steps))
    (DOCS / f"{name}.svg").write_bytes(out.getvalue())
