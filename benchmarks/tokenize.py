"""Tokenising a corpus against the tokenizer's own encode_batch_fast over the same text and cores.

Ours reads the files, encodes, packs the ids and writes the token store; the reference only
encodes texts that are in memory already, in batches, and throws the encodings away. Whole builds
with gigatoken, of a token store and on to a datastore, are compared with those of tokenizers alone;
their bytes are equal.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from benchmarks import Row, interleaved

if TYPE_CHECKING:
    from ngramkit.formats.tokens import TokenStore

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
        tokens = _tokens(ours())  # warm: the files' pages, the tokenizer's cache of words
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
        yield from _with_gigatoken("the standard library", corpus, "demo")
        if CHAT.is_dir():
            answers = open_corpus(str(CHAT / "chat-corpus" / "*.parquet"), column="output")
            model = str(CHAT / "llama-tokenizer")
            yield from _with_gigatoken("chat answers, Llama ids", answers, model)


def _builds(corpus: Any, model: str, folder: Path) -> Callable[[], TokenStore]:
    """Return what builds a new store with each call."""
    from ngramkit.builders.tokens import tokenize

    outs = (folder / f"store-{number}" for number in count())
    return lambda: tokenize(corpus, model, next(outs))


def _tokens(store: TokenStore) -> int:
    return store.manifest.counts["tokens"]


def _without_gigatoken() -> Any:
    return mock.patch("ngramkit.corpus.gigatoken.find_spec", return_value=None)


def _with_gigatoken(what: str, corpus: Any, model: str) -> Iterator[Row]:
    from ngramkit.builders.datastore import build_datastore

    with tempfile.TemporaryDirectory() as folder:
        ours = _builds(corpus, model, Path(folder))
        store = ours()

        def plain() -> None:
            with _without_gigatoken():
                ours()

        def sort() -> None:  # the second half of a build from text, whoever encoded it
            shutil.rmtree(Path(folder) / "datastore", ignore_errors=True)
            build_datastore(store, Path(folder) / "datastore")

        seconds, other, sorting = interleaved(ours, plain, sort)
    tokens = _tokens(store)
    yield Row(
        f"tokenise {what} with gigatoken, {tokens:,} tokens",
        f"{tokens / seconds:,.0f} tokens/s, proof, reading and writing included",
        f"{tokens / other:,.0f} tokens/s, the same with tokenizers alone",
        other / seconds,
        ">= 4 where it is long",
    )
    yield Row(
        f"{what} to a datastore with gigatoken, {tokens:,} tokens",
        f"{seconds + sorting:,.1f} s, of which {sorting:,.1f} sort",
        f"{other + sorting:,.1f} s with tokenizers alone",
        (other + sorting) / (seconds + sorting),
        ">= 2 where it is long",
    )
