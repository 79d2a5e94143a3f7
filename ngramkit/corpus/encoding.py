"""Documents to packed ids, batch by batch, in order, with every core.

Threads encode (the tokenizers let the GIL go) while the caller's thread reads the next documents,
so that reading, encoding and packing overlap. Knows nothing of files or shards.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ngramkit.corpus.document import Document
from ngramkit.corpus.encoders import Encoder, Ids
from ngramkit.formats.artifact import token_dtype
from ngramkit.formats.container import Array
from ngramkit.machine import threads

BATCH_CHARACTERS = 1 << 20
BATCH_DOCUMENTS = 4096
# An encoding takes over 100 bytes a token, so longer documents are encoded in pieces. Each is cut
# behind a line's end where there is one; ids may differ at a cut from those of the whole.
PIECE_CHARACTERS = 1 << 22
ENCODERS = 2  # one packs while the other encodes
PENDING = 4  # batches encoded ahead of the consumer


class Packed(NamedTuple):
    """A batch of documents, encoded."""

    documents: Sequence[Document]
    tokens: Array  # uint16 | uint32 [n]
    lengths: npt.NDArray[np.int64]  # [documents], in tokens


_cores = {"used": False, "lost": False}  # by this process; by the one that it was forked from


def use_cores(workers: int | None) -> None:
    """Bounds the encoding threads (None: every core); only before a process first encodes."""
    _cores["used"] = True
    os.environ["TOKENIZERS_PARALLELISM"] = "false" if _cores["lost"] else "true"
    if workers is not None:
        os.environ["RAYON_NUM_THREADS"] = str(threads(workers))


def _lose_cores() -> None:
    """In a forked child: threads do not live on, tokenizers starts none anew, and would wait."""
    if _cores["used"]:
        _cores["lost"] = True
        os.environ["TOKENIZERS_PARALLELISM"] = "false"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_lose_cores)


def encoded(
    documents: Iterator[Document], encoder: Encoder, vocabulary: int, ending: int | None
) -> Iterator[Packed]:
    """Batches in the documents' order, encoded a few ahead; `ending`, unless None, ends each
    document. `vocabulary` decides how wide the ids are."""
    dtype = token_dtype(vocabulary)
    pending: deque[Future[Packed]] = deque()
    with ThreadPoolExecutor(ENCODERS) as pool:
        try:
            for batch in _batches(documents):
                pending.append(pool.submit(encode_batch, encoder, batch, dtype, ending))
                if len(pending) > PENDING:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def _batches(documents: Iterator[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    characters = 0
    for document in documents:
        batch.append(document)
        characters += len(document.text)
        if characters >= BATCH_CHARACTERS or len(batch) == BATCH_DOCUMENTS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def encode_batch(
    encoder: Encoder, documents: Sequence[Document], dtype: np.dtype[Any], ending: int | None
) -> Packed:
    """Ids of every document, `ending` behind each unless None, in one array."""
    texts = [document.text for document in documents]
    if max(map(len, texts)) <= PIECE_CHARACTERS:
        ids = encoder.encode(texts)
    else:
        ids = _of_pieces(encoder, texts, dtype)
    if ending is None:
        return Packed(documents, ids.tokens.astype(dtype), ids.lengths)
    tokens = np.full(len(ids.tokens) + len(texts), ending, dtype)
    endings = np.cumsum(ids.lengths + 1) - 1
    kept = np.ones(len(tokens), bool)
    kept[endings] = False
    tokens[kept] = ids.tokens
    return Packed(documents, tokens, ids.lengths + 1)


def _of_pieces(encoder: Encoder, texts: Sequence[str], dtype: np.dtype[Any]) -> Ids:
    each = [list(_in_pieces(encoder, text, dtype)) for text in texts]
    lengths = np.array([sum(map(len, parts)) for parts in each], np.int64)
    return Ids(np.concatenate(list(chain.from_iterable(each))), lengths)


def _in_pieces(encoder: Encoder, text: str, dtype: np.dtype[Any]) -> Iterator[Array]:
    """One piece at a time, so that only one encoding is in memory."""
    begin = 0
    while begin < len(text):
        end = begin + PIECE_CHARACTERS
        if end < len(text):
            end = (text.rfind("\n", begin, end) + 1) or end
        yield encoder.encode([text[begin:end]]).tokens.astype(dtype)
        begin = end
