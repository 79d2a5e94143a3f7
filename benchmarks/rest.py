"""The rest drafter's latency, at every position of the answers of benchmarks._data."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import Row
from benchmarks._data import contexts, datastore, draft_times

BUDGET = 64
ROUNDS = 3  # of which the least of each draft counts
POSITIONS = 12_000  # contexts at most


def rows() -> Iterator[Row]:
    from ngramkit.drafters.rest import Rest

    with tempfile.TemporaryDirectory() as name:
        store, pairs = datastore(Path(name)), contexts()
        drafter = Rest([store])
        drafter.start(pairs[0][0])
        drafter.draft(BUDGET)  # compiles
        pairs = pairs[:: max(sum(len(answer) for _, answer in pairs) // POSITIONS, 1)]
        took = np.min([draft_times(drafter, pairs, BUDGET) for _ in range(ROUNDS)], axis=0)
    tokens = store.manifest.counts["tokens"]
    for share, most in ((50, 30), (99, 400)):
        ours = float(np.percentile(took, share))
        what = f"draft {BUDGET} nodes from {tokens:,} tokens, p{share} of {len(took):,} contexts"
        yield Row(what, f"{ours:.1f} us", f"{most} us allowed", most / ours, f"<= {most} us")
