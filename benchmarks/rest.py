"""The rest drafter's latency against a plain twin: bisect finds the matches, numpy counts them all.

Contexts are every position of held-out files of the standard library over a datastore of the
others; with NGRAMKIT_BENCH_DATA, a folder of a datastore `datastore` and of recorded answers
`records.npz` (int32 arrays p0, a0, p1, a1, ...: prompt, answer), every position of the answers.
"""

from __future__ import annotations

import os
import tempfile
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from benchmarks import Row

if TYPE_CHECKING:
    from ngramkit.drafters.base import TokenArray
    from ngramkit.formats.datastore import Datastore, DatastoreShard

BUDGET, LONGEST, DEEPEST = 64, 16, 10
ROUNDS = 3
POSITIONS = 12_000  # contexts at most
SPARSE = 40  # the twin drafts at every so-manieth of them
TokenCounts = dict[tuple[int, ...], int]


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
    """Prompts and answers: those of NGRAMKIT_BENCH_DATA, else of held-out files."""
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
        ours, theirs, same = _latencies(datastore, pairs[:: max(_total(pairs) // POSITIONS, 1)])
    tokens = datastore.manifest.counts["tokens"]
    for share, target in ((50, "<= 30 us"), (99, "<= 400 us")):
        mine, other = np.percentile(ours, share), np.percentile(theirs, share)
        yield Row(
            f"draft {BUDGET} nodes from {tokens:,} tokens, p{share} of {len(ours):,} contexts",
            f"{mine:.1f} us",
            f"{other:,.0f} us, bisect, then numpy over every match (same tree: {same:.0%})",
            other / mine,
            target,
        )


def _total(pairs: list[tuple[TokenArray, TokenArray]]) -> int:
    return sum(len(answer) for _, answer in pairs)


def _latencies(
    datastore: Datastore, pairs: list[tuple[TokenArray, TokenArray]]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], float]:
    """Microseconds of each draft, the least of ROUNDS passes over all contexts; the twin's; and the
    share of contexts where both trees have the same number of nodes and the same least score."""
    from ngramkit.drafters.rest import Rest

    drafter = Rest([datastore], max_match=LONGEST, continuation=DEEPEST)
    drafter.start(pairs[0][0])
    drafter.draft(BUDGET)  # compiles
    best = np.full(_total(pairs), np.inf)
    theirs, agreed = [], []
    for _ in range(ROUNDS):
        position = 0
        for prompt, answer in pairs:
            drafter.start(prompt)
            for i in range(len(answer)):
                started = time.perf_counter_ns()
                tree = drafter.draft(BUDGET)
                best[position] = min(best[position], time.perf_counter_ns() - started)
                if len(theirs) * SPARSE <= position and position < len(best):
                    context = np.concatenate([prompt, answer[:i]])
                    started = time.perf_counter_ns()
                    counts, total = _twin(datastore, context)
                    theirs.append(time.perf_counter_ns() - started)
                    agreed.append(_agree(tree.scores, counts, total))
                drafter.accept(answer[i : i + 1])
                position += 1
    return best / 1e3, np.array(theirs) / 1e3, float(np.mean(agreed))


def _agree(scores: npt.NDArray[np.float32], counts: list[int], total: int) -> bool:
    found = np.rint(scores * total).astype(int).tolist()
    return sorted(found, reverse=True) == counts


def _twin(datastore: Datastore, context: TokenArray) -> tuple[list[int], int]:
    """The counts of the most frequent continuations of the longest match, and all matches."""
    for length in range(min(LONGEST, len(context)), 0, -1):
        pattern = context[len(context) - length :]
        rows = [_following(shard, pattern) for shard in datastore.shards]
        counts: TokenCounts = {}
        for depth in range(1, DEEPEST + 1):
            heads = np.concatenate([r[:, :depth] for r in rows])
            heads = heads[_open(heads, datastore)]
            unique, number = np.unique(heads, axis=0, return_counts=True)
            counts.update(zip(map(tuple, unique.tolist()), number.tolist(), strict=True))
        if counts:
            total = sum(map(len, rows))
            return sorted(counts.values(), reverse=True)[:BUDGET], total
    return [], 0


def _open(heads: npt.NDArray[np.int64], datastore: Datastore) -> npt.NDArray[np.bool_]:
    """Which heads hold no separator, and an EOS at their end at most."""
    whole = np.all(heads != datastore.separator, axis=1)
    return np.asarray(whole & np.all(heads[:, :-1] != datastore.tokenizer.eos, axis=1))


def _following(shard: DatastoreShard, pattern: TokenArray) -> npt.NDArray[np.int64]:
    """int64[matches, DEEPEST]: what follows `pattern`; a shard's last token fills up its end."""
    size, wanted = len(pattern), pattern.tolist()
    first, last = (int(shard.first_token[wanted[0] + i]) for i in (0, 1))

    def head(i: int) -> list[int]:
        position = int(shard.suffix_array[i])
        return shard.tokens[position : position + size].tolist()

    low = bisect_left(range(last), wanted, first, key=head)
    high = bisect_right(range(last), wanted, low, key=head)
    positions = shard.suffix_array[low:high].astype(np.int64)
    reach = positions[:, None] + size + np.arange(DEEPEST)
    return shard.tokens[np.minimum(reach, len(shard.tokens) - 1)].astype(np.int64)
