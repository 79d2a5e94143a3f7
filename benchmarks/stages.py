"""The rates of `ngramkit.builders.rates`, measured anew: what a stage of a build takes of a core.

A ratio near 1 means that the table, and so `ngramkit plan`, still speaks of such a machine. Rates
are tokens by processor time. The corpus are chat answers where they are (../shared/data), else the
standard library's files.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import Row
from benchmarks.tokenize import CHAT

ROUNDS = 3
ANSWERS = 2_000


def rows() -> Iterator[Row]:
    from ngramkit.builders.rates import MACHINE, RATES

    for name, rate in measured().items():
        yield Row(
            f"one core: {name}",
            f"{rate:,.0f} tokens/s",
            f"{RATES[name]:,.0f} tokens/s in the table, {MACHINE}",
            rate / RATES[name],
            "",
        )


def measured() -> dict[str, float]:
    """Tokens per second of processor time in each stage, the best of ROUNDS."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            name: tokens / min(_seconds(task) for _ in range(ROUNDS))
            for name, task, tokens in _tasks(Path(folder))
        }


def _seconds(task: Callable[[], object]) -> float:
    """Of all threads together: what other programs take does not count."""
    begun = time.process_time()
    task()
    return time.process_time() - begun


def _tasks(folder: Path) -> Iterator[tuple[str, Callable[[], object], int]]:
    """(stage, a run of it, over how many tokens)"""
    from ngramkit.builders import rates
    from ngramkit.builders.frozen import build_frozen
    from ngramkit.builders.passages import chosen_passages
    from ngramkit.builders.tokens import build_tokens
    from ngramkit.formats.datastore import DatastoreShard
    from ngramkit.formats.writer import ArtifactWriter
    from ngramkit.kernels.suffix.sort import sort_shard

    corpus, model = _corpus()
    store = build_tokens(corpus, model, folder / "store")
    tokens = store.manifest.counts["tokens"]
    texts: list[str] = []

    def read() -> None:
        texts[:] = [document.text for document in corpus.documents()]

    yield rates.READ, read, tokens
    for name, encode in _encoders(model, texts):
        yield name, encode, tokens
    separator = store.tokenizer.vocabulary
    parts = [[*d.tolist(), separator] for d in store.documents()]
    flat = np.array([token for part in parts for token in part], store.shards[0].tokens.dtype)
    shard: dict[str, Any] = {}

    def sort() -> None:
        shard.update(sort_shard(flat, separator))

    def count() -> None:  # the table is written, too, which is little of it
        shutil.rmtree(folder / "counted", ignore_errors=True)  # else it would be up to date
        build_frozen(store, folder / "counted", memory=1 << 30, workers=1)

    def write() -> None:
        with ArtifactWriter(folder / "written", "datastore", {}, force=True) as writer:
            writer.write("shard-00000.safetensors", shard)

    yield rates.SORT, sort, tokens
    yield rates.COUNT, count, tokens
    yield rates.WRITE, write, tokens
    shards = [DatastoreShard(**shard)]
    yield rates.CHOOSE, lambda: chosen_passages(shards, separator, len(flat) // 8), tokens


def _corpus() -> tuple[Any, str]:
    from ngramkit.corpus.open import open_corpus

    if CHAT.is_dir():
        files = str(CHAT / "chat-corpus" / "*-00000-*.parquet")
        return open_corpus(files, column="output", limit=ANSWERS), str(CHAT / "llama-tokenizer")
    return open_corpus("python-stdlib"), "demo"


def _encoders(model: str, texts: list[str]) -> Iterator[tuple[str, Callable[[], object]]]:
    from benchmarks.tokenize import _without_gigatoken
    from ngramkit.builders import rates
    from ngramkit.corpus.encoders import open_encoder
    from ngramkit.corpus.tokenizer import load_tokenizer
    from ngramkit.progress import SILENT

    backend = load_tokenizer(model).backend

    def every(encoder: Any) -> Callable[[], object]:
        return lambda: [encoder.encode(texts[i : i + 512]) for i in range(0, len(texts), 512)]

    with _without_gigatoken():
        yield rates.TOKENIZE, every(open_encoder(backend, SILENT))
    if find_spec("gigatoken") is not None:
        yield rates.TOKENIZE_FAST, every(open_encoder(backend, SILENT))
