"""A cacheback draft and its update against the same tables in OrderedDicts, over the standard
library's sources: prompts and accepted tokens of files that the frozen table has not seen."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks import Row
from ngramkit.builders.frozen import build_frozen
from ngramkit.builders.tokens import tokenize
from ngramkit.corpus.open import open_corpus
from ngramkit.drafters.cacheback import Cacheback

BUDGET = 64
PROMPT, STEPS, STEP = 500, 150, 2  # tokens, drafts per text, tokens accepted after each
FOLLOWERS = 128


def rows() -> Iterator[Row]:
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from twins import cacheback as reference_cacheback

    with tempfile.TemporaryDirectory() as scratch:
        store = tokenize(open_corpus("python-stdlib", limit=300), "demo", Path(scratch) / "t")
        documents = [document.tolist() for document in store.documents()]
        texts = [d for d in documents if len(d) > PROMPT + STEPS * STEP][:6]
        frozen = build_frozen(store, Path(scratch) / "f", followers=FOLLOWERS)
        as_dict = reference_cacheback.frozen_table(documents, 1, 1 << 20, 3, FOLLOWERS)
        ours = Cacheback(frozen)
        twin = reference_cacheback.Cacheback(as_dict, 1, 3, 1 << 20, FOLLOWERS, 16)
        _steps(ours, texts[:1], lambda tokens: np.array(tokens, np.int32))
        mine: list[float] = []
        theirs: list[float] = []
        for text in texts:
            mine += _steps(ours, [text], lambda tokens: np.array(tokens, np.int32))
            theirs += _steps(twin, [text], list)
    fast, slow = (float(np.median(seconds)) for seconds in (mine, theirs))
    yield Row(
        f"cacheback, a draft of {BUDGET} nodes and its update",
        f"{fast * 1e6:.0f} us (p99 {np.percentile(mine, 99) * 1e6:.0f})",
        f"{slow * 1e6:.0f} us, OrderedDicts",
        slow / fast,
        "1",
    )


def _steps(
    drafter: object, texts: list[list[int]], tokens: Callable[[list[int]], object]
) -> list[float]:
    """Seconds of each draft with the acceptance after it."""
    seconds = []
    for text in texts:
        drafter.start(tokens(text[:PROMPT]))  # type: ignore[attr-defined]
        for i in range(PROMPT, PROMPT + STEPS * STEP, STEP):
            accepted = tokens(text[i : i + STEP])
            started = time.perf_counter()
            drafter.draft(BUDGET)  # type: ignore[attr-defined]
            drafter.accept(accepted)  # type: ignore[attr-defined]
            seconds.append(time.perf_counter() - started)
    return seconds
