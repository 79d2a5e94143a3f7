"""blend's tokens/step against every other drafter's and their naive union, and its latency.

Over held-out files of the standard library and artifacts of the others; with NGRAMKIT_BENCH_DATA
over a folder's `datastore`, `frozen` and `records.npz`: p0, a0, c0, ... are prompt, answer and
category (a string) of each recorded turn. Every drafter begins each turn anew.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import Row
from benchmarks.rest import _data

if TYPE_CHECKING:
    from ngramkit.evaluate.records import Record
    from ngramkit.evaluate.simulation import Replay

BUDGETS = (8, 16, 32, 64, 95)
ROUNDS = 3
TOKENS = 60_000  # of answers, at most

Makers = dict[str, Callable[[], Any]]


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        datastore, frozen, records = _given(Path(name))
        makers = _drafters(datastore, frozen)
        yield _everywhere({budget: _replayed(makers, records, budget) for budget in BUDGETS})
        yield _small(datastore, frozen, records)
        yield from _latency(makers["blend"], records)


def _given(folder: Path) -> tuple[Any, Any, list[Record]]:
    """Return the datastore, a frozen table of its corpus, and records that neither holds."""
    from ngramkit.builders.frozen import build_frozen
    from ngramkit.evaluate.records import Record, Turn
    from ngramkit.formats.frozen_table import FrozenTable
    from ngramkit.formats.tokens import TokenStore

    datastore, pairs = _data(folder)
    named = os.environ.get("NGRAMKIT_BENCH_DATA")
    if named:
        frozen = FrozenTable.open(Path(named) / "frozen")
        arrays = np.load(Path(named) / "records.npz")
        categories = [str(arrays[f"c{i}"]) for i in range(len(pairs))]
    else:
        frozen = build_frozen(TokenStore.open(folder / "tokens"), folder / "frozen")
        categories = ["python"] * len(pairs)
    step = max(sum(len(answer) for _, answer in pairs) // TOKENS, 1)
    turns = zip(pairs[::step], categories[::step], strict=True)
    return datastore, frozen, [Record(c, c, [Turn(*pair)]) for pair, c in turns]


def _drafters(datastore: Any, frozen: Any) -> Makers:
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
    from ngramkit.evaluate.simulation import replay_drafter

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
    from ngramkit.evaluate.simulation import replay_drafter

    rounds = [replay_drafter("blend", make, records, 64).total.draft_ns for _ in range(ROUNDS)]
    best = np.min(np.array(rounds), axis=0) / 1e3
    for share, most in ((50, 250), (99, 550)):
        took = float(np.percentile(best, share))
        what = f"draft 64 nodes with blend, p{share} of {len(best):,} passes"
        yield Row(what, f"{took:.0f} us", f"{most} us allowed", most / took, f"<= {most} us")
