"""The rest drafter's latency.

Contexts are every position of held-out files of the standard library over a datastore of the
others; with NGRAMKIT_BENCH_DATA, a folder of a datastore `datastore` and of recorded answers
`records.npz` (int32 arrays p0, a0, p1, a1, ...: prompt, answer), every position of the answers.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from benchmarks import Row

if TYPE_CHECKING:
    from ngramkit.drafters.base import TokenArray
    from ngramkit.formats.datastore import Datastore

BUDGET = 64
ROUNDS = 3
POSITIONS = 12_000  # contexts at most


def _data(folder: Path) -> tuple[Datastore, list[tuple[TokenArray, TokenArray]]]:
    from ngramkit.builders.datastore import build_datastore
    from ngramkit.builders.tokens import tokenize
    from ngramkit.corpus.open import open_corpus
    from ngramkit.formats.datastore import Datastore

    named = os.environ.get("NGRAMKIT_BENCH_DATA")
    if named:
        return Datastore.open(Path(named) / "datastore"), contexts()
    store = tokenize(open_corpus("python-stdlib"), "demo", folder / "tokens")
    return build_datastore(store, folder / "datastore"), contexts()


def contexts() -> list[tuple[TokenArray, TokenArray]]:
    """Return prompts and answers: those of NGRAMKIT_BENCH_DATA, else of held-out files."""
    from ngramkit.corpus.open import open_corpus
    from ngramkit.corpus.tokenizer import load_tokenizer

    named = os.environ.get("NGRAMKIT_BENCH_DATA")
    if named:
        arrays = np.load(Path(named) / "records.npz")
        count = sum(name.startswith("p") for name in arrays.files)
        return [(arrays[f"p{i}"], arrays[f"a{i}"]) for i in range(count)]
    tokenizer = load_tokenizer("demo")
    held_out = open_corpus("python-stdlib", split="held-out").documents()
    texts = [tokenizer.encode(document.text)[:1_000] for document in held_out]
    return [(ids[:100], ids[100:]) for ids in texts if len(ids) > 200]


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        datastore, pairs = _data(Path(name))
        total = sum(len(answer) for _, answer in pairs)
        taken = _latencies(datastore, pairs[:: max(total // POSITIONS, 1)])
    tokens = datastore.manifest.counts["tokens"]
    for share, most in ((50, 30), (99, 400)):
        ours = float(np.percentile(taken, share))
        what = f"draft {BUDGET} nodes from {tokens:,} tokens, p{share} of {len(taken):,} contexts"
        yield Row(what, f"{ours:.1f} us", f"{most} us allowed", most / ours, f"<= {most} us")


def _latencies(
    datastore: Datastore, pairs: list[tuple[TokenArray, TokenArray]]
) -> npt.NDArray[np.float64]:
    """Return microseconds of each draft, the least of ROUNDS passes over all contexts."""
    from ngramkit.drafters.rest import Rest

    drafter = Rest([datastore])
    drafter.start(pairs[0][0])
    drafter.draft(BUDGET)  # compiles
    rounds = []
    for _ in range(ROUNDS):
        taken = []
        for prompt, answer in pairs:
            drafter.start(prompt)
            for i in range(len(answer)):
                started = time.perf_counter_ns()
                drafter.draft(BUDGET)
                taken.append(time.perf_counter_ns() - started)
                drafter.accept(answer[i : i + 1])
        rounds.append(taken)
    least: npt.NDArray[np.float64] = np.min(rounds, axis=0) / 1e3
    return least
