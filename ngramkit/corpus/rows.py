"""Rows of a corpus, from records (column name -> value)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from ngramkit.basics.errors import BadRecordError, InputError
from ngramkit.basics.untrusted import parse_json
from ngramkit.corpus.agent_sessions.transcript import Copies
from ngramkit.corpus.columns import TEXT_COLUMNS, Columns, choose_text_column, list_columns
from ngramkit.corpus.document import Row
from ngramkit.corpus.json_records import is_null, value_at
from ngramkit.corpus.turns import is_turn, written_text
from ngramkit.corpus.unpacking import MAX_DOCUMENT, MAX_RATIO

LICENSE_COLUMNS = ("license", "licenses", "licence", "max_stars_repo_licenses")
REPOSITORY_COLUMNS = ("repo_name", "max_stars_repo_name", "repository_name", "repository", "repo")
INSPECTED_RECORDS, INSPECTED_CHARACTERS = 100, 1 << 24  # upper bounds, to choose the column
MAX_ROW_VALUES = 1 << 22  # values of a record or a .json file; each takes about 100 bytes


@dataclass(frozen=True)
class ReaderOptions:
    """The options of a reader; see `open_corpus`."""

    column: str | None = None
    join_turns: bool = False
    skip_bad: bool = False
    max_document: int = MAX_DOCUMENT  # bytes
    max_whole: int = MAX_RATIO * MAX_DOCUMENT  # bytes of a JSON document
    copies: Copies | None = field(default=None, compare=False)  # of answers, in several files

    def record(self) -> dict[str, Any]:
        given: dict[str, Any] = {"column": self.column, "join_turns": self.join_turns}
        given["skip_bad"] = self.skip_bad
        if self.skip_bad and self.max_document != MAX_DOCUMENT:  # decides where open quotes end
            given["max_document"] = self.max_document
        return {name: value for name, value in given.items() if value not in (None, False)}


Made = TypeVar("Made")


def make_or_skip(make: Callable[[], Made], skip_bad: bool) -> Made | Row:
    """Return make(); with `skip_bad`, turn a BadRecordError into a row without texts."""
    try:
        return make()
    except BadRecordError as error:
        if skip_bad:
            return Row((), bad=str(error))
        error.hint = f"{error.hint} Give skip_bad=True to skip it."
        error.option = (*error.option, "skip_bad")
        raise


@dataclass(frozen=True)
class RowMaker:
    column: str  # name or path; "" for records that are texts
    others: tuple[str | None, ...] = ()  # a table's columns of licences and repositories
    join_turns: bool = False
    top: str | None = None  # the column in which a path begins

    @classmethod
    def of(cls, columns: Columns, where: str, reading: ReaderOptions) -> RowMaker:
        column = choose_text_column(columns, reading.column, where)
        others = (
            next((name for name in LICENSE_COLUMNS if name in columns.top), None),
            next((name for name in REPOSITORY_COLUMNS if name in columns.top), None),
        )
        return cls(column, others, reading.join_turns, columns.top_of(column))

    @property
    def columns(self) -> list[str]:
        return [*dict.fromkeys(name for name in (self.top, *self.others) if name is not None)]

    def row(self, record: Mapping[str, Any]) -> Row:
        """Make a row, or raise KeyError without the column, TypeError without text."""
        column = self.column
        value = record[column] if column in record else value_at(record, column)
        if isinstance(value, str) and column not in TEXT_COLUMNS:
            value = _parse_conversation(value)
        names = _texts_in(record, REPOSITORY_COLUMNS)
        return self.row_of(value, _texts_in(record, LICENSE_COLUMNS), names[0] if names else "")

    def row_of(self, value: Any, licenses: tuple[str, ...] = (), repository: str = "") -> Row:
        texts = texts_of(value)
        if self.join_turns and len(texts) > 1:
            texts = ("\n\n".join(texts),)
        return Row(texts, licenses, repository)


def _parse_conversation(text: str) -> Any:
    """Return the conversation that is JSON in a text, else the text."""
    if not text.lstrip().startswith("["):
        return text
    try:
        value = parse_json(text, "", most_values=MAX_ROW_VALUES)
    except InputError:
        return text
    first = next((turn for turn in value if not is_null(turn)), None)
    return value if is_turn(first) else text


def texts_of(value: Any) -> Sequence[str]:
    """Return the texts of a string, or of a list of turns.

    >>> texts_of([{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello!"}])
    ('Hi.', 'Hello!')
    """
    if isinstance(value, str):
        return (value,)
    if is_null(value):
        return ("",)
    if isinstance(value, list):
        return tuple(_not_a_turn(turn) for turn in value)
    raise TypeError(f"it must be a text, got {type(value).__name__}")


def _not_a_turn(turn: Any) -> str:
    if isinstance(turn, str):
        return turn
    if isinstance(turn, Mapping):
        return written_text(turn)
    if is_null(turn):
        return ""
    raise TypeError(f"a turn must be an object, got {type(turn).__name__}: {turn!r:.60}")


def _texts_in(record: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    """Return the texts of the first name with a value."""
    value = next((record[name] for name in names if not is_null(record.get(name))), ())
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        value = [value]
    return tuple(str(entry) for entry in value if entry)


def parse_record(raw: bytes | str, where: str) -> Any:
    """Return the parsed record, or the BadRecordError."""
    hint = "Mend it, or drop it."
    try:
        return parse_json(raw, where, most_values=MAX_ROW_VALUES, error=BadRecordError, hint=hint)
    except BadRecordError as error:
        return error


def record_rows(records: Iterable[tuple[str, Any]], reading: ReaderOptions) -> Iterator[Row]:
    """Yield the rows of (place, record or its BadRecordError); the first decide the columns."""
    records, maker = iter(records), None
    while maker is None:
        begun, maker = look_ahead(records, reading)
        if not begun:
            return
        judged = begun if maker is None else chain(begun, records)
        for where, record in judged:
            yield make_or_skip(
                partial(_read_any_record, where, maker, record, reading), reading.skip_bad
            )


def look_ahead(
    records: Iterator[tuple[str, Any]], reading: ReaderOptions
) -> tuple[list[tuple[str, Any]], RowMaker | None]:
    """Return the first records and the RowMaker that they decide, or None."""
    begun: list[tuple[str, Any]] = []
    columns, place, size = Columns(), "", 0
    for where, record in records:
        begun.append((where, record))
        if reading.column is None and (isinstance(record, str) or is_conversation(record)):
            return begun, RowMaker("", join_turns=reading.join_turns)
        if isinstance(record, Mapping):
            columns.add(record)
            place = place or where
            if reading.column is not None or columns.with_usual_name(final=False):
                break
            size += len(str(record))
        if len(begun) >= INSPECTED_RECORDS or size > INSPECTED_CHARACTERS:
            break
    with suppress(BadRecordError):  # then each record decides separately
        return begun, RowMaker.of(columns, place, reading)
    return begun, None


def is_conversation(record: Any) -> bool:
    return isinstance(record, list) and bool(record) and all(map(is_turn, record))


def _read_any_record(
    where: str, maker: RowMaker | None, record: Any, reading: ReaderOptions
) -> Row:
    if maker is not None and type(record) is dict:
        return read_row(where, maker, record)
    if isinstance(record, BadRecordError):
        raise record
    if is_null(record):
        return Row(("",))
    is_text = reading.column is None and isinstance(record, str)
    if (maker is None or maker.column) and not (is_text or isinstance(record, Mapping)):
        wanted, hint = "a text or an object", _how_to_mend(record)
        if reading.column is not None:
            wanted, hint = "an object with columns", f"{hint} Or leave out column."
        problem = f"{where} must be {wanted}, got {type(record).__name__}"
        raise BadRecordError(problem, hint, option="column")
    if maker is None:
        columns = Columns()
        columns.add(record)
        maker = RowMaker.of(columns, where, reading)
    return read_row(where, maker, record)


def _how_to_mend(record: Any) -> str:
    return "Decode it, or drop it." if isinstance(record, bytes) else "Mend it, or drop it."


def read_row(where: str, maker: RowMaker, record: Any) -> Row:
    """Make a row, or raise BadRecordError without text."""
    try:
        if isinstance(record, str) and not maker.column:
            return Row((record,))
        if not maker.column and is_conversation(record):
            return maker.row_of(record)
        if isinstance(record, Mapping):
            return maker.row(record)
        wanted = "an object" if maker.column else "a text"
        raise TypeError(f"it must be {wanted}, got {type(record).__name__}")
    except KeyError as error:
        fault = f"has no {maker.column!r}" if maker.column else "is an object among texts"
        hint = f"Mend it, or drop it. Its columns are {list_columns(record)}."
        raise BadRecordError(f"cannot read {where}: it {fault}", hint) from error
    except TypeError as error:
        value = record.get(maker.column) if isinstance(record, Mapping) else record
        other = " Or choose another column." if maker.column else ""
        raise BadRecordError(
            f"cannot read {where}: {error}", _how_to_mend(value) + other, option="column"
        ) from error


def require_text(text: str, where: str) -> None:
    """Raise BadRecordError for lone surrogates, which also represent invalid bytes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadRecordError(
            f"cannot read {where} as UTF-8: character {error.start:,} is invalid",
            "Convert it to UTF-8.",
        ) from error


def require_unique(columns: Iterable[str], names: Sequence[str], where: Path | str) -> None:
    """Raise InputError if one of `columns` occurs several times among a table's `names`."""
    for column in columns:
        if names.count(column) > 1:
            problem = f"cannot read {where}: it has several columns {column!r}"
            raise InputError(problem, "Rename all but one.")


def too_many_values(where: Path | str) -> InputError:
    return InputError(
        f"cannot read {where}: it holds more than {MAX_ROW_VALUES:,} values", "Cut it into several."
    )
