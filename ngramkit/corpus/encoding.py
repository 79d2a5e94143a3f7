"""Encoding of documents to token ids, in ordered batches, on every core.

Long builds use gigatoken, which is faster, while its ids equal those of tokenizers on `hard_texts`,
one batch, and the last document of every batch.
"""

from __future__ import annotations

import logging
import os
import unicodedata
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from itertools import chain
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ngramkit.basics.machine import Lock, threads
from ngramkit.basics.progress import Reporter
from ngramkit.basics.terminal_text import visible
from ngramkit.corpus.document import Document
from ngramkit.corpus.tokenizer import refuse_fault
from ngramkit.formats.artifact import token_dtype
from ngramkit.formats.safetensors import Array

LOG = logging.getLogger("ngramkit")
BATCH_CHARACTERS = 1 << 20
BATCH_DOCUMENTS = 4096
# An encoding takes over 100 bytes per token, so longer documents are encoded in pieces, cut after a
# line end if there is one. Ids at a cut may differ from those of the whole document.
PIECE_CHARACTERS = 1 << 22
ENCODER_THREADS = 2  # one packs while the other encodes
MAX_PENDING_BATCHES = 4  # batches encoded ahead of the consumer
GIGATOKEN_AFTER_CHARACTERS = 1 << 21
# Parts of `hard_texts`.
CODE_POINTS = (*range(0x20000), *range(0x20000, 0x110000, 251))  # planes 0 and 1, others sparsely
LINE_CHARACTERS = 64
MAX_ADDED_TOKENS = 400
WORDS = (
    "a", "word", "Word", "naïve", "x1", "1000", "don't", "...", "=>", "def f(x):", "漢字", "и",
    "ملف",
)  # fmt: skip
SPACES = (
    " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", " \n", "\n ", "\u00a0", "\u3000", "\u200b",
)  # fmt: skip
REPEATED = ("a", "ab", "Z9", "é", "漢", "🙂", "-", "0")
ODD = (
    "", "\x00", "a\x00b", "\ufeff", "\ufffd\ufffd", "e\u0301\u0323o\u0308", "\u1100\u1161\u11a8",
    "\u0300\u0301\u0302", "a" + "\u0301" * 300, "क्षि", "ﷺ", "ﬁ", "Å Å Å", "ſt", "İi̇ıI",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f3f3\ufe0f\u200d\U0001f308\U0001f3f3",
    "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7\U0001f1ec", "1\ufe0f\u20e3", "\U0001f44d\U0001f3fd",
    "\u202eabc\u202c", "a\u200db", b"\xff\xfe\x80abc\xc3".decode("utf-8", "replace"),
    "I'm you're he'll we'd they've it's 'tis O'Neil's I'M", "http://a.b/c?d=e&f#g",
    "a_b-c.d,e;f:g", "1,234,567.89 12345678901234567890 3.14e-10 0x1F",
    "$100 €5 ±3 ½ ² ₂ Ⅷ ①", "<|x|> <s> </s> [INST] <unk>", "▁▁ ▁a a▁b", "Ġa Ċ",
)  # fmt: skip


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
        os.environ["RAYON_NUM_THREADS"] = str(threads(workers))


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
            for batch in _batches(documents):
                pending.append(pool.submit(encode_batch, encoder, batch, dtype, ending))
                if len(pending) > MAX_PENDING_BATCHES:
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


class PlainEncoder:
    """The reference encoder, a tokenizers.Tokenizer."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend

    def encode(self, texts: list[str]) -> Ids:
        try:
            encodings = self.backend.encode_batch_fast(texts, add_special_tokens=False)
        except (TypeError, UnicodeEncodeError):
            encodings = self.backend.encode_batch_fast(_clean(texts), add_special_tokens=False)
        except BaseException as error:
            refuse_fault(error, "the model")
            raise
        ids = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        return Ids(np.fromiter(chain.from_iterable(ids), np.uint32, int(lengths.sum())), lengths)


class DifferentError(Exception):
    """gigatoken failed or disagrees with tokenizers."""


class ComparedEncoder:
    """An encoder by gigatoken while it agrees with `plain`."""

    def __init__(self, plain: PlainEncoder, reporter: Reporter) -> None:
        self._plain, self._reporter = plain, reporter
        self._lock = Lock()
        self._fast: Any = None
        self._is_decided = False
        self._characters = 0

    def encode(self, texts: list[str]) -> Ids:
        with self._lock:
            if self._characters >= GIGATOKEN_AFTER_CHARACTERS and not self._is_decided:
                self._fast, self._is_decided = self._open_gigatoken(texts), True
            self._characters += sum(map(len, texts))
            fast = self._fast
        if fast is None or not texts:
            return self._plain.encode(texts)
        try:
            return self._encode_compared(fast, texts, [len(texts) - 1])
        except DifferentError as error:
            self._fast = None
            LOG.warning("gigatoken %s: continuing with tokenizers", error)
            return self._plain.encode(texts)

    def _open_gigatoken(self, texts: list[str]) -> Any:
        """Return None if gigatoken cannot load or disagrees."""
        from gigatoken import Tokenizer

        try:
            fast = Tokenizer.from_json(self._plain.backend.to_str())
        except Exception as error:
            why = visible(str(error).partition("\n")[0], 200)
            self._reporter.note(
                f"encoding with tokenizers: gigatoken cannot load this tokenizer ({why})"
            )
            return None
        try:
            for tried in (list(hard_texts(self._plain.backend)), texts):
                self._encode_compared(fast, tried, range(len(tried)))
        except DifferentError as error:
            self._reporter.note(f"encoding with tokenizers: gigatoken {error}")
            return None
        self._reporter.note("encoding with gigatoken, checked against tokenizers")
        return fast

    def _encode_compared(self, fast: Any, texts: list[str], compared: Sequence[int]) -> Ids:
        """Raise DifferentError if gigatoken fails or differs on the texts `compared`."""
        try:
            ids = _encode_fast(fast, texts)
        except Exception as error:
            why = f"fails ({type(error).__name__}: {visible(error, 200)})"
            raise DifferentError(why) from error
        right = self._plain.encode([texts[number] for number in compared])
        ends, right_ends = np.cumsum(ids.lengths), np.cumsum(right.lengths)
        for place, number in enumerate(compared):
            own = ids.tokens[ends[number] - ids.lengths[number] : ends[number]]
            wanted = right.tokens[right_ends[place] - right.lengths[place] : right_ends[place]]
            if not np.array_equal(own, wanted):
                raise DifferentError(f"encodes {visible(texts[number][:40])!r} differently")
        return ids


def open_encoder(backend: Any, reporter: Reporter) -> Encoder:
    plain = PlainEncoder(backend)
    return plain if find_spec("gigatoken") is None else ComparedEncoder(plain, reporter)


def _encode_fast(fast: Any, texts: list[str]) -> Ids:
    """Encode on this thread; gigatoken releases the GIL."""
    try:
        batch = fast.encode_batch(texts, parallel=False).layout
    except (TypeError, UnicodeEncodeError):
        batch = fast.encode_batch(_clean(texts), parallel=False).layout
    lengths = np.diff(batch.offsets.data).astype(np.int64)
    tokens = batch.content.data[batch.offsets.data[0] : batch.offsets.data[-1]]
    if len(lengths) != len(texts):
        raise ValueError(f"{len(texts)} documents gave {len(lengths)} encodings")
    return Ids(tokens, lengths)


def _clean(texts: list[str]) -> list[str]:
    """Replace lone surrogates by U+FFFD."""
    return [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts]


def hard_texts(backend: Any) -> Iterator[str]:
    """Yield texts on which tokenizers tend to differ."""
    yield from ODD
    characters = map(chr, CODE_POINTS)
    assigned = [c for c in characters if unicodedata.category(c) not in ("Cn", "Cs")]
    for begin in range(0, len(assigned), LINE_CHARACTERS):
        line = assigned[begin : begin + LINE_CHARACTERS]
        yield "".join(line)
        yield " ".join(line)
        yield "".join(f"a{c}1{c}" for c in line)
        yield "\n".join(line)
    for space in SPACES:
        yield space.join(WORDS)
        yield space.join(("", *WORDS, ""))
        yield from (space * n for n in (1, 2, 3, 4, 7, 8, 15, 16, 17, 63, 64, 257, 5000))
        yield from (f"a{space * n}b" for n in (1, 2, 3, 5, 40))
    yield from (word * n for word in REPEATED for n in (50, 3000))
    added = sorted(token.content for token in backend.get_added_tokens_decoder().values())
    for token in added[:MAX_ADDED_TOKENS]:
        yield from (
            token,
            f" {token} ",
            f"a{token}b",
            token * 2,
            f"\n{token}\n",
            f"{token}{token[:-1]}",
        )
