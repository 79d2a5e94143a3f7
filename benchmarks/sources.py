"""blend over its datastore, and beside it one of shuffled words and one of text like the answers'.

Over held-out files of the standard library and a datastore of the others; with NGRAMKIT_BENCH_DATA
over that folder's, as benchmarks.blend. Times are the processor's, of drafts by turns: record for
record over one datastore, then over two.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import Row
from benchmarks.rest import _data

if TYPE_CHECKING:
    from ngramkit.drafters.base import TokenArray
    from ngramkit.formats.datastore import Datastore

    Pairs = list[tuple[TokenArray, TokenArray]]

BUDGET = 64
SHUFFLED = 4_000_000  # tokens at most
ANSWERS = 20_000  # tokens of recorded answers, at most


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        datastore, pairs = _data(Path(name))
        shard = datastore.shards[0].tokens[:SHUFFLED].copy()
        np.random.default_rng(0).shuffle(shard)
        words = shard[shard != datastore.separator]
        shuffled = np.split(words, range(400, len(words), 400))
        like, asked = [answer for _, answer in pairs[1::2]], pairs[::2]
        asked = asked[:: max(sum(len(answer) for _, answer in asked) // ANSWERS, 1)]
        others = {"shuffled words": shuffled, "other answers": like}
        for what, documents in others.items():
            beside = _store(Path(name) / what.replace(" ", "-"), datastore, documents)
            yield from _compared(what, datastore, beside, asked)


def _compared(what: str, datastore: Datastore, beside: Datastore, pairs: Pairs) -> Iterator[Row]:
    from ngramkit.drafters.blend import Blend

    alone, both = Blend([datastore]), Blend([datastore, beside])
    for drafter in (alone, both):
        _replayed(drafter, pairs[0])  # compiles
    found = np.array([[_replayed(drafter, pair) for drafter in (alone, both)] for pair in pairs])
    (_, passes), (_, more) = totals = found[:, :, :2].sum(axis=0)
    tokens = beside.manifest.counts["tokens"]
    alone_reached, reached = (tokens_ / passes_ for tokens_, passes_ in totals)
    target = ">= 0.995" if what.startswith("shuffled") else "above 1"
    yield Row(
        f"blend, {BUDGET} nodes, and {tokens:,} tokens of {what} beside its datastore",
        f"{reached:.3f} tokens/step",
        f"{alone_reached:.3f}, its datastore alone",
        reached / alone_reached,
        target,
    )
    draft, beside_draft = found[:, :, 2].sum(axis=0) / (passes, more) / 1e3
    yield Row(
        f"one draft of {BUDGET} nodes, and {tokens:,} tokens of {what} beside",
        f"{beside_draft:.0f} us of processor time",
        f"{draft:.0f} us, the datastore alone",
        draft / beside_draft,
        ">= 0.9",
    )


def _replayed(drafter: Any, pair: tuple[TokenArray, TokenArray]) -> tuple[int, int, int]:
    """Tokens, passes, and the nanoseconds of their drafts."""
    from ngramkit.decode.accept import accept

    prompt, answer = pair
    drafter.start(prompt)
    drafter.accept(answer[:1])
    position, passes, spent = 1, 0, 0
    while position < len(answer):
        begun = time.thread_time_ns()
        tree = drafter.draft(BUDGET)
        spent += time.thread_time_ns() - begun
        rest = iter(answer[position:].tolist())
        nodes, _ = accept(tree, lambda row, rest=rest: next(rest, -1))
        drafter.accept(answer[position : position + len(nodes) + 1])
        position += len(nodes) + 1
        passes += 1
    return len(answer) - 1, passes, spent


def _store(folder: Path, like: Datastore, documents: list[TokenArray]) -> Datastore:
    """A datastore of `documents`, with the tokenizer of another."""
    from ngramkit.builders.datastore import build_datastore
    from ngramkit.formats.tokens import TokenStore
    from ngramkit.formats.writer import ArtifactWriter

    ends = np.cumsum([0, *map(len, documents)])
    tokens = np.concatenate(documents).astype(like.shards[0].tokens.dtype)
    counts = {"documents": len(documents), "tokens": len(tokens)}
    with ArtifactWriter(folder / "tokens", TokenStore.kind, {"of": folder.name}) as writer:
        arrays = {"tokens": tokens, "documents": ends.astype(np.uint64)}
        writer.write("shard-00000.safetensors", arrays)
        writer.commit(like.tokenizer, parameters={}, corpus={"id": folder.name}, counts=counts)
    return build_datastore(TokenStore.open(folder / "tokens"), folder / "datastore")
