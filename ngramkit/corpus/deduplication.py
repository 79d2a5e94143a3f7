"""A corpus without what stands in it already, and without the texts of evaluation sets.

    exact    a document whose text, but for white space at its ends, an earlier document has
    minhash  also one that shares most of its words in a row with an earlier one: an estimated
             Jaccard similarity of SIMILAR over runs of WORDS words (Broder 1997), by rensa

The first of several is kept. Which documents are left out depends on all that come before, so that
is decided in order, by one process (`Sieve`); a build that goes on decides anew from the beginning,
but encodes only what is missing. What it decides by, digests and sketches, is each document's own.
About 100 bytes of memory for each document, with minhash 1,000.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ngramkit.corpus.decontamination import EvaluationTexts
from ngramkit.corpus.document import Corpus, Document, Position
from ngramkit.corpus.mixing import Mixture
from ngramkit.corpus.selection import Selection
from ngramkit.errors import InputError, UsageError

METHODS = ("exact", "minhash")
SIMILAR = 0.8
WORDS = 5
PERMUTATIONS = 128
SEED = 0
DIGEST = 16  # bytes
DUPLICATES, EVALUATION = "duplicates", "evaluation"


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
        sieve, first = self.sieve(), start.kept if start else 0
        for document in self.corpus.documents():
            if sieve.full:
                return
            text = document.text
            held = self.evaluation is not None and self.evaluation.stand_in(text)
            keeps = sieve.keeps(held, partial(digest, text), partial(runs_of, text))
            if keeps and sieve.kept > first:
                yield document._replace(kept=sieve.kept - 1)

    def sieve(self) -> Sieve:
        """One that has seen nothing; `left_out` counts from 0 on."""
        self.left_out.clear()
        return Sieve(self.dedup, self.limit, self.left_out)


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


class Sieve:
    """Decides document by document, in order, which are kept: `limit` of them at most."""

    def __init__(self, dedup: str | None, limit: int | None, left_out: Counter[str]) -> None:
        self.kept = 0
        self._limit = limit
        self._left_out = left_out
        self._seen: set[bytes] | None = None if dedup is None else set()
        self._similar = _deduplicator() if dedup == "minhash" else None

    @property
    def full(self) -> bool:
        return self.kept == self._limit

    def keeps(self, held: bool, digest: Callable[[], bytes], likeness: Callable[[], Any]) -> bool:
        """Whether the next document is kept. `held`: whether it holds a text of an evaluation set.

        Of its text, `digest()`, and as `likeness()` either `runs_of` or a `sketch` of those, are
        asked for only where they decide.
        """
        if held:
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
    """16 bytes, the same for texts that differ in white space at their ends alone."""
    return hashlib.blake2b(text.strip().encode("utf-8", "replace"), digest_size=DIGEST).digest()


def runs_of(text: str) -> list[str]:
    """Its runs of WORDS words, by which texts are similar."""
    words = text.split()
    return [" ".join(words[i : i + WORDS]) for i in range(max(len(words) - WORDS + 1, 1))]


def sketch(text: str) -> bytes:
    """The MinHash of its runs, as bytes that `sketched` reads."""
    from rensa import RMinHash

    return bytes(RMinHash.from_token_sets([runs_of(text)], PERMUTATIONS, SEED)[0].__getstate__())


def sketched(state: bytes) -> Any:
    """A rensa.RMinHash. Raises InputError where this rensa does not read it."""
    from rensa import RMinHash

    found = RMinHash(num_perm=PERMUTATIONS, seed=SEED)
    try:
        found.__setstate__(state)
    except ValueError as error:
        raise InputError(
            f"a node's rensa writes what rensa {version('rensa')} here cannot read: {error}",
            "install the same rensa on every node",
        ) from error
    return found


def _deduplicator() -> Any:
    from rensa import RMinHashDeduplicator

    return RMinHashDeduplicator(threshold=SIMILAR, num_perm=PERMUTATIONS, use_lsh=True, seed=SEED)
