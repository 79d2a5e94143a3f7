"""Texts to ids: by `tokenizers`, or several times sooner by gigatoken where that gives the same.

gigatoken is used once a build has proven to be a long one and gigatoken has encoded every hard text
(`corpus.hard_texts`), and the documents that the build began with, as `tokenizers` does. At first
every document is encoded by both, later one in a thousand and the last of every batch. The first
difference ends its use, and that batch is encoded anew: nothing before it was behind the last good
comparison. So which of the two encodes is never in what is built, and never in its plan.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import chain
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ngramkit.corpus.hard_texts import hard_texts
from ngramkit.corpus.tokenizer_faults import refuse_fault
from ngramkit.formats.container import Array
from ngramkit.progress import Reporter
from ngramkit.visible import visible

LOG = logging.getLogger("ngramkit")
LONG = 1 << 21  # characters after which a build is worth the proof; they are encoded by both then
FIRST = 1 << 20  # characters behind them that are, too
EVERY = 1000  # afterwards, one document of so many
SHOWN = 40  # characters of a text that differs


class Ids(NamedTuple):
    """Of some texts, one behind the other."""

    tokens: Array  # whole numbers [n]
    lengths: npt.NDArray[np.int64]  # [texts]


class Encoder(Protocol):
    def encode(self, texts: list[str]) -> Ids:
        """Without special tokens of its own. Safe to call from several threads."""


class Plain:
    """A tokenizers.Tokenizer, which decides what is right."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend

    def encode(self, texts: list[str]) -> Ids:
        ids = self.lists(texts)
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        return Ids(np.fromiter(chain.from_iterable(ids), np.uint32, int(lengths.sum())), lengths)

    def lists(self, texts: list[str]) -> list[list[int]]:
        try:
            encodings = self.backend.encode_batch_fast(texts, add_special_tokens=False)
        except (TypeError, UnicodeEncodeError):
            encodings = self.backend.encode_batch_fast(clean(texts), add_special_tokens=False)
        except BaseException as error:
            refuse_fault(error, "the model")
            raise
        return [encoding.ids for encoding in encodings]


class Proven:
    """`plain`, and in long builds gigatoken, unless it encodes something otherwise."""

    def __init__(self, plain: Plain, reporter: Reporter) -> None:
        self._plain, self._reporter = plain, reporter
        self._lock = threading.Lock()
        self._fast: Any = None
        self._tried = False
        self._begun: list[tuple[list[str], Ids]] = []  # what was encoded before it was tried
        self._characters = self._documents = 0

    def encode(self, texts: list[str]) -> Ids:
        with self._lock:
            characters, documents = self._characters, self._documents
            self._characters += sum(map(len, texts))
            self._documents += len(texts)
            if characters >= LONG and not self._tried:
                self._fast, self._tried = self.opened(), True
                self._begun = []
        fast = self._fast
        if fast is None or not texts:
            return self._by_plain(texts)
        compared = list(_compared(documents, len(texts), whole=characters < LONG + FIRST))
        found, fault = tried(fast, self._plain, texts, compared)
        if found is not None:
            return found
        self._fast = None
        LOG.warning("gigatoken %s: what follows is encoded by tokenizers", fault)
        return self._plain.encode(texts)

    def _by_plain(self, texts: list[str]) -> Ids:
        ids = self._plain.encode(texts)
        with self._lock:
            if not self._tried:
                self._begun.append((texts, ids))
        return ids

    def opened(self) -> Any:
        """gigatoken's tokenizer; None where it is not to be used, which is said."""
        from gigatoken import Tokenizer

        try:
            fast = Tokenizer.from_json(self._plain.backend.to_str())
        except Exception as error:
            why = visible(str(error).partition("\n")[0], 200)
            self._reporter.note(f"encoded by tokenizers: gigatoken takes no such tokenizer ({why})")
            return None
        for texts, right in [(list(hard_texts(self._plain.backend)), None), *self._begun]:
            found, fault = tried(fast, self._plain, texts, range(len(texts)), right)
            if found is None:
                self._reporter.note(f"encoded by tokenizers: gigatoken {fault}")
                return None
        self._reporter.note("encoded by gigatoken, compared with tokenizers as it goes")
        return fast


def open_encoder(backend: Any, reporter: Reporter) -> Encoder:
    """For a tokenizers.Tokenizer."""
    plain = Plain(backend)
    return plain if find_spec("gigatoken") is None else Proven(plain, reporter)


def tried(
    fast: Any, plain: Plain, texts: list[str], compared: Sequence[int], right: Ids | None = None
) -> tuple[Ids | None, str]:
    """gigatoken's ids, if the texts of those numbers are right; else why not. `right`: what `plain`
    makes of all texts, where that is known."""
    try:
        found = quick(fast, texts)
        if right is None:
            wanted: Sequence[Any] = plain.lists([texts[number] for number in compared])
        else:
            each = np.split(right.tokens, np.cumsum(right.lengths)[:-1])
            wanted = [each[number] for number in compared]
        fault = difference(plain, texts, found, dict(zip(compared, wanted, strict=True)))
    except Exception as error:
        found, fault = None, f"fails ({type(error).__name__}: {visible(error, 200)})"
    return (None if fault else found), fault


def quick(fast: Any, texts: list[str]) -> Ids:
    """By gigatoken, on the calling thread: it lets the GIL go."""
    try:
        found = fast.encode_batch(texts, parallel=False).layout
    except (TypeError, UnicodeEncodeError):
        found = fast.encode_batch(clean(texts), parallel=False).layout
    lengths = np.diff(found.offsets.data).astype(np.int64)
    tokens = found.content.data[found.offsets.data[0] : found.offsets.data[-1]]
    if len(lengths) != len(texts):
        raise ValueError(f"{len(lengths)} documents came of {len(texts)}")
    return Ids(tokens, lengths)


def _compared(begin: int, count: int, *, whole: bool) -> Iterator[int]:
    """Which of a batch's documents, the first of which is the `begin`th of all, are compared."""
    for number in range(count):
        if whole or (begin + number) % EVERY == 0 or number == count - 1:
            yield number


def difference(
    plain: Plain, texts: Sequence[str], found: Ids, right: Mapping[int, Sequence[int]]
) -> str:
    """The first of `texts` whose ids in `found` are not those in `right`, by the text's number, in
    words; else ''."""
    ends = np.cumsum(found.lengths)
    for number, ids in right.items():
        own = found.tokens[ends[number] - found.lengths[number] : ends[number]]
        if len(own) != len(ids) or not np.array_equal(own, ids):
            same = next(
                (i for i, (a, b) in enumerate(zip(own, ids, strict=False)) if a != b),
                min(len(own), len(ids)),
            )
            at = max(len(plain.backend.decode(ids[:same], skip_special_tokens=False)) - 8, 0)
            return f"encodes {visible(texts[number][at : at + SHOWN])!r} otherwise"
    return ""


def clean(texts: list[str]) -> list[str]:
    """Lone surrogates, which JSON can smuggle in, are not text: a replacement character each."""
    return [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts]
