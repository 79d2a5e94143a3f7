"""What `ngramkit replay` prints for people: tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ngramkit.evaluate.replay import Replay
    from ngramkit.evaluate.replays import Replays
    from ngramkit_cli.output import Output


def say(results: Replays, out: Output) -> None:
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
    ratios = results.ratios()
    if ratios:
        out.say(
            "", f"ratios of tokens/step with {budgets[-1]} nodes (95% intervals over questions)"
        )
    for each in ratios:
        out.say(f"  {each}")


def _say_budgets(results: Sequence[Replay], budgets: list[int], width: int, out: Output) -> None:
    cell = {(r.drafter, r.budget): r for r in results}
    out.say(" " * width + "".join(f"{b:>8}" for b in budgets))
    for name in dict.fromkeys(r.drafter for r in results):
        row = "".join(f"{cell[name, b].total.tokens_per_step:8.3f}" for b in budgets)
        out.say(name.ljust(width) + row)


def _say_passes(results: Sequence[Replay], width: int, out: Output) -> None:
    out.say(" " * width + "draft p50    p99   empty   accepted 0, 1, 2, ... of passes")
    for r in results:
        t = r.total
        shares = " ".join(f"{_share(t.accepted[i], t.passes):.0%}" for i in range(8))
        more = sum(n for i, n in t.accepted.items() if i >= 8)
        out.say(
            f"{r.drafter.ljust(width)}{t.draft_us(50):6.0f} us {t.draft_us(99):5.0f} us  "
            f"{_share(t.empty, t.passes):4.0%}   {shares}, more {_share(more, t.passes):.0%}"
        )


def _say_categories(results: Sequence[Replay], width: int, out: Output) -> None:
    from ngramkit.evaluate.replay import categories

    shown = categories(results)
    out.say(" " * width + "".join(f"{c[:11]:>12}" for c in shown))
    for r in results:
        cells = (f"{r.by_category[c].tokens_per_step:12.3f}" for c in shown)
        out.say(r.drafter.ljust(width) + "".join(cells))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
