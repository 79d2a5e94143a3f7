"""What `benchmarks._evidence` measured, as docs/evidence.json has it, for the pages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
BUDGETS = (8, 16, 32, 64, 96)


def read_figures() -> dict[str, Any]:
    """What `publish` wrote."""
    found: dict[str, Any] = json.loads((DOCS / "evidence.json").read_text(encoding="utf-8"))
    return found


def table(figures: Mapping[str, Any]) -> str:
    """Markdown: tokens/step, a row per drafter."""
    rows = [f"| draft nodes | {' | '.join(map(str, BUDGETS))} |", "|---|" + "---|" * len(BUDGETS)]
    for name, steps in figures["steps"].items():
        cells = " | ".join(f"{steps[str(n)]['all']:.2f}" for n in BUDGETS)
        rows.append(f"| {name} | {cells} |")
    return "\n".join(rows)


def categories(figures: Mapping[str, Any], budget: int = 64) -> str:
    """Markdown: tokens/step by category at one budget."""
    kinds = figures["questions"]
    head = [f"{kind} ({count})" for kind, count in kinds.items()]
    rows = [f"| {budget} nodes | {' | '.join(head)} |", "|---|" + "---|" * len(head)]
    for name, steps in figures["steps"].items():
        cells = " | ".join(f"{steps[str(budget)][kind]:.2f}" for kind in kinds)
        rows.append(f"| {name} | {cells} |")
    return "\n".join(rows)


def where_blend_is_behind(figures: Mapping[str, Any]) -> str:
    """Every budget and category in which another drafter has more tokens/step than blend."""
    behind = []
    for kind in ("all", *figures["questions"]):
        for budget in map(str, BUDGETS):
            ours = figures["steps"]["blend"][budget][kind]
            for name, steps in figures["steps"].items():
                if not name.startswith("blend") and steps[budget][kind] > ours:
                    theirs = steps[budget][kind]
                    behind.append(f"{name} in {kind} at {budget} ({theirs:.2f} to {ours:.2f})")
    if not behind:
        return "blend leads at every budget in every category."
    return f"blend is behind: {'; '.join(behind)}."


def facts(figures: Mapping[str, Any]) -> str:
    """What the figures hold for."""
    asked = ", ".join(f"{count} of {kind}" for kind, count in figures["questions"].items())
    missing = ", ".join(f"{name} {share:.2%}" for name, share in figures["missing"].items())
    return (
        f"{figures['model']}, float32, greedy, answers of up to {figures['max_new_tokens']} tokens "
        f"({figures['tokens']:,} in all) to {sum(figures['questions'].values())} questions: "
        f"{asked}; {figures['contexts']:,} contexts on record. "
        f"Not on record, at most: {missing or 'none'}."
    )
