"""Documents to packed ids, batch by batch, in order, with every core.

Two threads encode (the tokenizer lets the GIL go and spreads a batch over all cores) while the
caller's thread reads the next documents, so that reading, encoding and packing overlap. Knows
nothing of files or shards.
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
from ngramkit.corpus.tokenizer import TextTokenizer
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


def use_cores(workers: int | None) -> None:
    """Bounds the encoding threads (None: every core); only before a process first encodes."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    if workers is not None:
        os.environ["RAYON_NUM_THREADS"] = str(threads(workers))


def encoded(documents: Iterator[Document], tokenizer: TextTokenizer, eos: bool) -> Iterator[Packed]:
    """Batches in the documents' order, encoded a few ahead; `eos` ends each document with one."""
    ending = tokenizer.record.eos if eos else None
    pending: deque[Future[Packed]] = deque()
    with ThreadPoolExecutor(ENCODERS) as pool:
        try:
            for batch in _batches(documents):
                pending.append(pool.submit(encode_batch, tokenizer, batch, ending))
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
    tokenizer: TextTokenizer, documents: Sequence[Document], ending: int | None
) -> Packed:
    """Ids of every document, `ending` behind each unless None, in one array."""
    dtype = token_dtype(tokenizer.record.vocabulary)
    tail = () if ending is None else (ending,)
    longest = max(len(document.text) for document in documents)
    if longest <= PIECE_CHARACTERS:
        ids = _ids(tokenizer, [document.text for document in documents])
        tokens = np.fromiter(chain.from_iterable(chain(one, tail) for one in ids), dtype)
        lengths = np.fromiter(map(len, ids), np.int64) + len(tail)
        return Packed(documents, tokens, lengths)
    each = [
        [*_in_pieces(tokenizer, document.text, dtype), np.array(tail, dtype)]
        for document in documents
    ]
    lengths = np.array([sum(map(len, parts)) for parts in each])
    return Packed(documents, np.concatenate(list(chain.from_iterable(each))), lengths)


def _in_pieces(tokenizer: TextTokenizer, text: str, dtype: np.dtype[Any]) -> Iterator[Array]:
    """One piece at a time, so that only one encoding is in memory."""
    begin = 0
    while begin < len(text):
        end = begin + PIECE_CHARACTERS
        if end < len(text):
            end = (text.rfind("\n", begin, end) + 1) or end
        yield np.array(_ids(tokenizer, [text[begin:end]])[0], dtype)
        begin = end


def _ids(tokenizer: TextTokenizer, texts: list[str]) -> list[list[int]]:
    encode = tokenizer.backend.encode_batch_fast
    try:
        encodings = encode(texts, add_special_tokens=False)
    except (TypeError, UnicodeEncodeError):
        # Lone surrogates, which JSON can smuggle in, are not text: a replacement character each.
        clean = [
            text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts
        ]
        encodings = encode(clean, add_special_tokens=False)
    return [encoding.ids for encoding in encodings]
