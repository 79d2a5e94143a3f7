"""Readers of a corpus's files, one per kind: open bytes in, rows out.

A record (column name -> value) becomes a row by its text column. A large parquet file is cut at its
row groups, so that several processes can read it. Errors say file and place. A record that is bad
(it does not parse, lacks the column or holds no text in it) is an error, or where bad ones are
skipped, a row without texts that says why.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from ngramkit.basics.errors import BadRecordError, InputError, first_line
from ngramkit.basics.terminal_text import many, visible
from ngramkit.basics.untrusted import parse_json
from ngramkit.corpus.document import Row
from ngramkit.corpus.unpacking import (
    MAGIC,
    MAX_DOCUMENT,
    MessageError,
    is_string,
    lines,
    require_bounded,
    row_sizes,
    too_large,
    whole,
    without_dictionaries,
)

PREFERRED = ("text", "content")
LISTED = 30  # columns in an error
LICENSES = ("license", "licenses", "licence", "max_stars_repo_licenses")
REPOSITORIES = ("repo_name", "max_stars_repo_name", "repository_name", "repository", "repo")
LARGE = 16 << 20  # bytes of a file, from which on it may be cut into several
STRETCH = 64 << 20  # bytes of unpacked columns
MOST_VALUES = 1 << 22  # of a record, or of a .json file: Python takes some 100 bytes for each
BYTES_OF_VALUE = 64  # that Python takes beside a text
BATCH = 1024  # most rows of a parquet file decoded at a time
UNFOLDED = 16  # a file that is unpacked as a whole may have so many times its size, or a document's
# Text codecs that no source is written in: one always fails, the others take quadratic time.
NOT_FOR_SOURCES = {"undefined", "idna", "punycode"}
# PEP 263: only the first two lines may declare an encoding.
CODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")


@dataclass(frozen=True)
class ReaderOptions:
    """The options of a reader; `join_turns` makes a conversation one document, `skip_bad` goes on
    behind bad records."""

    column: str | None = None
    join_turns: bool = False
    skip_bad: bool = False
    max_document: int = MAX_DOCUMENT  # bytes; of a .json file, which is read whole

    def record(self) -> dict[str, Any]:
        """Return JSON for a corpus's record: only the options that are set."""
        given = {"column": self.column, "join_turns": self.join_turns, "skip_bad": self.skip_bad}
        return {name: value for name, value in given.items() if value not in (None, False)}


Reader = Callable[[Path, IO[bytes], ReaderOptions], Iterator[Row]]


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


def text_column(columns: Mapping[str, bool], wanted: str | None, where: str) -> str:
    """Return the column to read; `columns` maps each to whether it holds strings.

    It is `wanted` if given, else `text`, else `content`, else the only string column. Raises
    InputError where none of these decides.
    """
    listed = ", ".join(visible(name, 60) for name in islice(columns, LISTED)) or "none"
    if len(columns) > LISTED:
        listed += f" and {len(columns) - LISTED:,} more"
    if wanted is not None:
        if wanted not in columns:
            raise BadRecordError(f"{where} has no column {wanted!r}", f"its columns: {listed}")
        return wanted
    strings = [name for name, is_string in columns.items() if is_string]
    for name in PREFERRED:
        if name in columns:
            return name
    if len(strings) == 1:
        return strings[0]
    kind = InputError if strings else BadRecordError
    raise kind(
        f"nothing tells which of its columns holds the text of {where}",
        f"give column, one of {listed}" if columns else "it has no columns",
        option="column",
    )


@dataclass(frozen=True)
class RowMaker:
    """The columns that make a row of a record. `join_turns` makes a conversation one document."""

    column: str
    license_column: str | None = None
    repository_column: str | None = None
    join_turns: bool = False

    @classmethod
    def of(cls, columns: Mapping[str, bool], where: str, reading: ReaderOptions) -> RowMaker:
        """Choose the text column, and find the others by their usual names; errors as those of
        `text_column`."""
        column = text_column(columns, reading.column, where)
        others = _first(LICENSES, columns), _first(REPOSITORIES, columns)
        return cls(column, *others, reading.join_turns)

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        names = (self.column, self.license_column, self.repository_column)
        return [name for name in names if name is not None]

    def row(self, record: Mapping[str, Any]) -> Row:
        """Make a row. Raises KeyError without the column, TypeError where it holds no text."""
        texts = texts_of(record[self.column])
        if self.join_turns and len(texts) > 1:
            texts = ("\n\n".join(texts),)
        licenses = _strings(record.get(self.license_column)) if self.license_column else ()
        names = _strings(record.get(self.repository_column)) if self.repository_column else ()
        return Row(texts, licenses, names[0] if names else "")


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


def is_null(value: Any) -> bool:
    """Return whether there is no value: None, or what pandas has in its place, NaN or NA."""
    if isinstance(value, float):
        return value != value
    return value is None or type(value).__name__ == "NAType"


def _turn(turn: Any) -> str:
    if isinstance(turn, str):
        return turn
    content = turn.get("content", turn.get("value")) if isinstance(turn, Mapping) else None
    if isinstance(content, str):
        return content
    raise TypeError(f"a turn that is neither a text nor has a text as content: {turn!r:.60}")


def _first(names: Sequence[str], columns: Mapping[str, bool]) -> str | None:
    return next((name for name in names if name in columns), None)


def _strings(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    values = [value] if isinstance(value, str) else value
    return tuple(str(entry) for entry in values if entry)


# The footer of a parquet file: where to cut it, how many rows it has, where they lie.


def _footer(file: Path | IO[bytes]) -> Any:
    """Return the pyarrow.parquet.FileMetaData; None of a damaged file, whose rows raise the
    error."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with suppress(pa.ArrowException, OSError, UnicodeError):
        return pq.read_metadata(file)
    return None


def split_row_groups(path: Path) -> list[tuple[int, int]]:
    """Return row groups [begin, end) of about STRETCH bytes each; [] for a small or damaged
    file."""
    footer = _footer(path) if path.exists() and path.stat().st_size >= LARGE else None
    if footer is None:
        return []
    cuts, total = [0], 0
    for group in range(footer.num_row_groups):
        size = footer.row_group(group).total_byte_size
        if total and total + size > STRETCH:
            cuts.append(group)
            total = 0
        total += size
    return list(zip(cuts, [*cuts[1:], footer.num_row_groups], strict=True))


def count_documents(path: Path, column: str | None, groups: Sequence[int] | None) -> int | None:
    """Count the documents in these row groups, by default in all.

    Return None where only the rows tell: a conversation may be several documents.
    """
    import pyarrow as pa

    footer = _footer(path)
    if footer is None:
        return None
    try:
        columns = string_columns(footer.schema.to_arrow_schema())
        if not columns[text_column(columns, column, str(path))]:
            return None
    except (pa.ArrowException, UnicodeError, InputError):
        return None  # reading the rows raises the error
    counted = range(footer.num_row_groups) if groups is None else groups
    return sum(int(footer.row_group(i).num_rows) for i in counted)


def row_places(path: Path, file: IO[bytes]) -> Iterator[int] | None:
    """Return an iterator that gives, for each row of an open parquet file, the bytes read up to it.

    That is the size of the row groups before, and an even share of the row's own group. Return None
    for files of other kinds and damaged ones.
    """
    if path.suffix.lower() != ".parquet" or not file.seekable():
        return None
    footer = _footer(file)
    file.seek(0)

    def places() -> Iterator[int]:
        before = 0
        for group in map(footer.row_group, range(footer.num_row_groups)):
            columns = map(group.column, range(group.num_columns))
            size = sum(column.total_compressed_size for column in columns)
            for row in range(group.num_rows):
                yield before + size * (row + 1) // group.num_rows
            before += size

    return None if footer is None else places()


# The readers.


def read_text(path: Path, file: IO[bytes], reading: ReaderOptions) -> Iterator[Row]:
    """Yield the whole file as one document, in UTF-8."""
    raw = whole(file, reading.max_document, str(path))
    yield attempt(lambda: Row((_decode(path, raw, "utf-8-sig"),)), reading.skip_bad)


def read_python(path: Path, file: IO[bytes], reading: ReaderOptions) -> Iterator[Row]:
    """Yield the whole file as one document, in the encoding that the source declares."""
    raw = whole(file, reading.max_document, str(path))
    declared = next(filter(None, map(CODING.match, raw.splitlines()[:2])), None)
    encoding = declared.group(1).decode() if declared else "utf-8-sig"
    yield attempt(lambda: Row((_decode(path, raw, encoding),)), reading.skip_bad)


def _decode(path: Path, raw: bytes, encoding: str) -> str:
    try:
        if encoding.lower() in NOT_FOR_SOURCES:
            raise LookupError(encoding)
        text = raw.decode(encoding)
    except LookupError as error:
        raise BadRecordError(
            f"{path} declares an unknown encoding: {encoding}",
            "correct it, or leave the file out",
        ) from error
    except UnicodeError as error:
        place = f"byte {error.start:,}" if isinstance(error, UnicodeDecodeError) else "it"
        raise BadRecordError(
            f"{path} is not {encoding.removesuffix('-sig')}: {place} cannot be decoded",
            "convert the file to UTF-8, or leave it out",
        ) from error
    return io.IncrementalNewlineDecoder(None, translate=True).decode(text, final=True)


def read_jsonl(path: Path, file: IO[bytes], reading: ReaderOptions) -> Iterator[Row]:
    """Yield one row per line; blank lines are skipped."""

    def records() -> Iterator[tuple[str, Any]]:
        for number, line in lines(file, reading.max_document, str(path)):
            where = f"{path}, line {number}"
            yield where, _parse(line, where)

    return record_rows(records(), reading)


def json_rows(path: Path, file: IO[bytes], reading: ReaderOptions) -> Iterator[Row]:
    """Yield the rows of a list of records, or of one record; the file is read whole."""
    body = _parse(whole(file, reading.max_document, str(path)), str(path))
    if isinstance(body, BadRecordError):
        return record_rows([(str(path), body)], reading)
    listed = enumerate(body if isinstance(body, list) else [body])
    return record_rows(((f"{path}, record {number}", record) for number, record in listed), reading)


def _parse(raw: bytes, where: str) -> Any:
    """Return the record in JSON; the error of one that does not parse."""
    hint = "mend it, or drop it"
    try:
        return parse_json(raw, where, most_values=MOST_VALUES, error=BadRecordError, hint=hint)
    except BadRecordError as error:
        return error


def record_rows(records: Iterable[tuple[str, Any]], reading: ReaderOptions) -> Iterator[Row]:
    """Yield the rows of (place, record); the first record that is not bad decides which columns
    are read. A BadRecordError stands for a record that does not parse, a null is an empty text."""
    maker: RowMaker | None = None

    def row(where: str, record: Any) -> Row:
        nonlocal maker
        if isinstance(record, BadRecordError):
            raise record
        if is_null(record):
            return Row(("",))
        maker = maker or _maker(where, record, reading)
        return read_row(where, maker, record)

    for where, record in records:
        yield attempt(partial(row, where, record), reading.skip_bad)


def _maker(where: str, record: Any, reading: ReaderOptions) -> RowMaker:
    if isinstance(record, str):
        return RowMaker("")
    if not isinstance(record, Mapping):
        kind = type(record).__name__
        raise BadRecordError(f"{where} is neither a text nor an object: {kind}", _remedy(record))
    return RowMaker.of(guessed_columns(record), where, reading)


def guessed_columns(record: Mapping[str, Any]) -> dict[str, bool]:
    """Return {column: whether it holds strings} by a record: a null may be one in the next."""
    columns = {name: isinstance(value, str) for name, value in record.items()}
    if any(columns.values()):
        return columns
    return {name: is_null(value) for name, value in record.items()}


def _remedy(record: Any) -> str:
    """Return what to do about a record that is no text."""
    return "decode it, or drop it" if isinstance(record, bytes) else "mend it, or drop it"


def read_row(where: str, maker: RowMaker, record: Any) -> Row:
    """Make a row of the record at `where`. Raises BadRecordError where it holds no text."""
    try:
        if isinstance(record, str) and not maker.column:
            return Row((record,))
        if isinstance(record, Mapping):
            return maker.row(record)
        wanted = "an object" if maker.column else "a text"
        raise TypeError(f"{type(record).__name__} where {wanted} was expected")
    except KeyError as error:
        fault = f"has no {maker.column!r}" if maker.column else "is an object among texts"
        raise BadRecordError(f"{where} {fault}", "mend it, or drop it") from error
    except TypeError as error:
        value = record.get(maker.column) if isinstance(record, Mapping) else record
        other = "choose another column, or " if maker.column else ""
        raise BadRecordError(
            f"{where}: {error}", f"{other}{_remedy(value)}", option="column"
        ) from error


def read_csv(
    path: Path, file: IO[bytes], reading: ReaderOptions, separator: str = ","
) -> Iterator[Row]:
    """Yield one row per line, or per several where a quoted value goes on over them; the first one
    names the columns."""
    table = _CsvTable(file, separator, reading.max_document, str(path))
    header = next(table, None)
    if header is None:
        return
    maker = RowMaker.of(dict.fromkeys(header, True), str(path), reading)
    if header.count(maker.column) > 1:
        raise InputError(f"{path} has several columns {maker.column!r}", "rename all but one")

    def row() -> Row:
        values, where = next(table), table.where
        if len(values) != len(header):
            raise BadRecordError(
                f"{where} has {many(len(values), 'value')} for {many(len(header), 'column')}",
                "mend it, or drop it",
            )
        record = dict(zip(header, values, strict=True))
        require_text(record[maker.column], where)
        return maker.row(record)

    while True:
        try:
            yield attempt(row, reading.skip_bad)
        except StopIteration:
            return


class _CsvTable:
    """The rows of a csv file that are not blank, as lists; bytes that are no UTF-8 are surrogates.

    `where` is the line in which the last row began. A row that is bad raises BadRecordError, and
    the next one begins in the line after it.
    """

    def __init__(self, file: IO[bytes], separator: str, most: int, name: str) -> None:
        csv.field_size_limit(max(csv.field_size_limit(), most))  # of the process; `most` bounds it
        self._file, self._most, self._name = file, most, name
        self._separator = separator.encode()
        self._bytes = self._values = 0  # of the row so far
        self._rows = csv.reader(self._lines(), delimiter=separator, strict=True)
        self.where = name

    def _lines(self) -> Iterator[str]:
        encoding = "utf-8-sig"
        while line := self._file.readline(self._most + 1):
            self._bytes += len(line)
            if self._bytes > self._most:
                raise too_large(self.where, self._most)
            self._values += line.count(self._separator)
            if self._values >= MOST_VALUES:
                raise _too_many_values(self.where)
            yield line.decode(encoding, "surrogateescape")
            encoding = "utf-8"

    def __next__(self) -> list[str]:
        while True:
            self._bytes = self._values = 0
            self.where = f"{self._name}, line {self._rows.line_num + 1}"
            try:
                if row := next(self._rows):
                    return row
            except csv.Error as error:
                raise BadRecordError(
                    f"{self.where}: {error}", "mend its quotes, or drop it"
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


def read_parquet(
    path: Path, file: IO[bytes], reading: ReaderOptions, groups: Sequence[int] | None = None
) -> Iterator[Row]:
    """Yield the rows of the row groups `groups`, by default of all; other columns are not
    decoded."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(file)
        maker = RowMaker.of(string_columns(schema), str(path), reading)
        # As dictionaries: a value that occurs a million times is in memory once.
        folded = pq.ParquetFile(file, read_dictionary=_text_paths(pq.read_metadata(file)))
        at_once = _rows_at_once(folded.metadata, reading.max_document)
        sizes = [folded.metadata.row_group(i).num_rows for i in range(folded.num_row_groups)]
        for group in range(len(sizes)) if groups is None else groups:
            batches = _group_batches(file, folded, group, maker.columns, at_once)
            yield from table_rows(path, maker, batches, reading, first=sum(sizes[:group]))
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise _damaged(path, error) from error


def _group_batches(
    file: IO[bytes], folded: Any, group: int, columns: list[str], many: int
) -> Iterator[Any]:
    """Yield one row group's batches: none with lists of dictionaries may reach over two groups."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    begun = False
    try:
        for batch in folded.iter_batches(many, row_groups=[group], columns=columns):
            begun = True
            yield batch
    except (pa.ArrowException, OSError) as error:
        if begun or "DictAccumulator" not in str(error):
            raise
        # Delta encoding, of which no dictionary can be made: each value may repeat the last one.
        yield from pq.ParquetFile(file).iter_batches(1, row_groups=[group], columns=columns)


def read_arrow(path: Path, file: IO[bytes], reading: ReaderOptions) -> Iterator[Row]:
    """Yield the rows of Arrow IPC, as a file or as a stream (which `datasets` saves)."""
    import pyarrow as pa

    try:
        batches = _arrow_batches(file, reading.max_document)
        for first in islice(batches, 1):
            maker = RowMaker.of(string_columns(first.schema), str(path), reading)
            yield from table_rows(path, maker, chain([first], batches), reading)
    except (pa.ArrowException, OSError, UnicodeError, MessageError) as error:
        raise _damaged(path, error) from error


def _arrow_batches(file: IO[bytes], most: int) -> Iterator[Any]:
    """Yield the batches of a stream; in a file, too, since its footer may say something else."""
    import pyarrow as pa

    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    if file.read(len(MAGIC)) != MAGIC:
        file.seek(0)
    require_bounded(file, size, UNFOLDED * max(size, most))
    yield from pa.ipc.open_stream(file)


def string_columns(schema: Any) -> dict[str, bool]:
    """Return {column: whether it holds strings} of an Arrow schema."""
    return {field.name: is_string(field.type) for field in schema}


def _text_paths(footer: Any) -> list[str]:
    """Return the paths of columns of texts, also below lists and objects."""
    columns = (footer.schema.column(i) for i in range(footer.num_columns))
    return [column.path for column in columns if column.logical_type.type == "STRING"]


def _rows_at_once(footer: Any, most: int) -> int:
    """Return how many rows have about `most` bytes together."""
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    size = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return max(1, min(BATCH, most // max(size, 1)))


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
        raise _too_many_values(where)
    longest = int((bytes_ + BYTES_OF_VALUE * values).max(initial=0))
    step = max(1, min(BATCH, most // max(longest, 1)))
    plain = pa.schema([(field.name, without_dictionaries(field.type)) for field in chosen.schema])
    for begin in range(0, chosen.num_rows, step):
        rows = chosen.slice(begin, step)
        with suppress(pa.ArrowNotImplementedError):  # of a dictionary of views
            rows = rows.cast(plain)  # which takes half the time
        yield from rows.to_pylist()


def _too_many_values(where: Path | str) -> InputError:
    return InputError(f"{where} holds more than {MOST_VALUES:,} values", "cut it into several")


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(f"{path} is damaged: {first_line(error)}", "fetch the file again")


READERS: dict[str, Reader] = {
    ".txt": read_text,
    ".md": read_text,
    ".py": read_python,
    ".jsonl": read_jsonl,
    ".json": json_rows,
    ".csv": read_csv,
    ".tsv": partial(read_csv, separator="\t"),
    ".parquet": read_parquet,
    ".arrow": read_arrow,
}
