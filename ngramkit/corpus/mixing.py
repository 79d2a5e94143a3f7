"""Mixtures of corpora with weights.

A weight in (0, 1] multiplies `sample`: 0.3 keeps the same documents as sample=0.3. `limit` counts
documents of the whole mixture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from ngramkit.basics.errors import UsageError
from ngramkit.basics.machine import expand_home
from ngramkit.corpus.document import BEGINNING, Corpus, Document, Position, Skipped
from ngramkit.corpus.selection import Selection


class Weighted(NamedTuple):
    corpus: Corpus | str
    weight: float = 1.0


class Composed:
    limit: int | None

    @property
    def members(self) -> Sequence[Corpus | Composed]:
        raise NotImplementedError

    @property
    def id(self) -> str:
        return " + ".join(corpus.id for corpus in self.members)

    @property
    def selection(self) -> Selection:
        return Selection(limit=self.limit)

    @property
    def places(self) -> Sequence[Path]:
        return [place for corpus in self.members for place in corpus.places]

    @property
    def progress(self) -> tuple[int, int | None]:
        reached, sizes = zip(*(corpus.progress for corpus in self.members), strict=True)
        return sum(reached), None if None in sizes else sum(sizes)


@dataclass(frozen=True)
class Mixture(Composed):
    corpora: tuple[Corpus, ...]
    limit: int | None = None
    skipped: Skipped = field(default_factory=Skipped, compare=False, repr=False)

    def __post_init__(self) -> None:
        Selection(limit=self.limit)  # raises UsageError
        names = [(corpus.id, corpus.source.record()) for corpus in self.corpora]
        for at, name in enumerate(names):
            if name in names[:at]:
                raise UsageError(
                    f"corpora must differ, got {name[0]} twice", "Name it once.", option="corpus"
                )
            if self.corpora[at].selection.limit is not None:
                raise UsageError(
                    f"cannot mix {name[0]}: it was opened with a limit",
                    "Limit the mixture, or give it a weight.",
                    option="limit",
                )

    @property
    def members(self) -> Sequence[Corpus]:
        return self.corpora

    def record(self) -> dict[str, Any]:
        parts = [{**corpus.record(), "weight": corpus.selection.weight} for corpus in self.corpora]
        return {"id": self.id, "mixed": parts, **self.selection.record()}

    def documents(self, at: Position = BEGINNING) -> Iterator[Document]:
        """Yield documents; parts are numbered across corpora."""
        kept, before = at.kept, 0
        self.skipped.begin(at)
        if kept == self.limit:
            return
        for corpus in self.corpora:
            part = at.part - before
            if part < corpus.source.parts:
                begin = Position(0, 0, 0, 0, kept, *self.skipped.counts)
                if part >= 0:
                    begin = at._replace(part=part)
                for document in replace(corpus, skipped=self.skipped).documents(begin):
                    end = document.end._replace(part=before + document.end.part)
                    yield document._replace(end=end)
                    kept += 1
                    if kept == self.limit:
                        return
            before += corpus.source.parts


def parse_weighted(text: str) -> Weighted:
    """Parse NAME or NAME:WEIGHT; an existing file or folder is always a name.

    >>> parse_weighted("b:0.3"), parse_weighted("hf:me/code:python")
    (Weighted(corpus='b', weight=0.3), Weighted(corpus='hf:me/code:python', weight=1.0))

    Raises UsageError for a missing or wrong weight.
    """
    name, colon, number = text.rpartition(":")
    if not colon or not name or expand_home(text).exists():
        return Weighted(text)
    if text == "hf:":
        raise UsageError(
            "a Hub dataset must be hf:ID, got hf:", "Write hf:ID or hf:ID:CONFIG.", option="corpus"
        )
    if not number:
        raise UsageError(
            f"the weight of {name} must be a number, got none",
            f"Write {name}:0.3, or {name}.",
            option="corpus",
        )
    try:
        weight = float(number)
    except ValueError:
        return Weighted(text)
    if not 0 < weight <= 1:
        raise UsageError(
            f"the weight of {name} must be above 0 and at most 1, got {number}",
            f"Write {text}:1 if {number} belongs to the name.",
            option="corpus",
        )
    return Weighted(name, weight)
