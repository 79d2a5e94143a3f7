"""Texts of evaluation sets, and which documents hold one: what is built from those flatters itself.

A document holds a text where at least half of the text's n-grams of WORDS words stand in it; a
text of fewer words, but at least LEAST, where it stands in the document whole. Words are compared
without case and punctuation. Shorter texts are in too many documents to mean anything.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.corpus.unpacking import SUFFIXES, open_lines
from ngramkit.errors import InputError, NgramkitError, reason
from ngramkit.formats.container import Array
from ngramkit.untrusted import parse_json

WORDS = 13  # as in Brown et al. 2020 (arXiv:2005.14165), appendix C
LEAST = 6
SPOKEN = re.compile(r"\w+")
# What is said of a question, not in it: names, numbers, categories.
SAID_OF_IT = {"id", "question_id", "task_id", "category", "model", "model_id", "answer_id", "name"}
BASE = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class EvaluationTexts:
    """The texts of some files, each once, in order."""

    texts: tuple[str, ...]

    def record(self) -> dict[str, Any]:
        """JSON for the manifest: which texts, but not what they say."""
        digest = hashlib.sha256("\0".join(self.texts).encode("utf-8", "replace"))
        return {"texts": len(self.texts), "sha256": digest.hexdigest()}

    def stand_in(self, document: str) -> bool:
        """Whether the document holds one of them."""
        words = np.array([self._known.get(w, 0) for w in _words(document)], np.uint64)
        # Whatever holds an n-gram of a text holds LEAST words of it in a row; most hold none.
        if not _any_in(_grams(words, LEAST), self._in_a_row):
            return False
        return any(self._held(words, length) for length in self._by_length)

    def _held(self, words: Array, length: int) -> bool:
        keys, owners, needed = self._by_length[length]
        found = np.unique(_grams(words, length))
        low = np.searchsorted(keys, found)
        high = np.searchsorted(keys, found, side="right")
        hits = np.zeros(len(needed), np.int64)
        there = low < high
        for begin, end in zip(low[there], high[there], strict=True):
            hits[owners[begin:end]] += 1  # each text has an n-gram once
        return bool(np.any(hits >= needed))

    @cached_property
    def _known(self) -> dict[str, int]:
        """A number from 1 on for every word of the texts."""
        found: dict[str, int] = {}
        for text in self.texts:
            for word in _words(text):
                found.setdefault(word, len(found) + 1)
        return found

    @cached_property
    def _in_a_row(self) -> Array:
        """Hashes of every LEAST words in a row of the texts, in order (u64)."""
        spoken = (np.array([self._known[w] for w in _words(t)], np.uint64) for t in self.texts)
        none = np.empty(0, np.uint64)
        return np.unique(np.concatenate([none, *(_grams(words, LEAST) for words in spoken)]))

    @cached_property
    def _by_length(self) -> dict[int, tuple[Array, Array, Array]]:
        """Per length of n-grams: their hashes in order (u64), the text of each, and how many
        different ones of each text a document must hold."""
        spoken = [[self._known[word] for word in _words(text)] for text in self.texts]
        found = {}
        for length in sorted({min(len(words), WORDS) for words in spoken}):
            if length < LEAST:
                continue
            grams = [
                np.unique(_grams(np.array(words, np.uint64), length))
                for words in spoken
                if min(len(words), WORDS) == length
            ]
            sizes = np.array([len(each) for each in grams])
            keys, owners = np.concatenate(grams), np.repeat(np.arange(len(grams)), sizes)
            order = np.argsort(keys, kind="stable")
            found[length] = keys[order], owners[order], (sizes + 1) // 2
        return found


def _words(text: str) -> list[str]:
    return SPOKEN.findall(text.casefold())


def _grams(words: Array, length: int) -> Array:
    """uint64, a hash of every `length` words in a row that are all known (not 0)."""
    count = len(words) - length + 1
    if count < 1:
        return np.empty(0, np.uint64)
    keys, known = np.zeros(count, np.uint64), np.ones(count, bool)
    for i in range(length):
        part = words[i : i + count]
        keys = (keys ^ part) * BASE
        keys ^= keys >> np.uint64(29)
        known &= part != 0
    return keys[known]


def _any_in(keys: Array, known: Array) -> bool:
    """Whether one of `keys` is in `known`, which is sorted; both u64."""
    if not len(known):
        return False
    places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return bool(np.any(known[places] == keys))


def is_evaluation(path: Path) -> bool:
    """Whether a file's name says that it is an evaluation set."""
    suffix = path.with_suffix("").suffix if path.suffix in SUFFIXES else path.suffix
    return suffix == ".jsonl"


def read_evaluation_texts(paths: Iterable[Path]) -> EvaluationTexts | None:
    """Every text of LEAST words or more in these .jsonl files (.gz and .zst too), whatever its key.

    None of no files. Raises InputError where a file cannot be read, a line is no JSON, or a file
    has no such text.
    """
    found: dict[str, None] = {}
    for path in paths:
        texts = [text for body in _lines(path) for text in _texts(body)]
        long = [text for text in texts if len(_words(text)) >= LEAST]
        if not long:
            raise InputError(
                f"{path} holds no text of {LEAST} words or more", "check the path", option="exclude"
            )
        found |= dict.fromkeys(long)
    return EvaluationTexts(tuple(found)) if found else None


def _lines(path: Path) -> Iterator[Any]:
    try:
        for number, line in open_lines(path, path.suffix.lower()):
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
            if key not in SAID_OF_IT:
                yield from _texts(value)
    elif isinstance(body, Sequence):
        for value in body:
            yield from _texts(value)
