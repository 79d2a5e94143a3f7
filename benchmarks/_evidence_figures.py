"""What `benchmarks._evidence` measured, as docs/evidence.json has it, for the pages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
NAMES = {"demo": "the embedded model", "smollm2-135m": "SmolLM2-135M-Instruct"}
Figures = Mapping[str, Any]


def read_figures() -> list[Figures]:
    """What `publish` wrote: an object per model."""
    found: list[Figures] = json.loads((DOCS / "evidence.json").read_text(encoding="utf-8"))
    return found


def page(models: Sequence[Figures]) -> str:
    """Markdown: for every model what was measured, and where blend does not lead."""
    parts = []
    for figures in models:
        parts += [facts(figures), table(figures)]
        if len(figures["questions"]) > 1:
            parts.append(categories(figures))
        parts.append(behind(figures))
    return "\n\n".join(parts)


def facts(figures: Figures) -> str:
    """What the figures hold for."""
    count = sum(figures["questions"].values())
    asked = ", ".join(f"{each} of {kind}" for kind, each in figures["questions"].items())
    missing = ", ".join(f"{name} {share:.1%}" for name, share in figures["missing"].items())
    return (
        f"**{NAMES[figures['model']]}**, float32, greedy, {count} questions, answers of up to "
        f"{figures['max_new_tokens']} tokens ({asked}; {figures['tokens']:,} tokens), "
        f"{figures['contexts']:,} contexts on record. "
        + (f"Not on record, at most: {missing}." if missing else "All that was asked is on record.")
    )


def budgets_of(figures: Figures) -> list[str]:
    """Draft nodes, in the order replayed."""
    return list(figures["steps"]["blend"])


def table(figures: Figures) -> str:
    """tokens/step by budget, a row per drafter."""
    budgets = budgets_of(figures)
    rows = [f"| draft nodes | {' | '.join(budgets)} |", "|---|" + "---|" * len(budgets)]
    for name, steps in figures["steps"].items():
        cells = " | ".join(f"{steps[budget]['all']:.2f}" for budget in budgets)
        rows.append(f"| {_code(name)} | {cells} |")
    return "\n".join(rows)


def categories(figures: Figures, budget: int = 64) -> str:
    """tokens/step by category at one budget."""
    kinds = list(figures["questions"])
    rows = [f"| {budget} nodes | {' | '.join(kinds)} |", "|---|" + "---|" * len(kinds)]
    for name, steps in figures["steps"].items():
        cells = " | ".join(f"{steps[str(budget)][kind]:.2f}" for kind in kinds)
        rows.append(f"| {_code(name)} | {cells} |")
    return "\n".join(rows)


def behind(figures: Figures) -> str:
    """Every budget and category in which another drafter has more tokens/step than blend."""
    found = []
    for kind in ("all", *figures["questions"]):
        for budget in budgets_of(figures):
            ours = figures["steps"]["blend"][budget][kind]
            found += [
                f"{_code(name)} in {kind} at {budget} ({steps[budget][kind]:.2f} to {ours:.2f})"
                for name, steps in figures["steps"].items()
                if not name.startswith("blend") and steps[budget][kind] > ours
            ]
    if not found:
        return "`blend` leads at every budget, in every category."
    return f"`blend` is behind: {'; '.join(found)}."


def _code(name: str) -> str:
    """`blend`, no corpus"""
    drafter, comma, rest = name.partition(",")
    return f"`{drafter}`{comma}{rest}"
