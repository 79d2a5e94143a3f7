"""A corpus: documents in a fixed order, and a record of their origin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from ngramkit.corpus.selection import Selection
from ngramkit.corpus.unpacking import MAX_DOCUMENT, too_large


def is_longer(text: str, most: int) -> bool:
    """Return whether a text has more than `most` bytes of UTF-8, mostly without encoding it."""
    return len(text) > most // 4 and len(text.encode("utf-8", "surrogatepass")) > most


class Row(NamedTuple):
    """One record; a conversation has several texts."""

    texts: Sequence[str]
    licenses: tuple[str, ...] = ()
    repository: str = ""
    bad: str = ""  # the error of a skipped record, which has no texts


class Counts(NamedTuple):
    bad: int = 0  # records
    unlicensed: int = 0  # documents, as below
    opted_out: int = 0

    def left_out(self) -> dict[str, int]:
        """Return the documents by reason, without zeros."""
        return {why: count for why, count in self._asdict().items() if count and why != "bad"}


@dataclass
class Skipped:
    counts: Counts = field(default_factory=Counts)
    first: str = ""  # the error of the first bad record

    def begin(self, at: Position) -> None:
        self.counts = at.counts
        self.first = self.first if at.bad else ""

    def add(self, what: str) -> None:
        self.counts = self.counts._replace(**{what: getattr(self.counts, what) + 1})


class DocumentSource:
    """A source of rows; the same `record` means the same rows in order."""

    id: str

    @property
    def parts(self) -> int:
        raise NotImplementedError

    @property
    def places(self) -> Sequence[Path]:
        """Local files and folders to read."""
        return ()

    @property
    def progress(self) -> tuple[int, int | None]:
        """The bytes that were read so far, and in total; None if unknown."""
        return 0, None

    def record(self) -> dict[str, Any]:
        """Return JSON that pins the rows."""
        raise NotImplementedError

    def rows(self, part: int) -> Iterator[Row]:
        """Yield a part's rows in order; open nothing before the first."""
        raise NotImplementedError

    def only(self, part: int) -> DocumentSource:
        return OnePart(self.id, self, part)

    def pieces(self) -> Sequence[DocumentSource]:
        """Split a source of one part for parallel processes."""
        return [self]

    def count(self) -> int | None:
        """Return the number of documents in a source of one part, or None."""
        return None


@dataclass(frozen=True)
class OnePart(DocumentSource):
    id: str
    source: DocumentSource
    part: int
    parts: int = 1

    def record(self) -> dict[str, Any]:
        return {**self.source.record(), "part": self.part}

    def rows(self, part: int) -> Iterator[Row]:
        return self.source.rows(self.part)


class Position(NamedTuple):
    """A resume point between two documents."""

    part: int = 0
    row: int = 0  # within the part
    first: int = 0  # index of the row's first document in the corpus
    number: int = 0  # index of the next document in the corpus
    kept: int = 0  # documents yielded so far
    # The fields of `Counts`, so far.
    bad: int = 0
    unlicensed: int = 0
    opted_out: int = 0

    @property
    def counts(self) -> Counts:
        return Counts(self.bad, self.unlicensed, self.opted_out)


BEGINNING = Position()


class Document(NamedTuple):
    text: str
    licenses: tuple[str, ...]
    repository: str
    end: Position = BEGINNING


@dataclass(frozen=True)
class Corpus:
    source: DocumentSource
    selection: Selection = field(default_factory=Selection)
    max_document: int = MAX_DOCUMENT  # bytes of UTF-8; a longer document is an error
    private: bool = False  # marks what is built from it
    skipped: Skipped = field(default_factory=Skipped, compare=False, repr=False)

    def __repr__(self) -> str:
        options = (f"{name} {value}" for name, value in self.selection.record().items() if value)
        return f"<Corpus {', '.join([self.id, *options])}>"

    @property
    def id(self) -> str:
        return self.source.id

    @property
    def places(self) -> Sequence[Path]:
        return self.source.places

    @property
    def progress(self) -> tuple[int, int | None]:
        return self.source.progress

    def pieces(self) -> Iterator[Corpus]:
        """Yield parts, large files split, for parallel processes."""
        for part in range(self.source.parts):
            for source in self.source.only(part).pieces():
                yield replace(self, source=source)

    def record(self) -> dict[str, Any]:
        mark = {"private": True} if self.private else {}
        return {"id": self.id, **self.source.record(), **self.selection.record(), **mark}

    def documents(self, at: Position = BEGINNING) -> Iterator[Document]:
        """Yield the selected documents from `at` on. Raises InputError beyond `max_document`."""
        select, kept, number = self.selection, at.kept, at.first
        sampled, filtered = select.share != 1.0, bool(select.licenses or select.excluded)
        skipped = self.skipped
        skipped.begin(at)
        if kept == select.limit:
            return
        for part in range(at.part, self.source.parts):
            before = at.row if part == at.part else 0
            rows = islice(self.source.rows(part), before, None)
            for row, (texts, licenses, repository, bad) in enumerate(rows, before):
                first = number
                if bad:
                    skipped.add("bad")
                    skipped.first = skipped.first or bad
                for text in texts:
                    if is_longer(text, self.max_document):
                        raise too_large(f"{self.id}, document {number}", self.max_document)
                    chosen = number >= at.number and not (sampled and not select.samples(number))
                    number += 1
                    if not chosen:
                        continue
                    if filtered and (why := select.why_left_out(text, licenses, repository)):
                        skipped.add(why)
                    else:
                        kept += 1
                        end = Position(part, row, first, number, kept, *skipped.counts)
                        yield Document(text, licenses, repository, end)
                        if kept == select.limit:
                            return
