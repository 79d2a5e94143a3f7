"""What `benchmarks._real` measured, as docs/real.json has it, for the pages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
# As the table calls them, in its order.
NAMES = {
    "generate": "transformers' `generate`",
    "generate-lookup": "transformers' prompt lookup",
    "none": "no drafts",
    "ngrammys:budget=auto": "`ngrammys`",
    "rest:budget=auto": "`rest`",
    "cacheback:budget=auto": "`cacheback`",
    "blend:budget=auto": "`blend`",
}


def read_figures() -> dict[str, Any]:
    """What `publish` wrote."""
    found: dict[str, Any] = json.loads((DOCS / "real.json").read_text(encoding="utf-8"))
    return found


def table(figures: Mapping[str, Any]) -> str:
    """Markdown: what was measured, a row per drafter, three columns per run."""
    head, rule = "| decoding |", "|---|"
    rows = {name: f"| {shown} |" for name, shown in NAMES.items()}
    for run in figures["runs"]:
        head += f" {_threads(run)}: tokens/s | times `generate` (95 % interval) | tokens/step |"
        rule += "---|---|---|"
        for r in run["results"]:
            value, low, high = r["of_generate"]
            times = "1" if r["drafter"] == "generate" else f"{value:.2f} ({low:.2f} to {high:.2f})"
            rows[r["drafter"]] += (
                f" {r['tokens_per_second']:.1f} | {times} | {r['tokens_per_step']:.2f} |"
            )
    return "\n".join([head, rule, *rows.values()])


def facts(figures: Mapping[str, Any]) -> str:
    """Markdown: what the speed-ups hold for, what they are over no drafts, and what Spec-Bench
    makes of the same answers."""
    return "\n\n".join(_facts(run) for run in figures["runs"])


def _facts(run: Mapping[str, Any]) -> str:
    machine, load, results = run["machine"], run["load"], run["results"]
    drafted = [r for r in results if r["drafter"] not in ("none", "generate")]
    over_none = ", ".join(
        f"{NAMES[r['drafter']]} {r['speedup']:.2f} ({r['speedup_low']:.2f} to "
        f"{r['speedup_high']:.2f})"
        for r in drafted
    )
    counted = ", ".join(f"{NAMES[r['drafter']]} {r['spec_bench']['speedup']:.2f}" for r in drafted)
    wrong = sum(r["differing"] for r in results)
    same = "every answer is the same" if not wrong else f"{wrong} answers differ"
    cores = f"{machine['cores']} core{'s' * (int(machine['cores']) != 1)}"
    packed = machine["device"].partition(", ")[2].partition(", ")[2]
    how = ", ".join(filter(None, [machine["dtype"], packed]))
    clock = ", seconds of processor time" * run["processor_time"]
    return (
        f"{_threads(run).capitalize()}{clock} on {cores} ({machine['processor']}), {how} (both "
        f"`generate` run with plain weights): {run['questions']} of MT-Bench's {run['of']} "
        f"questions, first turns, at most {machine['max_new_tokens']} tokens each, "
        f"{run['tokens']:,} after the first; {same}. Over no drafts: {over_none}; as Spec-Bench "
        f"counts: {counted}. Processes that ran or waited meanwhile: {load['least']:.1f} to "
        f"{load['most']:.1f}, half of the time below {load['median']:.1f}."
    )


def _threads(run: Mapping[str, Any]) -> str:
    """Of "cpu, 2 threads, packed weights" the number."""
    count = int(run["machine"]["device"].split(", ")[1].split()[0])
    return {1: "one thread", 2: "two threads"}.get(count, f"{count} threads")
