"""The choice of gigatoken, a faster encoder, instead of tokenizers.

Long builds use it while its ids equal those of tokenizers on `hard_texts`, one batch, and the last
document of every batch.
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from ngramkit.basics.machine import Lock
from ngramkit.basics.progress import Reporter
from ngramkit.basics.terminal_text import visible
from ngramkit.corpus.encoding import Ids, PlainEncoder, replace_surrogates

LOG = logging.getLogger("ngramkit")
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


class DifferentError(Exception):
    """gigatoken failed or disagrees with tokenizers."""


class ComparedEncoder:
    """An encoder by gigatoken while that is installed and agrees with the tokenizer `backend`."""

    def __init__(self, backend: Any, reporter: Reporter) -> None:
        self._plain, self._reporter = PlainEncoder(backend), reporter
        self._lock = Lock()
        self._fast: Any = None
        self._is_decided = find_spec("gigatoken") is None
        self._characters = 0

    def encode(self, texts: list[str]) -> Ids:
        with self._lock:
            if self._characters >= GIGATOKEN_AFTER_CHARACTERS and not self._is_decided:
                self._fast, self._is_decided = self._load_gigatoken_if_equal(texts), True
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

    def _load_gigatoken_if_equal(self, texts: list[str]) -> Any:
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


def _encode_fast(fast: Any, texts: list[str]) -> Ids:
    """Encode on this thread; gigatoken releases the GIL."""
    try:
        batch = fast.encode_batch(texts, parallel=False).layout
    except (TypeError, UnicodeEncodeError):
        batch = fast.encode_batch(replace_surrogates(texts), parallel=False).layout
    lengths = np.diff(batch.offsets.data).astype(np.int64)
    tokens = batch.content.data[batch.offsets.data[0] : batch.offsets.data[-1]]
    if len(lengths) != len(texts):
        raise ValueError(f"{len(texts)} documents gave {len(lengths)} encodings")
    return Ids(tokens, lengths)


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
