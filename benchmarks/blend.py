"""Tokens/step of blend against every other drafter and their naive union, and its latency.

Over the artifacts and answers of benchmarks._data. Every drafter starts each turn with no memory
of the turns before.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import Row
from benchmarks._data import categories, contexts, datastore, frozen_table

if TYPE_CHECKING:
    from ngramkit.evaluate.records import Record
    from ngramkit.evaluate.replay_figures import Replay

BUDGETS = (8, 16, 32, 64, 95)
ROUNDS = 3
TOKENS = 60_000  # of answers, at most

Makers = dict[str, Callable[[], Any]]


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        store, frozen = datastore(Path(name)), frozen_table(Path(name))
        records, makers = recorded(), drafters(store, frozen)
        yield _everywhere({budget: _replayed(makers, records, budget) for budget in BUDGETS})
        yield _small(store, frozen, records)
        yield from _latency(makers["blend"], records)


def recorded() -> list[Record]:
    """Return answers that neither artifact holds, one record per turn."""
    from ngramkit.evaluate.records import Record, Turn

    pairs = contexts()
    step = max(sum(len(answer) for _, answer in pairs) // TOKENS, 1)
    turns = zip(pairs[::step], categories(len(pairs))[::step], strict=True)
    return [Record(kind, kind, [Turn(*pair)]) for pair, kind in turns]


def drafters(datastore: Any, frozen: Any) -> Makers:
    from ngramkit.drafters.blend import Blend
    from ngramkit.drafters.cacheback import Cacheback
    from ngramkit.drafters.context import Context, PromptLookup
    from ngramkit.drafters.rest import Rest
    from research.union import Union

    others: Makers = {
        "rest": lambda: Rest([datastore]),
        "cacheback": lambda: Cacheback(frozen),
        "context": Context,
        "prompt-lookup": PromptLookup,
    }
    union = {"union": lambda: Union([make() for make in others.values()])}
    return {"blend": lambda: Blend([datastore]), **others, **union}


def _replayed(makers: Makers, records: list[Record], budget: int) -> dict[str, Replay]:
    from ngramkit.evaluate.replay_loop import replay_drafter

    return {name: replay_drafter(name, make, records, budget) for name, make in makers.items()}


def _everywhere(found: dict[int, dict[str, Replay]]) -> Row:
    """Compare in every category at every budget: the least lead over the best of the others."""
    leads = {}
    for budget, replays in found.items():
        for category, tally in replays["blend"].by_category.items():
            others = [r.by_category[category] for name, r in replays.items() if name != "blend"]
            best = max(other.tokens_per_step for other in others)
            leads[budget, category] = tally.tokens_per_step / best
    budget, category = min(leads, key=lambda each: leads[each])
    ahead = sum(lead > 1 for lead in leads.values())
    return Row(
        "budgets x categories where blend leads",
        f"{ahead} of {len(leads)}",
        f"the best of the others in each; nearest in {category} with {budget} nodes",
        leads[budget, category],
        "> 1 in all",
    )


def _small(datastore: Any, frozen: Any, records: list[Record]) -> Row:
    from ngramkit.drafters.blend import Blend
    from ngramkit.drafters.cacheback import Cacheback

    makers: Makers = {"blend": lambda: Blend([], frozen), "cacheback": lambda: Cacheback(frozen)}
    steps = {
        name: each.total.tokens_per_step for name, each in _replayed(makers, records, 64).items()
    }
    size, whole = (sum(f.bytes for f in a.manifest.files.values()) for a in (frozen, datastore))
    return Row(
        f"tokens/step of blend, 64 nodes, from a frozen table alone ({size / 1e6:.0f} MB)",
        f"{steps['blend']:.2f}",
        f"cacheback {steps['cacheback']:.2f} (the datastore has {whole / 1e6:.0f} MB)",
        steps["blend"] / steps["cacheback"],
        "above 1",
    )


def _latency(make: Callable[[], Any], records: list[Record]) -> Iterator[Row]:
    """Take the least of each draft's ROUNDS times, as benchmarks.rest does."""
    from ngramkit.evaluate.replay_loop import replay_drafter

    rounds = [replay_drafter("blend", make, records, 64).total.draft_ns for _ in range(ROUNDS)]
    best = np.min(np.array(rounds), axis=0) / 1e3
    for share, most in ((50, 250), (99, 550)):
        took = float(np.percentile(best, share))
        what = f"draft 64 nodes with blend, p{share} of {len(best):,} passes"
        yield Row(what, f"{took:.0f} us", f"{most} us allowed", most / took, f"<= {most} us")
