"""build-frozen against collections.Counter on the same tokens.

NGRAMKIT_BENCH_DATA names a folder that holds a token store `tokens`, of which the Counter is given
the first 8 million; without it, the standard library's sources.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import Row, interleaved
from ngramkit.builders.frozen import build_frozen
from ngramkit.builders.tokens import tokenize
from ngramkit.corpus.open import open_corpus
from ngramkit.formats.container import Array
from ngramkit.formats.tokens import TokenStore
from ngramkit.formats.writer import ArtifactWriter

MOST = 8_000_000  # tokens that the Counter is given
LEADERS, FOLLOWERS = 1 << 20, 128


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as scratch:
        store = _store(Path(scratch))
        part = _first(store, MOST, Path(scratch) / "part")
        documents = [document.tolist() for document in part.documents()]
        build_frozen(part, Path(scratch) / "warm")
        tokens = part.manifest.counts["tokens"]
        ours, counter = interleaved(
            lambda: build_frozen(part, _fresh(scratch)), lambda: _with_counter(documents), rounds=2
        )
        yield Row(
            f"frozen table, {tokens / 1e6:.1f} million tokens",
            f"{ours:.2f} s",
            f"{counter:.2f} s, collections.Counter",
            counter / ours,
            "20",
        )
        total = store.manifest.counts["tokens"]
        if total > MOST:
            seconds = interleaved(lambda: build_frozen(store, _fresh(scratch)))[0]
            yield Row(
                f"frozen table, {total / 1e6:.1f} million tokens",
                f"{seconds:.2f} s",
                "5 s, the target",
                5 / seconds,
                "1",
            )


def _with_counter(documents: list[list[int]]) -> dict[int, list[tuple[tuple[int, ...], int]]]:
    """What build-frozen does by default, straightforwardly."""
    leaders: Counter[int] = Counter()
    followers: defaultdict[int, Counter[tuple[int, ...]]] = defaultdict(Counter)
    for document in documents:
        for leader, *follower in zip(
            document, document[1:], document[2:], document[3:], strict=False
        ):
            leaders[leader] += 1
            followers[leader][tuple(follower)] += 1
    best = sorted(leaders, key=lambda leader: (-leaders[leader], leader))[:LEADERS]
    return {
        leader: sorted(followers[leader].items(), key=lambda f: (-f[1], f[0]))[:FOLLOWERS]
        for leader in best
    }


def _store(scratch: Path) -> TokenStore:
    folder = os.environ.get("NGRAMKIT_BENCH_DATA")
    if folder is None:
        return tokenize(open_corpus("python-stdlib"), "demo", scratch / "tokens")
    return TokenStore.open(Path(folder) / "tokens")


def _first(store: TokenStore, most: int, path: Path) -> TokenStore:
    """The whole documents among the first `most` tokens."""
    kept: list[Array] = []
    held = 0
    for document in store.documents():
        held += len(document)
        if held > most:
            break
        kept.append(document)
    offsets = np.cumsum([0, *map(len, kept)]).astype(np.uint64)
    with ArtifactWriter(path, TokenStore.kind, {"most": most}) as writer:
        arrays = {"tokens": np.concatenate(kept), "documents": offsets}
        writer.write("shard-00000.safetensors", arrays)
        counts = {"documents": len(kept), "tokens": int(offsets[-1])}
        writer.commit(store.tokenizer, parameters={}, corpus={}, counts=counts)
    return TokenStore.open(path)


def _fresh(scratch: str) -> Path:
    """A path that nothing was built at."""
    return Path(tempfile.mkdtemp(dir=scratch)) / "table"
