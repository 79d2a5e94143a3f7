"""The tables that `ngramkit replay` prints for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ngramkit_cli.tables import figures

if TYPE_CHECKING:
    from ngramkit.evaluate.replay import Replays
    from ngramkit.evaluate.simulation import Replay
    from ngramkit_cli.output import Output


def say(results: Replays, out: Output) -> None:
    """Print tokens/step by budget, and more of the widest budget."""
    budgets = sorted({r.budget for r in results})
    widest = [r for r in results if r.budget == budgets[-1]]
    passes = f"{results[0].total.tokens:,} tokens after the prefills'"
    out.say("", f"tokens/step by draft nodes per pass ({passes})")
    _say_budgets(results, budgets, out)
    if results.curves:
        _say_curves(results, out)
        return
    out.say("", f"with {budgets[-1]} nodes")
    _say_passes(widest, out)
    missing = _missing(results)
    if missing:
        out.say("", *missing)
    out.say("", "by category")
    _say_categories(widest, out)
    ratios = results.ratios()
    if ratios:
        out.say(
            "", f"ratios of tokens/step with {budgets[-1]} nodes (95% intervals over questions)"
        )
    for each in ratios:
        out.say(f"  {each}")


def _say_budgets(results: Sequence[Replay], budgets: list[int], out: Output) -> None:
    cell = {(r.drafter, r.budget): f"{r.total.tokens_per_step:.3f}" for r in results}
    names = dict.fromkeys(r.drafter for r in results)
    rows = [[name, *(cell[name, budget] for budget in budgets)] for name in names]
    out.say(*figures(rows, ["", *map(str, budgets)], justify="right"))


def _say_curves(results: Replays, out: Output) -> None:
    """Print a line per drafter and artifact, smallest first, with its curve."""
    budget = max(r.budget for r in results)
    rows = [
        [drafter, curve, f"{size / 1e6:,.1f}", f"{steps:.3f}"]
        for drafter, curves in results.by_bytes().items()
        for curve, points in curves.items()
        for size, steps in points
    ]
    out.say("", f"tokens/step by bytes, {budget} nodes")
    out.say(*figures(rows, ["", "curve", "MB", "tokens/step"], justify="right"))


def _say_passes(results: Sequence[Replay], out: Output) -> None:
    head = ["", "draft p50", "p99", "empty", "accepted 0, 1, 2, ... of passes"]
    rows = []
    for r in results:
        t = r.total
        shares = " ".join(f"{_share(t.accepted[i], t.passes):.0%}" for i in range(8))
        more = sum(n for i, n in t.accepted.items() if i >= 8)
        times = (f"{t.draft_us(percent):.0f} us" for percent in (50, 99))
        accepted = f"{shares}, more {_share(more, t.passes):.0%}"
        rows.append([r.drafter, *times, f"{_share(t.empty, t.passes):.0%}", accepted])
    out.say(*figures(rows, head))


def _missing(results: Sequence[Replay]) -> list[str]:
    """Return a line for each replay that lacked evidence of some contexts."""
    return [
        f"{r.drafter}, {r.budget} nodes: {r.misses.missing:,} of {r.misses.rows:,} contexts "
        f"({_share(r.misses.missing, r.misses.rows):.1%}) were not on record"
        for r in results
        if r.misses is not None and r.misses.missing
    ]


def _say_categories(results: Sequence[Replay], out: Output) -> None:
    from ngramkit.evaluate.simulation import categories

    shown = categories(results)
    rows = [
        [r.drafter, *(f"{r.by_category[c].tokens_per_step:.3f}" for c in shown)] for r in results
    ]
    out.say(*figures(rows, ["", *shown], justify="right"))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
