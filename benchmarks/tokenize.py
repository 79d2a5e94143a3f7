"""Tokenising a corpus against the tokenizer's own encode_batch_fast over the same text and cores.

Ours reads the files, encodes, packs the ids and writes the token store; the reference only
encodes texts that are in memory already, in batches, and throws the encodings away.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from benchmarks import Row, interleaved

BATCH = 512  # documents
TARGET = ">= 0.85"


def rows() -> Iterator[Row]:
    from ngramkit.builders.tokens import build_tokens
    from ngramkit.corpus.open import open_corpus
    from ngramkit.corpus.tokenizer import load_tokenizer

    corpus = open_corpus("python-stdlib", split="all")
    texts = [document.text for document in corpus.documents()]
    encode = load_tokenizer("demo").backend.encode_batch_fast

    def reference() -> None:
        for begin in range(0, len(texts), BATCH):
            encode(texts[begin : begin + BATCH], add_special_tokens=False)

    with tempfile.TemporaryDirectory() as folder:
        outs = (Path(folder) / f"store-{number}" for number in count())

        def ours() -> int:
            return build_tokens(corpus, "demo", next(outs)).manifest.counts["tokens"]

        tokens = ours()  # warm: the files' pages, the tokenizer's cache of words
        seconds, other = interleaved(ours, reference)
    yield Row(
        f"tokenise the standard library, {tokens:,} tokens",
        f"{tokens / seconds:,.0f} tokens/s, read and written",
        f"{tokens / other:,.0f} tokens/s, encode_batch_fast alone",
        other / seconds,
        TARGET,
    )
