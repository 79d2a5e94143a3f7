"""Building a datastore against one plain pydivsufsort call over the same tokens, and its size.

The tokens are those of benchmarks._data.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np

from benchmarks import Row, interleaved
from benchmarks._data import token_store

OPENINGS = 20


def rows() -> Iterator[Row]:
    from pydivsufsort import divsufsort

    from ngramkit.builders.datastore import build_datastore
    from ngramkit.formats.datastore import Datastore

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = token_store(folder)
        tokens = np.concatenate([np.asarray(shard.tokens) for shard in store.shards])
        outs = (folder / f"datastore-{number}" for number in count())
        built = build_datastore(store, next(outs))  # warm: the kernels
        ours, other = interleaved(
            lambda: build_datastore(store, next(outs)), lambda: divsufsort(tokens), rounds=2
        )
        yield Row(
            f"datastore of {len(tokens):,} tokens",
            f"{len(tokens) / ours:,.0f} tokens/s, written and synced",
            f"{len(tokens) / other:,.0f} tokens/s, pydivsufsort.divsufsort alone",
            other / ours,
            ">= 1.6 on two cores",
        )
        each = built.manifest.bytes / len(tokens)
        plain = tokens.itemsize + 4  # bytes: a token and its entry in an int32 suffix array
        yield Row(
            "size on disk", f"{each:.3f} bytes/token", f"{plain} bytes/token, the bare arrays",
            plain / each, "<= 6.2 bytes/token",
        )  # fmt: skip
        seconds = []
        for _ in range(OPENINGS):
            started = time.perf_counter()
            Datastore.open(built.path).shards  # noqa: B018
            seconds.append(time.perf_counter() - started)
        read, _ = interleaved(lambda: [p.read_bytes() for p in built.path.iterdir()], lambda: None)
        yield Row(
            "open a datastore", f"{1e3 * min(seconds):.1f} ms", f"{1e3 * read:.1f} ms, reading it",
            read / min(seconds), "< 50 ms",
        )  # fmt: skip
