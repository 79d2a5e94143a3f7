"""A corpus without duplicate documents, and without documents that hold texts of evaluation sets.

    exact    a document is a duplicate if an earlier one has the same text, but for white space at
             its ends
    minhash  also if it shares most of its runs of WORDS words with an earlier one: an estimated
             Jaccard similarity of SIMILAR (Broder 1997), by rensa

Which documents are left out depends on all that come before, so one process decides in order
(`Deduplicator`); a build that was killed decides anew from the beginning, but encodes only what is
missing. Digests and sketches, by which it decides, depend on one document each. It takes about 100
bytes of memory for each document, with minhash 1,000.
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
from ngramkit.corpus.document import Corpus, Document, Position, Skipped
from ngramkit.corpus.mixing import Composed, Mixture
from ngramkit.corpus.words import written_words

METHODS = ("exact", "minhash")
SIMILAR = 0.8
WORDS = 5
PERMUTATIONS = 128
SEED = 0
DIGEST = 16  # bytes
DUPLICATES, EVALUATION = "duplicates", "evaluation"


@dataclass(frozen=True)
class Deduplicated(Composed):
    """A corpus without duplicates and evaluation texts, for builders."""

    corpus: Corpus | Mixture
    dedup: str | None = None
    evaluation: EvaluationTexts | None = None
    limit: int | None = None  # of documents that are kept
    left_out: Counter[str] = field(default_factory=Counter, compare=False)

    def __post_init__(self) -> None:
        if self.dedup not in (None, *METHODS):
            raise UsageError(
                f"dedup is {self.dedup!r}", f"one of {', '.join(METHODS)}", option="dedup"
            )
        if self.dedup == "minhash" and find_spec("rensa") is None:
            raise UsageError(
                "dedup=minhash needs rensa", "pip install 'ngramkit[dedup]'", option="dedup"
            )

    @property
    def members(self) -> tuple[Corpus | Mixture]:
        return (self.corpus,)

    @property
    def skipped(self) -> Skipped:
        """The bad records of the corpus that were skipped."""
        return self.corpus.skipped

    def record(self) -> dict[str, Any]:
        """Return JSON for the manifest: the corpus's own, and how documents are left out."""
        record = {**self.corpus.record(), **self.selection.record()}
        if self.dedup is not None:
            record["dedup"] = self.dedup
        if self.dedup == "minhash":
            record["rensa"] = version_of("rensa")
        if self.evaluation is not None:
            record["evaluation"] = self.evaluation.record()
        return record

    def documents(self, start: Position | None = None) -> Iterator[Document]:
        """Yield the documents that are kept, from `start` on; `left_out` counts the others."""
        deduplicator, first = self.deduplicator(), start.kept if start else 0
        for document in self.corpus.documents():
            text = document.text
            evaluated = self.evaluation is not None and self.evaluation.occur_in(text)
            keeps = deduplicator.keeps(evaluated, partial(digest, text), partial(word_runs, text))
            if keeps and deduplicator.kept > first:
                yield document._replace(kept=deduplicator.kept - 1)
            if deduplicator.full:
                return

    def deduplicator(self) -> Deduplicator:
        """Return a deduplicator that has seen no document; `left_out` counts from 0 on."""
        self.left_out.clear()
        return Deduplicator(self.dedup, self.limit, self.left_out)


def deduplicate(
    corpus: Corpus | Mixture, dedup: str | None, evaluation: EvaluationTexts | None
) -> Corpus | Mixture | Deduplicated:
    """Return the corpus without duplicates and evaluation texts; itself where neither is asked for.

    Its limit then counts the documents that are kept.
    """
    if dedup is None and evaluation is None:
        return corpus
    limit = corpus.selection.limit
    if isinstance(corpus, Mixture):
        return Deduplicated(replace(corpus, limit=None), dedup, evaluation, limit)
    selection = replace(corpus.selection, limit=None)
    return Deduplicated(replace(corpus, selection=selection), dedup, evaluation, limit)


class Deduplicator:
    """The decision, document by document in order, which are kept: at most `limit` of them."""

    def __init__(self, dedup: str | None, limit: int | None, left_out: Counter[str]) -> None:
        self.kept = 0
        self._limit = limit
        self._left_out = left_out
        self._seen: set[bytes] | None = None if dedup is None else set()
        self._similar = _minhash_index() if dedup == "minhash" else None

    @property
    def full(self) -> bool:
        """True once `limit` documents are kept."""
        return self.kept == self._limit

    def keeps(
        self, evaluated: bool, digest: Callable[[], bytes], likeness: Callable[[], Any]
    ) -> bool:
        """Return whether the next document is kept.

        `evaluated`: whether it holds a text of an evaluation set. `digest()`, and `likeness()`,
        which returns its `word_runs` or a sketch of them, are called only where they decide.
        """
        if evaluated:
            self._left_out[EVALUATION] += 1
        elif not self._is_new(digest, likeness):
            self._left_out[DUPLICATES] += 1
        else:
            self.kept += 1
            return True
        return False

    def _is_new(self, digest: Callable[[], bytes], likeness: Callable[[], Any]) -> bool:
        if self._seen is None:
            return True
        if (key := digest()) in self._seen:
            return False
        self._seen.add(key)
        if self._similar is None:
            return True
        return bool(self._similar.add_pairs([(str(len(self._seen)), likeness())])[0])


def digest(text: str) -> bytes:
    """Return 16 bytes, the same for texts that differ in white space at their ends alone."""
    return hashlib.blake2b(text.strip().encode("utf-8", "replace"), digest_size=DIGEST).digest()


def word_runs(text: str) -> list[str]:
    """Return the text's runs of WORDS words, by which texts are similar."""
    words = written_words(text)
    return [" ".join(words[i : i + WORDS]) for i in range(max(len(words) - WORDS + 1, 1))]


def sketch(text: str) -> bytes:
    """Return the MinHash of the text's runs, as bytes that `parse_sketch` reads."""
    from rensa import RMinHash

    return bytes(RMinHash.from_token_sets([word_runs(text)], PERMUTATIONS, SEED)[0].__getstate__())


def parse_sketch(state: bytes) -> Any:
    """Return the rensa.RMinHash of `sketch`, written by the same rensa."""
    from rensa import RMinHash

    minhash = RMinHash(num_perm=PERMUTATIONS, seed=SEED)
    minhash.__setstate__(state)
    return minhash


def _minhash_index() -> Any:
    from rensa import RMinHashDeduplicator

    return RMinHashDeduplicator(threshold=SIMILAR, num_perm=PERMUTATIONS, use_lsh=True, seed=SEED)
