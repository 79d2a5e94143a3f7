"""What `ngramkit replay` prints: tables for people, rows for --json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ngramkit.evaluate.replay import Replay
    from ngramkit_cli.output import Output


def say(results: list[Replay], out: Output) -> None:
    """Tokens/step by budget, and more of the widest budget."""
    budgets = sorted({r.budget for r in results})
    width = max(len(r.drafter) for r in results) + 2
    widest = [r for r in results if r.budget == budgets[-1]]
    passes = f"{results[0].total.tokens:,} tokens after the prefills'"
    out.say("", f"tokens/step by draft nodes per pass ({passes})")
    _say_budgets(results, budgets, width, out)
    out.say("", f"with {budgets[-1]} nodes")
    _say_passes(widest, width, out)
    out.say("", "by category")
    _say_categories(widest, width, out)


def _say_budgets(results: list[Replay], budgets: list[int], width: int, out: Output) -> None:
    cell = {(r.drafter, r.budget): r for r in results}
    out.say(" " * width + "".join(f"{b:>8}" for b in budgets))
    for name in dict.fromkeys(r.drafter for r in results):
        row = "".join(f"{cell[name, b].total.tokens_per_step:8.3f}" for b in budgets)
        out.say(name.ljust(width) + row)


def _say_passes(results: list[Replay], width: int, out: Output) -> None:
    out.say(" " * width + "draft p50    p99   empty   accepted 0, 1, 2, ... of passes")
    for r in results:
        t = r.total
        shares = " ".join(f"{_share(t.accepted[i], t.passes):.0%}" for i in range(8))
        more = sum(n for i, n in t.accepted.items() if i >= 8)
        out.say(
            f"{r.drafter.ljust(width)}{t.draft_us(50):6.0f} us {t.draft_us(99):5.0f} us  "
            f"{_share(t.empty, t.passes):4.0%}   {shares}, more {_share(more, t.passes):.0%}"
        )


def _say_categories(results: list[Replay], width: int, out: Output) -> None:
    from ngramkit.evaluate.replay import categories

    shown = categories(results)
    out.say(" " * width + "".join(f"{c[:11]:>12}" for c in shown))
    for r in results:
        cells = (f"{r.by_category[c].tokens_per_step:12.3f}" for c in shown)
        out.say(r.drafter.ljust(width) + "".join(cells))


def as_json(result: Replay) -> dict[str, Any]:
    """One of --json's `results`."""
    total = result.total
    return {
        "drafter": result.drafter,
        "budget": result.budget,
        "tokens": total.tokens,
        "passes": total.passes,
        "tokens_per_step": total.tokens_per_step,
        "draft_us_p50": total.draft_us(50),
        "draft_us_p99": total.draft_us(99),
        "empty_share": _share(total.empty, total.passes),
        "accepted_lengths": {str(n): total.accepted[n] for n in sorted(total.accepted)},
        "reliability": result.reliability.rows(),
        "by_category": {
            category: {
                "tokens": tally.tokens,
                "passes": tally.passes,
                "tokens_per_step": tally.tokens_per_step,
            }
            for category, tally in result.by_category.items()
        },
    }


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
