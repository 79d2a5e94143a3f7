"""blend's tokens/step and latency against rest, cacheback and the context, on the same records.

Over held-out files of the standard library and artifacts of the others; with NGRAMKIT_BENCH_DATA,
a folder as in benchmarks.rest, over its recorded answers, against rest and the context only.
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

BUDGETS = (16, 64)
ROUNDS = 3
TOKENS = 12_000  # of answers, at most


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        datastore, records = _records(Path(name))
        makers = _drafters(datastore)
        for budget in BUDGETS:
            yield from _compared(makers, records, budget)
        yield from _latency(makers["blend"], records)


def _records(folder: Path) -> tuple[Any, list[Record]]:
    from ngramkit.evaluate.records import Record, Turn

    datastore, pairs = _data(folder)
    total = sum(len(answer) for _, answer in pairs)
    chosen = pairs[:: max(total // TOKENS, 1)]
    return datastore, [Record(str(i), "all", [Turn(*pair)]) for i, pair in enumerate(chosen)]


def _drafters(datastore: Any) -> dict[str, Callable[[], Any]]:
    from ngramkit.drafters.blend import Blend
    from ngramkit.drafters.context import Context
    from ngramkit.drafters.rest import Rest

    makers: dict[str, Callable[[], Any]] = {
        "blend": lambda: Blend([datastore]),
        "rest": lambda: Rest([datastore]),
        "context": Context,
    }
    if not os.environ.get("NGRAMKIT_BENCH_DATA"):
        from ngramkit.drafters.cacheback import Cacheback

        frozen = _frozen(datastore.path.parent)
        makers["cacheback"] = lambda: Cacheback(frozen)
    return makers


def _frozen(folder: Path) -> Any:
    from ngramkit.builders.frozen import build_frozen
    from ngramkit.formats.tokens import TokenStore

    return build_frozen(TokenStore.open(folder / "tokens"), folder / "frozen")


def _compared(
    makers: dict[str, Callable[[], Any]], records: list[Record], budget: int
) -> Iterator[Row]:
    from ngramkit.evaluate.replay import replay

    reached = {
        name: replay(name, make, records, budget).total.tokens_per_step
        for name, make in makers.items()
    }
    ours = reached.pop("blend")
    best = max(reached, key=lambda name: reached[name])
    others = ", ".join(f"{name} {value:.2f}" for name, value in reached.items())
    tokens = sum(len(turn.answer) for record in records for turn in record.turns)
    yield Row(
        f"tokens/step of blend, {budget} nodes, {tokens:,} recorded tokens",
        f"{ours:.2f}",
        others,
        ours / reached[best],
        "> 1 against each",
    )


def _latency(make: Callable[[], Any], records: list[Record]) -> Iterator[Row]:
    """The least of each draft's ROUNDS times, as benchmarks.rest takes it."""
    from ngramkit.evaluate.replay import replay

    rounds = [replay("blend", make, records, 64).total.draft_ns for _ in range(ROUNDS)]
    best = np.min(np.array(rounds), axis=0) / 1e3
    for share, most in ((50, 300), (99, 1000)):
        took = float(np.percentile(best, share))
        what = f"draft 64 nodes with blend, p{share} of {len(best):,} passes"
        yield Row(what, f"{took:.0f} us", f"{most} us allowed", most / took, f"<= {most} us")
