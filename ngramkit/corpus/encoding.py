"""Encoding of documents to token ids, in ordered batches, on every core."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ngramkit.basics.thread_counts import build_threads
from ngramkit.corpus.document import Document
from ngramkit.corpus.tokenizer import refuse_fault
from ngramkit.formats.artifact import token_dtype
from ngramkit.formats.safetensors import Array

BATCH_CHARACTERS = 1 << 20
BATCH_DOCUMENTS = 4096
# An encoding takes over 100 bytes per token, so longer documents are encoded in pieces, cut after a
# line end if there is one. Ids at a cut may differ from those of the whole document.
PIECE_CHARACTERS = 1 << 22
ENCODER_THREADS = 2  # one packs while the other encodes
MAX_PENDING_BATCHES = 4  # batches encoded ahead of the consumer


class EncodedBatch(NamedTuple):
    documents: Sequence[Document]
    tokens: Array  # uint16 | uint32 [n]
    lengths: npt.NDArray[np.int64]  # [documents], in tokens


# used: this process encodes on all cores; lost: it was forked from one that did.
_cores = {"used": False, "lost": False}


def use_cores(workers: int | None) -> None:
    """Set the number of encoding threads (None: every core), before the first encoding."""
    _cores["used"] = True
    os.environ["TOKENIZERS_PARALLELISM"] = "false" if _cores["lost"] else "true"
    if workers is not None:
        os.environ["RAYON_NUM_THREADS"] = str(build_threads(workers))


def _lose_cores() -> None:
    """Use one thread in a forked child, where tokenizers' threads do not exist."""
    if _cores["used"]:
        _cores["lost"] = True
        os.environ["TOKENIZERS_PARALLELISM"] = "false"


os.register_at_fork(after_in_child=_lose_cores)


def encode_documents(
    documents: Iterator[Document], encoder: Encoder, vocabulary: int, ending: int | None
) -> Iterator[EncodedBatch]:
    """Yield batches in order, working ahead; append `ending`, unless None, to documents."""
    dtype = token_dtype(vocabulary)
    pending: deque[Future[EncodedBatch]] = deque()
    with ThreadPoolExecutor(ENCODER_THREADS) as pool:
        try:
            batch, characters = [], 0
            for document in documents:
                batch.append(document)
                characters += len(document.text)
                if characters < BATCH_CHARACTERS and len(batch) < BATCH_DOCUMENTS:
                    continue
                pending.append(pool.submit(encode_and_end_documents, encoder, batch, dtype, ending))
                batch, characters = [], 0
                if len(pending) > MAX_PENDING_BATCHES:
                    yield pending.popleft().result()
            if batch:
                pending.append(pool.submit(encode_and_end_documents, encoder, batch, dtype, ending))
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def encode_and_end_documents(
    encoder: Encoder, documents: Sequence[Document], dtype: np.dtype[Any], ending: int | None
) -> EncodedBatch:
    texts = [document.text for document in documents]
    if max(map(len, texts)) <= PIECE_CHARACTERS:
        ids = encoder.encode(texts)
    else:
        ids = _encode_in_pieces(encoder, texts, dtype)
    if ending is None:
        return EncodedBatch(documents, ids.tokens.astype(dtype), ids.lengths)
    tokens = np.full(len(ids.tokens) + len(texts), ending, dtype)
    endings = np.cumsum(ids.lengths + 1) - 1
    is_text = np.ones(len(tokens), bool)
    is_text[endings] = False
    tokens[is_text] = ids.tokens
    return EncodedBatch(documents, tokens, ids.lengths + 1)


def _encode_in_pieces(encoder: Encoder, texts: Sequence[str], dtype: np.dtype[Any]) -> Ids:
    """Encode piece by piece to bound memory."""
    pieces: list[Array] = []
    lengths = np.zeros(len(texts), np.int64)
    for number, text in enumerate(texts):
        begin = 0
        while begin < len(text):
            end = begin + PIECE_CHARACTERS
            if end < len(text):
                end = (text.rfind("\n", begin, end) + 1) or end
            pieces.append(encoder.encode([text[begin:end]]).tokens.astype(dtype))
            lengths[number] += len(pieces[-1])
            begin = end
    return Ids(np.concatenate(pieces), lengths)


# Encoders.


class Ids(NamedTuple):
    tokens: Array  # integers [n]
    lengths: npt.NDArray[np.int64]  # [texts]


class Encoder(Protocol):
    def encode(self, texts: list[str]) -> Ids:
        """Encode without special tokens. Thread-safe."""


@dataclass(frozen=True)
class PlainEncoder:
    """The reference encoder, a tokenizers.Tokenizer."""

    backend: Any

    def encode(self, texts: list[str]) -> Ids:
        try:
            encodings = self.backend.encode_batch_fast(texts, add_special_tokens=False)
        except (TypeError, UnicodeEncodeError):
            encodings = self.backend.encode_batch_fast(
                replace_surrogates(texts), add_special_tokens=False
            )
        except BaseException as error:
            refuse_fault(error, "the model")
            raise
        ids = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        return Ids(np.fromiter(chain.from_iterable(ids), np.uint32, int(lengths.sum())), lengths)


def replace_surrogates(texts: list[str]) -> list[str]:
    """Replace lone surrogates by U+FFFD."""
    return [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts]
