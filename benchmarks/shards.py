"""What a draft costs against the number of shards that a corpus is spread over, warm and cold.

The corpus and the contexts are those of `benchmarks.rest` and `benchmarks.datastore`. Cold: the
system is asked to drop the shards' pages before the drafter opens them, and every context is
drafted for once. Both references are the same corpus in one shard, in the same run.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from benchmarks import Row
from benchmarks.datastore import token_store
from benchmarks.rest import contexts

if TYPE_CHECKING:
    from ngramkit.drafters.base import Drafter, TokenArray
    from ngramkit.formats.datastore import Datastore

    Pairs = Sequence[tuple[TokenArray, TokenArray]]

SHARDS = (1, 4, 16, 64)
MANY = 100
BUDGET = 64
ROUNDS = 3
POSITIONS, COLD = 4_000, 200  # contexts at most
TARGET = "64 shards cost less than 4 times one"


def rows() -> Iterator[Row]:
    from ngramkit.builders.datastore import build_datastore

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = token_store(folder)
        size = store.manifest.counts["tokens"] + store.manifest.counts["documents"]
        places = {}
        for shards in (*SHARDS, MANY):
            fill = -(-size // shards)
            places[shards] = folder / f"shards-{shards}"
            build_datastore(store, places[shards], shard_tokens=fill, workers=1)
        pairs = contexts()
        pairs = pairs[:: max(sum(len(answer) for _, answer in pairs) // POSITIONS, 1)]
        for drafter in ("rest", "blend"):
            yield from _drafts(drafter, places, pairs)
        yield _opening(places)


def _drafts(name: str, places: dict[int, Path], pairs: Pairs) -> Iterator[Row]:
    warm: dict[int, npt.NDArray[np.float64]] = {}
    for _ in range(ROUNDS):
        for shards in SHARDS:
            found = _latencies(_drafter(name, places[shards]), pairs, POSITIONS)
            warm[shards] = np.minimum(warm.get(shards, found), found)
    cold = {}
    for shards in SHARDS:
        _forget(places[shards])
        cold[shards] = _latencies(_drafter(name, places[shards]), pairs, COLD)
    for pages, found_by in (("warm", warm), ("cold", cold)):
        one = np.percentile(found_by[1], 50)
        for shards in SHARDS[1:]:
            middle, late = np.percentile(found_by[shards], [50, 99])
            yield Row(
                f"{name}, draft {BUDGET} nodes from {shards} shards, {pages} pages, p50",
                f"{middle:.1f} us (p99 {late:,.0f})",
                f"{one:.1f} us from one shard (p99 {np.percentile(found_by[1], 99):,.0f})",
                one / middle,
                TARGET if shards == SHARDS[-1] else "",
            )


def _drafter(name: str, place: Path) -> Drafter:
    from ngramkit.drafters.registry import load_drafter

    return load_drafter(name, datastores=[_open(place)])


def _open(place: Path) -> Datastore:
    from ngramkit.formats.datastore import Datastore

    return Datastore.open(place)


def _latencies(drafter: Drafter, pairs: Pairs, most: int) -> npt.NDArray[np.float64]:
    """Microseconds of the first draft at every position, `most` of them, evenly spread."""
    rehearsal = np.zeros(2, np.int32)  # compiles, and touches next to nothing
    drafter.start(rehearsal)
    drafter.draft(1)
    drafter.finish()
    step = max(sum(len(answer) for _, answer in pairs) // most, 1)
    found, position = [], count()
    for prompt, answer in pairs:
        drafter.start(prompt)
        for i in range(len(answer)):
            if next(position) % step == 0:
                started = time.perf_counter_ns()
                drafter.draft(BUDGET)
                found.append(time.perf_counter_ns() - started)
            drafter.accept(answer[i : i + 1])
        drafter.finish()
    return np.array(found[:most]) / 1e3


def _forget(place: Path) -> None:
    """Asks the system to drop what it holds of these files."""
    for path in place.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _opening(places: dict[int, Path]) -> Row:
    seconds = {1: float("inf"), MANY: float("inf")}
    for _ in range(5):
        for shards in seconds:
            started = time.perf_counter()
            _open(places[shards]).shards  # noqa: B018
            seconds[shards] = min(seconds[shards], time.perf_counter() - started)
    return Row(
        f"open a datastore of {MANY} shards",
        f"{1e3 * seconds[MANY]:.1f} ms",
        f"{1e3 * seconds[1]:.1f} ms, of one shard",
        seconds[1] / seconds[MANY],
        "< 50 ms",
    )
