"""A corpus without what stands in it already, and without the texts of evaluation sets.

    exact    a document whose text, but for white space at its ends, an earlier document has
    minhash  also one that shares most of its words in a row with an earlier one: an estimated
             Jaccard similarity of SIMILAR over runs of WORDS words (Broder 1997), by rensa

The first of several is kept. Which documents are left out depends on all that come before, so they
are read in order, by one process; a build that goes on reads them again from the beginning, but
encodes only what is missing. About 100 bytes of memory for each document, with minhash 1,000.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ngramkit.corpus.document import Corpus, Document, Position
from ngramkit.corpus.evaluation import EvaluationTexts
from ngramkit.corpus.mixing import Mixture
from ngramkit.corpus.selection import Selection
from ngramkit.errors import UsageError

METHODS = ("exact", "minhash")
SIMILAR = 0.8
WORDS = 5
PERMUTATIONS = 128
SEED = 0
DUPLICATES, EVALUATION = "duplicates", "evaluation"

New = Callable[[str], bool]  # whether nothing like this text came before


@dataclass(frozen=True)
class Sifted:
    """What builders read, as a Corpus is. `limit` counts documents that are left."""

    corpus: Corpus | Mixture
    dedup: str | None = None
    evaluation: EvaluationTexts | None = None
    limit: int | None = None
    left_out: Counter[str] = field(default_factory=Counter, compare=False)  # while it is read

    def __post_init__(self) -> None:
        if self.dedup not in (None, *METHODS):
            raise UsageError(
                f"dedup is {self.dedup!r}", f"one of {', '.join(METHODS)}", option="dedup"
            )
        if self.dedup == "minhash" and find_spec("rensa") is None:
            raise UsageError(
                "dedup=minhash needs rensa", "pip install ngramkit[dedup]", option="dedup"
            )

    @property
    def id(self) -> str:
        return self.corpus.id

    @property
    def selection(self) -> Selection:
        return Selection(limit=self.limit)

    @property
    def narrowed(self) -> bool:
        return True

    @property
    def places(self) -> Sequence[Path]:
        return self.corpus.places

    def bounded(self, max_document: int) -> Sifted:
        return replace(self, corpus=self.corpus.bounded(max_document), left_out=Counter())

    def record(self) -> dict[str, Any]:
        """JSON for the manifest: the corpus's own, and what decides which documents are left."""
        said = {**self.corpus.record(), **self.selection.record()}
        if self.dedup is not None:
            said["dedup"] = self.dedup
        if self.dedup == "minhash":
            said["rensa"] = version("rensa")
        if self.evaluation is not None:
            said["evaluation"] = self.evaluation.record()
        return said

    def documents(self, start: Position | None = None) -> Iterator[Document]:
        """Those that are left, from `start` on; `left_out` counts all others that were read."""
        self.left_out.clear()
        is_new, kept, first = _memory(self.dedup), 0, start.kept if start else 0
        for document in self.corpus.documents():
            if kept == self.limit:
                return
            if self.evaluation is not None and self.evaluation.stand_in(document.text):
                self.left_out[EVALUATION] += 1
            elif not is_new(document.text):
                self.left_out[DUPLICATES] += 1
            else:
                if kept >= first:
                    yield document._replace(kept=kept)
                kept += 1


def sifted(
    corpus: Corpus | Mixture, dedup: str | None, evaluation: EvaluationTexts | None
) -> Corpus | Mixture | Sifted:
    """`corpus` as it is where nothing is to be left out; else its limit counts what is left."""
    if dedup is None and evaluation is None:
        return corpus
    limit = corpus.selection.limit
    if isinstance(corpus, Mixture):
        return Sifted(replace(corpus, limit=None), dedup, evaluation, limit)
    selection = replace(corpus.selection, limit=None)
    return Sifted(replace(corpus, selection=selection), dedup, evaluation, limit)


def _memory(dedup: str | None) -> New:
    """What remembers every text that it is shown."""
    if dedup is None:
        return lambda text: True
    return _Exact() if dedup == "exact" else _Similar()


class _Exact:
    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def __call__(self, text: str) -> bool:
        key = hashlib.blake2b(text.strip().encode("utf-8", "replace"), digest_size=16).digest()
        if key in self._seen:
            return False
        self._seen.add(key)
        return True


class _Similar:
    def __init__(self) -> None:
        from rensa import RMinHashDeduplicator

        self._exact = _Exact()
        self._similar = RMinHashDeduplicator(
            threshold=SIMILAR, num_perm=PERMUTATIONS, use_lsh=True, seed=SEED
        )
        self._count = 0

    def __call__(self, text: str) -> bool:
        if not self._exact(text):
            return False
        words = text.split()
        runs = [" ".join(words[i : i + WORDS]) for i in range(max(len(words) - WORDS + 1, 1))]
        self._count += 1
        return bool(self._similar.add_pairs([(str(self._count), runs)])[0])
