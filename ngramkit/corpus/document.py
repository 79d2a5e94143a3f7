"""A corpus: documents in a fixed order, and a record of their origin.

A `DocumentSource` yields rows, part by part (a file, a shard of a Hub dataset). A `Corpus` numbers
the documents in them, keeps the selected ones, and can begin again in the middle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from ngramkit.corpus.selection import Selection
from ngramkit.corpus.unpacking import MAX_DOCUMENT, too_large


class Row(NamedTuple):
    """One record of a source: usually one text, several where it holds a conversation."""

    texts: Sequence[str]
    licenses: tuple[str, ...] = ()
    repository: str = ""
    bad: str = ""  # why there is no text: the record was bad, and bad ones are skipped


@dataclass
class Skipped:
    """The bad records that reading has gone on behind so far."""

    records: int = 0
    first: str = ""  # what was wrong with the first one of this reading


class DocumentSource:
    """The base of sources: rows in parts, whose order never changes while `record` stays the same.

    The methods here suit a source that knows nothing but its rows.
    """

    id: str

    @property
    def parts(self) -> int:
        raise NotImplementedError

    @property
    def places(self) -> Sequence[Path]:
        """The files and folders of this machine that are read."""
        return ()

    @property
    def size(self) -> int | None:
        """The bytes that are read; None where they are not known before."""
        return None

    @property
    def reached(self) -> int:
        """The bytes that were read so far."""
        return 0

    def record(self) -> dict[str, Any]:
        """Return JSON that pins the rows: revision or digest, split, column."""
        raise NotImplementedError

    def rows(self, part: int) -> Iterator[Row]:
        """Yield the rows of one part, in order; nothing is opened before the first."""
        raise NotImplementedError

    def only(self, part: int) -> DocumentSource:
        """Return a source of one part."""
        return OnePart(self.id, self, part)

    def pieces(self) -> Sequence[DocumentSource]:
        """Return a source of one part as several, where processes can share its work."""
        return [self]

    def count(self) -> int | None:
        """Return the documents of a source of one part; None where only its rows tell."""
        return None


@dataclass(frozen=True)
class OnePart(DocumentSource):
    """One part of a source, as a source."""

    id: str
    source: DocumentSource
    part: int
    parts: int = 1

    def record(self) -> dict[str, Any]:
        return {**self.source.record(), "part": self.part}

    def rows(self, part: int) -> Iterator[Row]:
        return self.source.rows(self.part)


@dataclass(frozen=True)
class Position:
    """A place between two documents, where a killed run goes on."""

    part: int = 0
    row: int = 0  # within the part
    first: int = 0  # index of that row's first document in the whole corpus
    number: int = 0  # index of the next document in the whole corpus
    kept: int = 0  # documents yielded so far
    bad: int = 0  # records skipped so far


class Document(NamedTuple):
    """A kept document and its place."""

    text: str
    licenses: tuple[str, ...]
    repository: str
    part: int
    row: int
    first: int
    number: int  # index in the whole corpus
    kept: int  # documents yielded before this one
    bad: int = 0  # records skipped before this one

    @property
    def end(self) -> Position:
        """The position right after this document."""
        next_number, kept = self.number + 1, self.kept + 1
        return Position(self.part, self.row, self.first, next_number, kept, self.bad)


@dataclass(frozen=True)
class Corpus:
    """The selected documents of a source."""

    source: DocumentSource
    selection: Selection = field(default_factory=Selection)
    max_document: int = MAX_DOCUMENT  # characters; a longer document is an error
    skipped: Skipped = field(default_factory=Skipped, compare=False, repr=False)

    def __repr__(self) -> str:
        options = (f"{name} {value}" for name, value in self.selection.record().items() if value)
        return f"<Corpus {', '.join([self.id, *options])}>"

    @property
    def id(self) -> str:
        return self.source.id

    @property
    def places(self) -> Sequence[Path]:
        """The files and folders of this machine that are read."""
        return self.source.places

    @property
    def size(self) -> int | None:
        """The bytes that are read; None where they are not known before."""
        return self.source.size

    @property
    def reached(self) -> int:
        """The bytes that were read so far."""
        return self.source.reached

    def pieces(self) -> Iterator[Corpus]:
        """Yield corpora that several processes may read: the parts in order, large files as
        several."""
        for part in range(self.source.parts):
            for source in self.source.only(part).pieces():
                yield replace(self, source=source)

    def record(self) -> dict[str, Any]:
        """Return JSON for the manifest: everything that decides which documents there are."""
        return {"id": self.id, **self.source.record(), **self.selection.record()}

    def documents(self, start: Position | None = None) -> Iterator[Document]:
        """Yield the selected documents from `start` on, in the corpus's order.

        `skipped` counts bad records, those before `start` too. Raises InputError where a document
        is longer than `max_document`.
        """
        at = start or Position()
        select, kept, number = self.selection, at.kept, at.first
        skipped = self.skipped
        skipped.records, skipped.first = at.bad, ""
        if kept == select.limit:
            return
        for part in range(at.part, self.source.parts):
            before = at.row if part == at.part else 0
            rows = islice(self.source.rows(part), before, None)
            for row, (texts, licenses, repository, bad) in enumerate(rows, before):
                first = number
                if bad:
                    skipped.records += 1
                    skipped.first = skipped.first or bad
                for text in texts:
                    if len(text) > self.max_document:
                        raise too_large(f"{self.id}, document {number}", self.max_document)
                    chosen = number >= at.number and select.samples(number)
                    if chosen and select.admits(text, licenses, repository):
                        yield Document(
                            text, licenses, repository, part, row, first, number, kept,
                            skipped.records,
                        )  # fmt: skip
                        kept += 1
                        if kept == select.limit:
                            return
                    number += 1
