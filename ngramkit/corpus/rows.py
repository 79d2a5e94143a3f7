"""Rows of a corpus: what a record (column name -> value) or an Arrow table gives.

A record that is bad (it does not parse, lacks the column or holds no text in it) is an error, or
where bad ones are skipped, a row without texts that says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ngramkit.basics.errors import BadRecordError, InputError
from ngramkit.corpus.columns import Columns, listed, text_column
from ngramkit.corpus.document import Row
from ngramkit.corpus.shapes import is_null, is_turn, value_at, written_text
from ngramkit.corpus.unpacking import (
    MAX_DOCUMENT,
    MAX_RATIO,
    row_sizes,
    too_large,
    without_dictionaries,
)

LICENSES = ("license", "licenses", "licence", "max_stars_repo_licenses")
REPOSITORIES = ("repo_name", "max_stars_repo_name", "repository_name", "repository", "repo")
LOOKED_AT = 100  # records, if the first ones leave the column open
MOST_LOOKED_AT = 1 << 24  # characters of them
MOST_VALUES = 1 << 22  # of a record, or of a .json file: Python takes some 100 bytes for each
BYTES_OF_VALUE = 64  # that Python takes beside a text
BATCH = 1024  # most rows that are Python objects at a time


@dataclass(frozen=True)
class ReaderOptions:
    """The options of a reader; `join_turns` makes a conversation one document, `skip_bad` goes on
    behind bad records."""

    column: str | None = None
    join_turns: bool = False
    skip_bad: bool = False
    max_document: int = MAX_DOCUMENT  # bytes
    max_whole: int = MAX_RATIO * MAX_DOCUMENT  # bytes of a JSON document, which is read whole

    def record(self) -> dict[str, Any]:
        """Return JSON for a corpus's record: only the options that are set."""
        given = {"column": self.column, "join_turns": self.join_turns, "skip_bad": self.skip_bad}
        return {name: value for name, value in given.items() if value not in (None, False)}


Made = TypeVar("Made")


def attempt(make: Callable[[], Made], skip_bad: bool) -> Made | Row:
    """Return what `make` makes of a record; of a bad one, where these are skipped, a row without
    texts. Else raises BadRecordError."""
    try:
        return make()
    except BadRecordError as error:
        if skip_bad:
            return Row((), bad=str(error))
        error.hint = f"{error.hint}; skip_bad=True goes on behind it"
        error.option = (*error.option, "skip_bad")
        raise


@dataclass(frozen=True)
class RowMaker:
    """The columns that make a row of a record. `join_turns` makes a conversation one document."""

    column: str  # or a path; "" for records that are texts themselves
    license_column: str | None = None
    repository_column: str | None = None
    join_turns: bool = False
    top: str | None = None  # the column that a path leads into

    @classmethod
    def of(cls, columns: Columns, where: str, reading: ReaderOptions) -> RowMaker:
        """Choose the text column, and find the others by their usual names; errors as those of
        `text_column`."""
        column = text_column(columns, reading.column, where)
        others = _first(LICENSES, columns.top), _first(REPOSITORIES, columns.top)
        return cls(column, *others, reading.join_turns, columns.top_of(column))

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        names = (self.top, self.license_column, self.repository_column)
        return [*dict.fromkeys(name for name in names if name is not None)]

    def row(self, record: Mapping[str, Any]) -> Row:
        """Make a row. Raises KeyError without the column, TypeError where it holds no text."""
        column = self.column
        value = record[column] if column in record else value_at(record, column)
        licenses = _strings(record.get(self.license_column)) if self.license_column else ()
        names = _strings(record.get(self.repository_column)) if self.repository_column else ()
        return self.row_of(value, licenses, names[0] if names else "")

    def row_of(self, value: Any, licenses: tuple[str, ...] = (), repository: str = "") -> Row:
        """Make a row of a text or a conversation. Raises TypeError for another value."""
        texts = texts_of(value)
        if self.join_turns and len(texts) > 1:
            texts = ("\n\n".join(texts),)
        return Row(texts, licenses, repository)


def texts_of(value: Any) -> Sequence[str]:
    """Return the texts in a column's value: a string, a list of turns or of {role, content}.

    >>> texts_of([{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello!"}])
    ('Hi.', 'Hello!')
    """
    if isinstance(value, str):
        return (value,)
    if is_null(value):
        return ("",)
    if isinstance(value, list):
        return tuple(_turn(turn) for turn in value)
    raise TypeError(f"{type(value).__name__} where a text was expected")


def _turn(turn: Any) -> str:
    if isinstance(turn, str):
        return turn
    if isinstance(turn, Mapping):
        return written_text(turn)
    if is_null(turn):
        return ""
    raise TypeError(f"{type(turn).__name__} where a turn was expected: {turn!r:.60}")


def _first(names: Sequence[str], columns: Mapping[str, Any]) -> str | None:
    return next((name for name in names if name in columns), None)


def _strings(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    values = [value] if isinstance(value, str) else value
    return tuple(str(entry) for entry in values if entry)


def record_rows(records: Iterable[tuple[str, Any]], reading: ReaderOptions) -> Iterator[Row]:
    """Yield the rows of (place, record); the first records decide which columns are read.

    A BadRecordError stands for a record that does not parse, a null is an empty text.
    """
    records, maker = iter(records), None
    while maker is None:
        begun, maker = look_ahead(records, reading)
        if not begun:
            return
        judged = begun if maker is None else chain(begun, records)
        for where, record in judged:
            yield attempt(partial(_row, where, maker, record, reading), reading.skip_bad)


def look_ahead(
    records: Iterator[tuple[str, Any]], reading: ReaderOptions
) -> tuple[list[tuple[str, Any]], RowMaker | None]:
    """Return records up to the one that decides which columns are read, and how; None if none
    does.

    Raises InputError where several columns hold text.
    """
    begun: list[tuple[str, Any]] = []
    columns, place, size = Columns(), "", 0
    for where, record in records:
        begun.append((where, record))
        if isinstance(record, str) or _is_conversation(record):
            return begun, RowMaker("", join_turns=reading.join_turns)
        if isinstance(record, Mapping):
            columns.add(record)
            place = place or where
            if reading.column is not None or columns.usual(final=False):
                break
            size += len(str(record))
        if len(begun) >= LOOKED_AT or size > MOST_LOOKED_AT:
            break
    with suppress(BadRecordError):  # of each record its own
        return begun, RowMaker.of(columns, place, reading)
    return begun, None


def _is_conversation(record: Any) -> bool:
    return isinstance(record, list) and bool(record) and all(map(is_turn, record))


def _row(where: str, maker: RowMaker | None, record: Any, reading: ReaderOptions) -> Row:
    if maker is not None and type(record) is dict:
        return read_row(where, maker, record)
    if isinstance(record, BadRecordError):
        raise record
    if is_null(record):
        return Row(("",))
    if (maker is None or maker.column) and not isinstance(record, str | Mapping):
        problem = f"{where} is neither a text nor an object: {type(record).__name__}"
        raise BadRecordError(problem, _remedy(record))
    if maker is None:
        columns = Columns()
        columns.add(record)
        maker = RowMaker.of(columns, where, reading)
    return read_row(where, maker, record)


def _remedy(record: Any) -> str:
    """Return what to do about a record that is no text."""
    return "decode it, or drop it" if isinstance(record, bytes) else "mend it, or drop it"


def read_row(where: str, maker: RowMaker, record: Any) -> Row:
    """Make a row of the record at `where`. Raises BadRecordError where it holds no text."""
    try:
        if isinstance(record, str) and not maker.column:
            return Row((record,))
        if not maker.column and _is_conversation(record):
            return maker.row_of(record)
        if isinstance(record, Mapping):
            return maker.row(record)
        wanted = "an object" if maker.column else "a text"
        raise TypeError(f"{type(record).__name__} where {wanted} was expected")
    except KeyError as error:
        fault = f"has no {maker.column!r}" if maker.column else "is an object among texts"
        hint = f"mend it, or drop it; its columns: {listed(record)}"
        raise BadRecordError(f"{where} {fault}", hint) from error
    except TypeError as error:
        value = record.get(maker.column) if isinstance(record, Mapping) else record
        other = "choose another column, or " if maker.column else ""
        raise BadRecordError(
            f"{where}: {error}", f"{other}{_remedy(value)}", option="column"
        ) from error


def require_text(text: str, where: str) -> None:
    """Raise BadRecordError where a text holds half a character: a surrogate, or in its place a byte
    that is no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadRecordError(
            f"{where} is not UTF-8: character {error.start:,}", "convert it to UTF-8"
        ) from error


def table_rows(
    where: Path | str,
    maker: RowMaker,
    batches: Iterable[Any],
    reading: ReaderOptions,
    *,
    first: int = 0,
) -> Iterator[Row]:
    """Yield the rows of Arrow batches, of which the first is the row `first` of `where`."""
    for batch in batches:
        for number, record in enumerate(_records(where, maker, batch, reading), first):
            make = partial(read_row, f"{where}, row {number}", maker, record)
            yield attempt(make, reading.skip_bad)
        first += batch.num_rows


def _records(
    where: Path | str, maker: RowMaker, batch: Any, reading: ReaderOptions
) -> Iterator[dict[str, Any]]:
    """Yield the records of an Arrow batch, unfolded a few at a time: together they take about as
    many bytes as the largest document may."""
    import pyarrow as pa

    chosen, most = batch.select(maker.columns), reading.max_document
    chosen.validate(full=True)  # other functions of pyarrow trust offsets and indices
    try:
        all_sizes = [row_sizes(column) for column in chosen.columns]
    except TypeError as error:
        raise InputError(f"{where}: {error}", "choose another column", option="column") from error
    bytes_ = np.sum([sizes.bytes for sizes in all_sizes], axis=0)
    values = np.sum([sizes.values for sizes in all_sizes], axis=0)
    if bytes_.max(initial=0) > most:
        raise too_large(str(where), most)
    if values.max(initial=0) > MOST_VALUES:
        raise too_many_values(where)
    longest = int((bytes_ + BYTES_OF_VALUE * values).max(initial=0))
    step = max(1, min(BATCH, most // max(longest, 1)))
    plain = pa.schema([(field.name, without_dictionaries(field.type)) for field in chosen.schema])
    for begin in range(0, chosen.num_rows, step):
        rows = chosen.slice(begin, step)
        with suppress(pa.ArrowNotImplementedError):  # of a dictionary of views
            rows = rows.cast(plain)  # which takes half the time
        yield from rows.to_pylist()


def too_many_values(where: Path | str) -> InputError:
    return InputError(f"{where} holds more than {MOST_VALUES:,} values", "cut it into several")
