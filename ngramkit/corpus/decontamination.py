"""Detection of documents that contain texts of evaluation sets.

A document contains a text if it has at least half of the text's 13-grams of words; for a text of 6
to 12 words, all in a row. Shorter texts are ignored: too many documents contain them.
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
from ngramkit.basics.terminal_text import counted
from ngramkit.basics.untrusted import parse_json
from ngramkit.corpus.files import reader_suffix
from ngramkit.corpus.unpacking import open_lines
from ngramkit.corpus.words import CHARACTER, count_words, spoken_words
from ngramkit.formats.safetensors import Array

MAX_GRAM_WORDS = 13  # as in Brown et al. 2020 (arXiv:2005.14165), appendix C
MIN_GRAM_WORDS = 6
MIN_SHARE_OF_GRAMS = 0.5  # of a text's n-grams, in a document that is left out
METADATA_KEYS = {
    "id", "question_id", "task_id", "category", "model", "model_id", "answer_id", "name",
}  # fmt: skip
HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class EvaluationTexts:
    texts: tuple[str, ...]

    def record(self) -> dict[str, Any]:
        digest = hashlib.sha256("\0".join(self.texts).encode("utf-8", "replace"))
        record = {"texts": len(self.texts), "sha256": digest.hexdigest()}
        # Older versions did not split these scripts, so they dropped other documents.
        return {**record, "characters": True} if any(map(CHARACTER.search, self.texts)) else record

    def occur_in(self, document: str) -> bool:
        words = np.array([self._word_ids.get(w, 0) for w in spoken_words(document)], np.uint64)
        # Every n-gram contains a shortest one; most documents have none and are done here.
        if not _any_in(_hash_runs(words, MIN_GRAM_WORDS), self._shortest_grams):
            return False
        for length, (keys, owners, needed) in self._by_length.items():
            grams = np.unique(_hash_runs(words, length))
            low = np.searchsorted(keys, grams)
            high = np.searchsorted(keys, grams, side="right")
            hits = np.zeros(len(needed), np.int64)
            common = low < high
            for begin, end in zip(low[common], high[common], strict=True):
                hits[owners[begin:end]] += 1  # n-grams are distinct within a text
            if np.any(hits >= needed):
                return True
        return False

    @cached_property
    def _word_ids(self) -> dict[str, int]:
        """Ids from 1; 0 is an unknown word."""
        words = dict.fromkeys(word for text in self.texts for word in spoken_words(text))
        return {word: number for number, word in enumerate(words, 1)}

    @cached_property
    def _ids(self) -> list[Array]:
        """Word ids, uint64[n]."""
        return [
            np.array([self._word_ids[w] for w in spoken_words(text)], np.uint64)
            for text in self.texts
        ]

    @cached_property
    def _shortest_grams(self) -> Array:
        """Sorted hashes, uint64[n]."""
        none = np.empty(0, np.uint64)
        return np.unique(
            np.concatenate([none, *(_hash_runs(words, MIN_GRAM_WORDS) for words in self._ids)])
        )

    @cached_property
    def _by_length(self) -> dict[int, tuple[Array, Array, Array]]:
        """By n-gram length: sorted hashes uint64[n], texts int64[n], needed hits int64[texts]."""
        tables = {}
        for length in range(MIN_GRAM_WORDS, MAX_GRAM_WORDS + 1):
            texts = [words for words in self._ids if min(len(words), MAX_GRAM_WORDS) == length]
            if not texts:
                continue
            grams = [np.unique(_hash_runs(words, length)) for words in texts]
            sizes = np.array([len(each) for each in grams])
            keys, owners = np.concatenate(grams), np.repeat(np.arange(len(grams)), sizes)
            order = np.argsort(keys, kind="stable")
            needed = np.ceil(sizes * MIN_SHARE_OF_GRAMS).astype(np.int64)
            tables[length] = keys[order], owners[order], needed
        return tables


def _hash_runs(words: Array, length: int) -> Array:
    """Hash all runs of `length` known words: uint64[n]."""
    count = len(words) - length + 1
    if count < 1:
        return np.empty(0, np.uint64)
    keys, is_known = np.zeros(count, np.uint64), np.ones(count, bool)
    for i in range(length):
        part = words[i : i + count]
        keys = (keys ^ part) * HASH_FACTOR
        keys ^= keys >> np.uint64(29)
        is_known &= part != 0
    return keys[is_known]


def _any_in(keys: Array, table: Array) -> bool:
    """Search `keys` in the sorted `table`."""
    if not len(table):
        return False
    places = np.minimum(np.searchsorted(table, keys), len(table) - 1)
    return bool(np.any(table[places] == keys))


def is_evaluation(path: Path) -> bool:
    return reader_suffix(path) == ".jsonl"


def read_evaluation_texts(paths: Iterable[Path], reporter: Reporter = SILENT) -> EvaluationTexts:
    """Read the texts under any key of .jsonl files (.gz and .zst too).

    Raises InputError for an invalid file, or one without a text of MIN_GRAM_WORDS words.
    """
    distinct: dict[str, None] = {}
    for path in paths:
        texts = dict.fromkeys(text for body in _read_lines(path) for text in _texts_of(body))
        long = [text for text in texts if count_words(spoken_words(text)) >= MIN_GRAM_WORDS]
        if not long:
            raise InputError(
                f"cannot use {path}: all its texts have fewer than {MIN_GRAM_WORDS} words",
                "Check the path.",
                option="exclude",
            )
        if ignored := len(texts) - len(long):
            what = f"{ignored:,} of its {counted(len(texts), 'text')}"
            reporter.note(f"{path}: ignoring {what}, shorter than {MIN_GRAM_WORDS} words")
        distinct |= dict.fromkeys(long)
    return EvaluationTexts(tuple(distinct))


def _read_lines(path: Path) -> Iterator[Any]:
    try:
        for number, line in open_lines(path):
            yield parse_json(line.decode("utf-8", "replace"), f"{path}, line {number}")
    except NgramkitError:
        raise
    except (OSError, EOFError, ValueError) as error:
        raise InputError(
            f"cannot read the evaluation set {path}: {reason(error)}",
            "Check the path.",
            option="exclude",
        ) from error


def _texts_of(body: Any) -> Iterator[str]:
    if isinstance(body, str):
        yield body
    elif isinstance(body, dict):
        for key, value in body.items():
            if key not in METADATA_KEYS:
                yield from _texts_of(value)
    elif isinstance(body, Sequence):
        for value in body:
            yield from _texts_of(value)
