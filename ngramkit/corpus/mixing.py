"""Several corpora as one, each with a weight.

A corpus's weight, above 0 and at most 1, is the share of its documents that is kept. They are
chosen as `sample` chooses them, by a hash of (seed, the document's index in its own corpus): weight
0.3 keeps exactly the documents that sample=0.3 keeps of that corpus alone. With both, the share is
sample times weight. The corpora follow each other in the order in which they are named, and `limit`
counts documents of them all. So a mixture is the same wherever and however often it is read, and a
killed build goes on in the middle of any of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from ngramkit.basics.errors import UsageError
from ngramkit.corpus.document import Corpus, Document, Position, Skipped
from ngramkit.corpus.selection import Selection


class Weighted(NamedTuple):
    """A corpus, by name or opened, and its weight."""

    corpus: Corpus | str
    weight: float = 1.0


class Composed:
    """The base of corpora for builders that are made of others; each of these has a selection of
    its own."""

    limit: int | None

    @property
    def members(self) -> Sequence[Corpus | Composed]:
        raise NotImplementedError

    @property
    def id(self) -> str:
        return " + ".join(corpus.id for corpus in self.members)

    @property
    def selection(self) -> Selection:
        """The selection from the whole."""
        return Selection(limit=self.limit)

    @property
    def places(self) -> Sequence[Path]:
        return [place for corpus in self.members for place in corpus.places]

    @property
    def size(self) -> int | None:
        """The bytes that are read; None where they are not known before."""
        sizes = [corpus.size for corpus in self.members]
        return None if None in sizes else sum(filter(None, sizes))

    @property
    def reached(self) -> int:
        return sum(corpus.reached for corpus in self.members)


@dataclass(frozen=True)
class Mixture(Composed):
    """Several corpora, for builders. They have their weights in their selections."""

    corpora: tuple[Corpus, ...]
    limit: int | None = None
    skipped: Skipped = field(default_factory=Skipped, compare=False, repr=False)

    def __post_init__(self) -> None:
        Selection(limit=self.limit)  # raises UsageError
        names = [(corpus.id, corpus.source.record()) for corpus in self.corpora]
        for at, name in enumerate(names):
            if name in names[:at]:
                raise UsageError(f"{name[0]} is named twice", "name it once", option="corpus")
            if self.corpora[at].selection.limit is not None:
                raise UsageError(
                    f"{name[0]} has a limit of its own in a mixture",
                    "limit the mixture, or give it a weight",
                    option="limit",
                )

    @property
    def members(self) -> Sequence[Corpus]:
        return self.corpora

    def record(self) -> dict[str, Any]:
        """Return JSON for the manifest: the record of each corpus with its weight, in order."""
        parts = [{**corpus.record(), "weight": corpus.selection.weight} for corpus in self.corpora]
        return {"id": self.id, "mixed": parts, **self.selection.record()}

    def documents(self, start: Position | None = None) -> Iterator[Document]:
        """Yield documents as `Corpus.documents`.

        Parts are numbered through all corpora; a document's index is that in its own corpus.
        """
        at = start or Position()
        kept, before = at.kept, 0
        self.skipped.records, self.skipped.first = at.bad, ""
        if kept == self.limit:
            return
        for corpus in self.corpora:
            part = at.part - before
            if part < corpus.source.parts:
                begin = Position(kept=kept, bad=self.skipped.records)
                for document in corpus.documents(begin if part < 0 else replace(at, part=part)):
                    yield document._replace(part=before + document.part)
                    kept += 1
                    if kept == self.limit:
                        break
                self.skipped.records = corpus.skipped.records
                self.skipped.first = self.skipped.first or corpus.skipped.first
                if kept == self.limit:
                    return
            before += corpus.source.parts


def parse_weighted(text: str) -> Weighted:
    """Parse NAME or NAME:WEIGHT. An existing file or folder is a name.

    >>> parse_weighted("b:0.3"), parse_weighted("hf:me/code:python")
    (Weighted(corpus='b', weight=0.3), Weighted(corpus='hf:me/code:python', weight=1.0))

    A path, a URL or a configuration that ends in a colon and a number needs a weight behind it:
    hf:me/dumps:2024:1. Raises UsageError for a weight that is missing or not in (0, 1].
    """
    name, colon, number = text.rpartition(":")
    if not colon or not name or Path(text).expanduser().exists():
        return Weighted(text)
    if text == "hf:":
        raise UsageError("hf: names no dataset", "write hf:ID or hf:ID:CONFIG", option="corpus")
    if not number:
        raise UsageError(
            f"the weight of {name} is missing", f"write {name}:0.3, or {name}", option="corpus"
        )
    try:
        weight = float(number)
    except ValueError:
        return Weighted(text)
    if not 0 < weight <= 1:
        raise UsageError(
            f"the weight of {name} must be above 0 and at most 1, is {number}",
            f"if {number} belongs to the name, write {text}:1",
            option="corpus",
        )
    return Weighted(name, weight)
