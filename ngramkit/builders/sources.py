"""The sources of builders and the default places of what they build, as callers name them."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from ngramkit.corpus.open import AnyCorpus, CorpusWords, Openable, open_corpus
from ngramkit.errors import UsageError
from ngramkit.formats.outputs import corpus_name, default_place
from ngramkit.formats.tokens import TokenStore
from ngramkit.machine import parse_size
from ngramkit.progress import SILENT, Reporter

# A corpus, opened or what `open_corpus` opens.
Text = AnyCorpus | Openable
# Tokens or text: a token store, its folder or URL, else text.
Source = TokenStore | Text


def open_text(text: Text, reporter: Reporter = SILENT, **options: Unpack[CorpusWords]) -> AnyCorpus:
    """Return `text` as a corpus.

    Raises UsageError where options other than `max_document` are given for an opened one.
    """
    if not isinstance(text, AnyCorpus):
        return open_corpus(text, **options, reporter=reporter)
    limit = parse_memory(options.pop("max_document", None))
    for name in options:
        raise UsageError(f"{name} comes too late for an opened corpus", option=name)
    return text if limit is None else text.bounded(limit)


def parse_memory(memory: int | str | None) -> int | None:
    """Return bytes of a number or a text like "4G". Raises UsageError where it is no size."""
    return parse_size(memory) if isinstance(memory, str) else memory


def default_out(store: TokenStore, kind: str) -> Path:
    """Return artifacts/CORPUS-MODEL-KIND."""
    corpus = corpus_name(store.manifest.corpus, store.path.name)
    return default_place(corpus, store.tokenizer.id, kind)
