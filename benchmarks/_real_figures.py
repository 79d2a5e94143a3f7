"""What `benchmarks._real` measured, as docs/real.json has it, for the pages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
# As the table calls them, in its order.
NAMES = {
    "none": "no drafts",
    "generate": "transformers' `generate`",
    "generate-lookup": "transformers' prompt lookup",
    "blend:budget=auto": "`blend`",
    "rest:budget=auto": "`rest`",
    "cacheback:budget=auto": "`cacheback`",
    "ngrammys:budget=auto": "`ngrammys`",
}


def read_figures() -> dict[str, Any]:
    """What `read_runs` gives, as it was published."""
    found: dict[str, Any] = json.loads((DOCS / "real.json").read_text(encoding="utf-8"))
    return found


def table(figures: Mapping[str, Any]) -> str:
    """Markdown: what was measured, a row per drafter."""
    rows = [
        "| decoding | tokens/step | speed-up (95 % interval) | tokens/s |",
        "|---|---|---|---|",
    ]
    for r in figures["results"]:
        interval = f"{r['speedup']:.2f} ({r['speedup_low']:.2f} to {r['speedup_high']:.2f})"
        rows.append(
            f"| {NAMES.get(r['drafter'], r['drafter'])} | {r['tokens_per_step']:.2f} | "
            f"{'1' if r['drafter'] == 'none' else interval} | {r['tokens_per_second']:.1f} |"
        )
    return "\n".join(rows)


def facts(figures: Mapping[str, Any]) -> str:
    """Markdown: what the speed-ups hold for, and what Spec-Bench makes of the same answers."""
    machine, load = figures["machine"], figures["load"]
    counted = ", ".join(
        f"{NAMES.get(r['drafter'], r['drafter'])} {r['spec_bench']['speedup']:.2f}"
        for r in figures["results"][1:]
    )
    wrong = sum(r["differing"] for r in figures["results"])
    same = "every answer is the same" if not wrong else f"{wrong} answers differ"
    cores = f"{machine['cores']} core{'s' * (int(machine['cores']) != 1)}"
    processor = f"{cores} ({machine['processor']}), {machine['dtype']}"
    device = machine["device"].replace(", 1 threads", ", 1 thread")
    return (
        f"{figures['questions']} of MT-Bench's {figures['of']} questions, first turns, "
        f"{figures['tokens']:,} tokens after the first; {same}. {device} of "
        f"{processor}; processes that ran or waited meanwhile: {load['least']:.1f} to "
        f"{load['most']:.1f}, half of the time below {load['median']:.1f}. "
        f"Speed-ups as Spec-Bench counts: {counted}."
    )
