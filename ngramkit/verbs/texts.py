"""What builders read: text by name, several corpora as one, or tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ngramkit.corpus.open import AnyCorpus, Part, open_corpus
from ngramkit.errors import UsageError
from ngramkit.formats.tokens import TokenStore
from ngramkit.machine import parse_size
from ngramkit.progress import SILENT, Reporter

# A corpus, opened or by name, or several with weights: ["a", ("b", 0.3)].
Text = AnyCorpus | str | Path | Sequence[Part]
# Tokens or text: a token store, its folder or URL, else text.
Source = TokenStore | Text


def opened(
    corpus: Text,
    reporter: Reporter = SILENT,
    *,
    max_document: int | str | None = None,
    **options: Any,
) -> AnyCorpus:
    """A corpus as it is, the one of that name, or the mixture of several; a text has at most
    `max_document` bytes. Raises UsageError for options of what is open already."""
    if isinstance(corpus, str | Path) or not isinstance(corpus, AnyCorpus):
        corpus = open_corpus(corpus, **options, reporter=reporter)
    elif options:
        name = next(iter(options))
        raise UsageError(f"{name} comes too late for an opened corpus", option=name)
    most = size_of(max_document)
    return corpus if most is None else corpus.bounded(most)


def size_of(memory: int | str | None) -> int | None:
    """Bytes. Raises UsageError where it is no size."""
    return parse_size(memory) if isinstance(memory, str) else memory
