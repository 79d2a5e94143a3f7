"""Texts of evaluation sets, and the documents that contain one.

An artifact built from such documents would look better than it is. A document contains a text if
it has at least half of the text's n-grams of WORDS words; for a text of fewer words, but at least
LEAST, if it has all of them in a row. Words are compared without case and punctuation; of Chinese,
Japanese and other scripts without spaces, characters are (`corpus.words`). Shorter texts are
ignored and counted: too many documents contain them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.basics.errors import InputError, NgramkitError, reason
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.terminal_text import many
from ngramkit.basics.untrusted import parse_json
from ngramkit.corpus.files import reader_suffix
from ngramkit.corpus.unpacking import open_lines
from ngramkit.corpus.words import CHARACTER, amount, spoken_words
from ngramkit.formats.safetensors import Array

WORDS = 13  # as in Brown et al. 2020 (arXiv:2005.14165), appendix C
LEAST = 6
# Keys of a question's metadata: names, numbers, categories.
METADATA = {"id", "question_id", "task_id", "category", "model", "model_id", "answer_id", "name"}
BASE = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class EvaluationTexts:
    """The texts of evaluation files, each once, in order."""

    texts: tuple[str, ...]

    def record(self) -> dict[str, Any]:
        """Return JSON for the manifest, which identifies the texts without holding them."""
        digest = hashlib.sha256("\0".join(self.texts).encode("utf-8", "replace"))
        record = {"texts": len(self.texts), "sha256": digest.hexdigest()}
        # They were words of their own before, so other documents were left out.
        return {**record, "characters": True} if any(map(CHARACTER.search, self.texts)) else record

    def occur_in(self, document: str) -> bool:
        """Return whether the document contains one of the texts."""
        words = np.array([self._word_ids.get(w, 0) for w in spoken_words(document)], np.uint64)
        # A document with an n-gram of a text has LEAST of its words in a row; most have none.
        if not _any_in(_grams(words, LEAST), self._in_a_row):
            return False
        for length, (keys, owners, needed) in self._by_length.items():
            grams = np.unique(_grams(words, length))
            low = np.searchsorted(keys, grams)
            high = np.searchsorted(keys, grams, side="right")
            hits = np.zeros(len(needed), np.int64)
            common = low < high
            for begin, end in zip(low[common], high[common], strict=True):
                hits[owners[begin:end]] += 1  # each text has an n-gram once
            if np.any(hits >= needed):
                return True
        return False

    @cached_property
    def _word_ids(self) -> dict[str, int]:
        """{word: id} from 1 on, for every word of the texts."""
        words = dict.fromkeys(word for text in self.texts for word in spoken_words(text))
        return {word: number for number, word in enumerate(words, 1)}

    @cached_property
    def _ids(self) -> list[Array]:
        """The words of every text by their ids, uint64."""
        return [
            np.array([self._word_ids[w] for w in spoken_words(text)], np.uint64)
            for text in self.texts
        ]

    @cached_property
    def _in_a_row(self) -> Array:
        """The hashes of every LEAST words in a row of the texts, uint64, sorted."""
        none = np.empty(0, np.uint64)
        return np.unique(np.concatenate([none, *(_grams(words, LEAST) for words in self._ids)]))

    @cached_property
    def _by_length(self) -> dict[int, tuple[Array, Array, Array]]:
        """The n-grams of each length: their hashes (uint64, sorted), the text of each, and how many
        different ones of each text a document must have."""
        tables = {}
        for length in range(LEAST, WORDS + 1):
            texts = [words for words in self._ids if min(len(words), WORDS) == length]
            if not texts:
                continue
            grams = [np.unique(_grams(words, length)) for words in texts]
            sizes = np.array([len(each) for each in grams])
            keys, owners = np.concatenate(grams), np.repeat(np.arange(len(grams)), sizes)
            order = np.argsort(keys, kind="stable")
            tables[length] = keys[order], owners[order], (sizes + 1) // 2
        return tables


def _grams(words: Array, length: int) -> Array:
    """Return uint64: a hash of every `length` words in a row that are all known (not 0)."""
    count = len(words) - length + 1
    if count < 1:
        return np.empty(0, np.uint64)
    keys, is_known = np.zeros(count, np.uint64), np.ones(count, bool)
    for i in range(length):
        part = words[i : i + count]
        keys = (keys ^ part) * BASE
        keys ^= keys >> np.uint64(29)
        is_known &= part != 0
    return keys[is_known]


def _any_in(keys: Array, table: Array) -> bool:
    """Return whether one of `keys` is in `table`, which is sorted; both uint64."""
    if not len(table):
        return False
    places = np.minimum(np.searchsorted(table, keys), len(table) - 1)
    return bool(np.any(table[places] == keys))


def is_evaluation(path: Path) -> bool:
    """Return whether a file is an evaluation set by its name."""
    return reader_suffix(path) == ".jsonl"


def read_evaluation_texts(
    paths: Iterable[Path], reporter: Reporter = SILENT
) -> EvaluationTexts | None:
    """Read every text of LEAST words or more in these .jsonl files (.gz and .zst too), of any key.

    Return None for no files; report how many texts are too short. Raises InputError where a file
    cannot be read, a line is no JSON, or a file has no such text.
    """
    distinct: dict[str, None] = {}
    for path in paths:
        texts = dict.fromkeys(text for body in _lines(path) for text in _texts(body))
        long = [text for text in texts if amount(spoken_words(text)) >= LEAST]
        if not long:
            raise InputError(
                f"{path} has no text of {LEAST} words or more", "check the path", option="exclude"
            )
        if ignored := len(texts) - len(long):
            what = f"{ignored:,} of its {many(len(texts), 'text')}"
            reporter.note(f"{path}: ignoring {what}, shorter than {LEAST} words")
        distinct |= dict.fromkeys(long)
    return EvaluationTexts(tuple(distinct)) if distinct else None


def _lines(path: Path) -> Iterator[Any]:
    try:
        for number, line in open_lines(path):
            yield parse_json(line.decode("utf-8", "replace"), f"{path}, line {number}")
    except NgramkitError:
        raise
    except (OSError, EOFError, ValueError) as error:
        raise InputError(
            f"the evaluation set {path} cannot be read: {reason(error)}",
            "check the path",
            option="exclude",
        ) from error


def _texts(body: Any) -> Iterator[str]:
    if isinstance(body, str):
        yield body
    elif isinstance(body, dict):
        for key, value in body.items():
            if key not in METADATA:
                yield from _texts(value)
    elif isinstance(body, Sequence):
        for value in body:
            yield from _texts(value)
