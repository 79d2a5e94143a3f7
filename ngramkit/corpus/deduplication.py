"""Removal of duplicates and of documents that contain evaluation texts.

    exact    an earlier document has the same text, ignoring white space at the ends
    minhash  also: an earlier document has an estimated Jaccard similarity of 0.8 over runs of five
             words (Broder 1997), computed by rensa

A document takes about 100 bytes of memory, with minhash 1,000.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

from ngramkit.basics.errors import UsageError
from ngramkit.basics.machine import version_of
from ngramkit.corpus.decontamination import EvaluationTexts
from ngramkit.corpus.document import BEGINNING, Corpus, Document, Position, Skipped
from ngramkit.corpus.mixing import Composed, Mixture
from ngramkit.corpus.words import written_words

METHODS = ("exact", "minhash")
NEAR_DUPLICATE_SIMILARITY = 0.8  # the least estimated Jaccard similarity
RUN_WORDS = 5
PERMUTATIONS = 128
MINHASH_SEED = 0
DIGEST_BYTES = 16
DUPLICATES, EVALUATION = "duplicates", "evaluation"


def require_method(dedup: str | None) -> None:
    if dedup not in (None, *METHODS):
        raise UsageError(
            f"unknown dedup {dedup!r}", f"Choose one of {', '.join(METHODS)}.", option="dedup"
        )
    if dedup == "minhash" and find_spec("rensa") is None:
        raise UsageError(
            "cannot use dedup=minhash: it needs the package rensa",
            "Run: pip install 'ngramkit[dedup]'",
            option="dedup",
        )


@dataclass(frozen=True)
class Deduplicated(Composed):
    corpus: Corpus | Mixture
    dedup: str | None = None
    evaluation: EvaluationTexts | None = None
    limit: int | None = None  # documents to keep
    left_out: Counter[str] = field(default_factory=Counter, compare=False)

    def __post_init__(self) -> None:
        require_method(self.dedup)

    @property
    def members(self) -> tuple[Corpus | Mixture]:
        return (self.corpus,)

    @property
    def skipped(self) -> Skipped:
        return self.corpus.skipped

    def record(self) -> dict[str, Any]:
        record = {**self.corpus.record(), **self.selection.record()}
        if self.dedup is not None:
            record["dedup"] = self.dedup
        if self.dedup == "minhash":
            record["rensa"] = version_of("rensa")
        if self.evaluation is not None:
            record["evaluation"] = self.evaluation.record()
        return record

    def documents(self, at: Position = BEGINNING) -> Iterator[Document]:
        deduplicator = self.deduplicator()
        for document in self.corpus.documents():
            text = document.text
            evaluated = self.evaluation is not None and self.evaluation.occur_in(text)
            keeps = deduplicator.keeps(
                evaluated, partial(digest_of_text, text), partial(word_runs, text)
            )
            if keeps and deduplicator.kept > at.kept:
                yield document._replace(end=document.end._replace(kept=deduplicator.kept))
            if deduplicator.full:
                return

    def deduplicator(self) -> Deduplicator:
        self.left_out.clear()
        return Deduplicator(self.dedup, self.limit, self.left_out)


def deduplicate(
    corpus: Corpus | Mixture, dedup: str | None, evaluation: EvaluationTexts | None
) -> Deduplicated:
    """Drop duplicates and evaluation texts; the limit then counts kept documents."""
    limit = corpus.selection.limit
    if isinstance(corpus, Mixture):
        return Deduplicated(replace(corpus, limit=None), dedup, evaluation, limit)
    selection = replace(corpus.selection, limit=None)
    return Deduplicated(replace(corpus, selection=selection), dedup, evaluation, limit)


class Deduplicator:
    """The in-order decision which documents to keep."""

    def __init__(self, dedup: str | None, limit: int | None, left_out: Counter[str]) -> None:
        self.kept = 0
        self._limit = limit
        self._left_out = left_out
        self._seen: set[bytes] | None = None if dedup is None else set()
        self._similar: Any = None
        if dedup == "minhash":
            from rensa import RMinHashDeduplicator

            self._similar = RMinHashDeduplicator(
                threshold=NEAR_DUPLICATE_SIMILARITY,
                num_perm=PERMUTATIONS,
                use_lsh=True,
                seed=MINHASH_SEED,
            )

    @property
    def full(self) -> bool:
        return self.kept == self._limit

    def keeps(
        self, evaluated: bool, digest: Callable[[], bytes], likeness: Callable[[], Any]
    ) -> bool:
        """Decide about the next document; `digest` and `likeness` are called only if needed.

        `likeness` returns its `word_runs` or their sketch.
        """
        is_duplicate = False
        if not evaluated and self._seen is not None:
            is_duplicate = (key := digest()) in self._seen
            self._seen.add(key)
            if self._similar is not None and not is_duplicate:
                name = str(len(self._seen))
                is_duplicate = not self._similar.add_pairs([(name, likeness())])[0]
        if evaluated or is_duplicate:
            self._left_out[EVALUATION if evaluated else DUPLICATES] += 1
            return False
        self.kept += 1
        return True


def digest_of_text(text: str) -> bytes:
    """Return 16 bytes that ignore outer white space."""
    return hashlib.blake2b(
        text.strip().encode("utf-8", "replace"), digest_size=DIGEST_BYTES
    ).digest()


def word_runs(text: str) -> list[str]:
    words = written_words(text)
    return [" ".join(words[i : i + RUN_WORDS]) for i in range(max(len(words) - RUN_WORDS + 1, 1))]


def minhash_sketch(text: str) -> bytes:
    from rensa import RMinHash

    return bytes(
        RMinHash.from_token_sets([word_runs(text)], PERMUTATIONS, MINHASH_SEED)[0].__getstate__()
    )


def parse_sketch(state: bytes) -> Any:
    """Return the rensa.RMinHash of a `minhash_sketch` by the same rensa version."""
    from rensa import RMinHash

    minhash = RMinHash(num_perm=PERMUTATIONS, seed=MINHASH_SEED)
    minhash.__setstate__(state)
    return minhash
