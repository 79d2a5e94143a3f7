"""Artifacts and texts of the benchmarks: of the standard library, or of NGRAMKIT_BENCH_DATA.

That folder holds a token store `tokens`, a datastore `datastore` and a frozen table `frozen` of it,
and recorded answers `records.npz`: p0, a0, c0, ... are prompt, answer (int32) and category (a
string) of each turn. Without it the held-out files of the standard library stand for answers, and
artifacts of the others are built, once per folder.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from ngramkit.drafters.base import TokenArray
    from ngramkit.evaluate.records import Record
    from ngramkit.formats.datastore import Datastore
    from ngramkit.formats.frozen_table import FrozenTable
    from ngramkit.formats.tokens import TokenStore

Makers = Mapping[str, Callable[[], Any]]
Pair = tuple["TokenArray", "TokenArray"]  # prompt and answer


def given(name: str) -> Path | None:
    """Return where NGRAMKIT_BENCH_DATA has `name`; None without that."""
    folder = os.environ.get("NGRAMKIT_BENCH_DATA")
    return Path(folder) / name if folder else None


def stdlib_tokens(folder: Path) -> TokenStore:
    """Return the standard library's tokens, whatever NGRAMKIT_BENCH_DATA holds."""
    from ngramkit.builders.tokens import tokenize
    from ngramkit.corpus.open import open_corpus

    return tokenize(open_corpus("python-stdlib"), "demo", folder / "tokens")


def token_store(folder: Path) -> TokenStore:
    from ngramkit.formats.tokens import TokenStore

    path = given("tokens")
    return stdlib_tokens(folder) if path is None else TokenStore.open(path)


def datastore(folder: Path) -> Datastore:
    from ngramkit.builders.datastore import build_datastore
    from ngramkit.formats.datastore import Datastore

    path = given("datastore")
    if path is not None:
        return Datastore.open(path)
    return build_datastore(token_store(folder), folder / "datastore")


def frozen_table(folder: Path) -> FrozenTable:
    from ngramkit.builders.frozen import build_frozen
    from ngramkit.formats.frozen_table import FrozenTable

    path = given("frozen")
    if path is not None:
        return FrozenTable.open(path)
    return build_frozen(token_store(folder), folder / "frozen")


def held_out_texts() -> list[TokenArray]:
    """Return the held-out files of the standard library, int32[n] each."""
    from ngramkit.corpus.open import open_corpus
    from ngramkit.corpus.tokenizer import load_tokenizer

    tokenizer = load_tokenizer("demo")
    documents = open_corpus("python-stdlib", split="held-out").documents()
    return [tokenizer.encode(document.text) for document in documents]


def contexts() -> list[Pair]:
    """Return prompts and answers."""
    path = given("records.npz")
    if path is not None:
        arrays = np.load(path)
        count = sum(name.startswith("p") for name in arrays.files)
        return [(arrays[f"p{i}"], arrays[f"a{i}"]) for i in range(count)]
    return [(ids[:100], ids[100:1_000]) for ids in held_out_texts() if len(ids) > 200]


def categories(count: int) -> list[str]:
    """Return the categories of `count` answers of `contexts`."""
    path = given("records.npz")
    arrays = None if path is None else np.load(path)
    return ["python" if arrays is None else str(arrays[f"c{i}"]) for i in range(count)]


def makers_over(store: Any, frozen: Any, bigram: Any = None) -> Makers:
    """Return what makes a drafter, by its name in tables; a new one knows no earlier request.

    `store`: a datastore. `frozen`, `bigram`: tables or their folders.
    """
    import ngramkit
    from ngramkit.drafters.past_requests import PastRequests

    load, record = ngramkit.load_drafter, store.tokenizer
    past = partial(PastRequests, tokenizer=record, background=False)
    return {
        "blend": lambda: load("blend", datastores=[store], bigram=bigram),
        "blend, frozen table": lambda: load("blend", frozen_table=frozen),
        "blend, no corpus": lambda: load("blend", tokenizer=record),
        "automaton": lambda: load("automaton", datastores=[store]),
        "cacheback": lambda: load("cacheback", frozen_table=frozen),
        "context": lambda: load("context"),
        "ngrammys": lambda: load("ngrammys", bigram=bigram),
        "prompt-lookup": lambda: load("prompt-lookup"),
        "recycling": lambda: load("recycling"),
        "rest": lambda: load("rest", datastores=[store]),
        "ssd": lambda: load("ssd", past=past()),
    }


def steps_by_nodes(
    makers: Makers, records: Sequence[Record], budgets: Iterable[int]
) -> dict[str, dict[str, float]]:
    """Return {drafter: {draft nodes: tokens/step}} of a replay of records; print each."""
    from ngramkit.evaluate.replay_loop import replay_drafter

    steps: dict[str, dict[str, float]] = {name: {} for name in makers}
    for budget, (name, make) in product(budgets, makers.items()):
        found = replay_drafter(name, make, records, budget).total.tokens_per_step
        steps[name][str(budget)] = round(found, 4)
        print(f"{name}, {budget} nodes: {found:.3f}", flush=True)
    return steps


def draft_times(
    drafter: Any,
    pairs: Sequence[Pair],
    budget: int,
    *,
    every: int = 1,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> npt.NDArray[np.float64]:
    """Return the microseconds of a draft at every `every`-th position of the answers."""
    took, position = [], 0
    for prompt, answer in pairs:
        drafter.start(prompt)
        for i in range(len(answer)):
            if position % every == 0:
                started = clock()
                drafter.draft(budget)
                took.append(clock() - started)
            drafter.accept(answer[i : i + 1])
            position += 1
    return np.array(took) / 1e3
