"""The sources of builders and the default places of what they build, as callers name them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ngramkit.corpus.open import AnyCorpus, Part, open_corpus
from ngramkit.errors import UsageError
from ngramkit.formats.outputs import corpus_name, default_place
from ngramkit.formats.tokens import TokenStore
from ngramkit.machine import parse_size
from ngramkit.progress import SILENT, Reporter

# A corpus, opened or by name, or several with weights: ["a", ("b", 0.3)].
Text = AnyCorpus | str | Path | Sequence[Part]
# Tokens or text: a token store, its folder or URL, else text.
Source = TokenStore | Text


def open_text(
    text: Text,
    reporter: Reporter = SILENT,
    *,
    max_document: int | str | None = None,
    **options: Any,
) -> AnyCorpus:
    """Return `text` as a corpus whose documents have at most `max_document` bytes.

    `options` are those of `open_corpus`. Raises UsageError where they are given for a corpus that
    is open already.
    """
    if isinstance(text, str | Path) or not isinstance(text, AnyCorpus):
        text = open_corpus(text, **options, reporter=reporter)
    elif options:
        name = next(iter(options))
        raise UsageError(f"{name} comes too late for an opened corpus", option=name)
    limit = parse_memory(max_document)
    return text if limit is None else text.bounded(limit)


def parse_memory(memory: int | str | None) -> int | None:
    """Return bytes of a number or a text like "4G". Raises UsageError where it is no size."""
    return parse_size(memory) if isinstance(memory, str) else memory


def default_out(store: TokenStore, kind: str) -> Path:
    """Return artifacts/CORPUS-MODEL-KIND."""
    corpus = corpus_name(store.manifest.corpus, store.path.name)
    return default_place(corpus, store.tokenizer.id, kind)
