"""Tokenising a corpus against the tokenizer's own encode_batch_fast over the same text and cores.

Ours reads the files, encodes, packs the ids and writes the token store; the reference only
encodes texts that are in memory already, in batches, and throws the encodings away. With gigatoken
(the extra `fast`), whole builds are compared with those of tokenizers alone; their bytes are equal.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks import Row, interleaved

BATCH = 512  # documents
TARGET = ">= 0.85"
CHAT = Path("../shared/data")  # a Llama tokenizer and answers, where they are


def rows() -> Iterator[Row]:
    from ngramkit.corpus.open import open_corpus
    from ngramkit.corpus.tokenizer import load_tokenizer

    corpus = open_corpus("python-stdlib", split="all")
    texts = [document.text for document in corpus.documents()]
    encode = load_tokenizer("demo").backend.encode_batch_fast

    def reference() -> None:
        for begin in range(0, len(texts), BATCH):
            encode(texts[begin : begin + BATCH], add_special_tokens=False)

    with tempfile.TemporaryDirectory() as folder:
        ours = _builds(corpus, "demo", Path(folder))
        tokens = ours()  # warm: the files' pages, the tokenizer's cache of words
        with _without_gigatoken():
            seconds, other = interleaved(ours, reference)
    yield Row(
        f"tokenise the standard library, {tokens:,} tokens",
        f"{tokens / seconds:,.0f} tokens/s, read and written",
        f"{tokens / other:,.0f} tokens/s, encode_batch_fast alone",
        other / seconds,
        TARGET,
    )
    if find_spec("gigatoken") is not None:
        yield _with_gigatoken("the standard library", corpus, "demo")
        if CHAT.is_dir():
            answers = open_corpus(str(CHAT / "chat-corpus" / "*.parquet"), column="output")
            yield _with_gigatoken("chat answers, Llama ids", answers, str(CHAT / "llama-tokenizer"))


def _builds(corpus: Any, model: str, folder: Path) -> Callable[[], int]:
    """A new store with each call; how many tokens are in it."""
    from ngramkit.builders.tokens import build_tokens

    outs = (folder / f"store-{number}" for number in count())
    return lambda: build_tokens(corpus, model, next(outs)).manifest.counts["tokens"]


def _without_gigatoken() -> Any:
    return mock.patch("ngramkit.corpus.encoders.find_spec", return_value=None)


def _with_gigatoken(what: str, corpus: Any, model: str) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        ours = _builds(corpus, model, Path(folder))

        def plain() -> None:
            with _without_gigatoken():
                ours()

        tokens = ours()
        seconds, other = interleaved(ours, plain)
    return Row(
        f"tokenise {what} with gigatoken, {tokens:,} tokens",
        f"{tokens / seconds:,.0f} tokens/s, proof, reading and writing included",
        f"{tokens / other:,.0f} tokens/s, the same with tokenizers alone",
        other / seconds,
        ">= 4 where it is long",
    )
