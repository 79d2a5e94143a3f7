"""Tables of separated values: CSV and TSV.

A quoted value may span lines. If its quote never closes or the row has a wrong width, only its
first line is bad. A TSV line of the right width is a row regardless of quotes.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from ngramkit.basics.errors import BadRecordError, InputError
from ngramkit.basics.terminal_text import counted
from ngramkit.corpus.columns import ColumnContent, Columns
from ngramkit.corpus.document import Row
from ngramkit.corpus.rows import (
    MAX_ROW_VALUES,
    ReaderOptions,
    RowMaker,
    make_or_skip,
    require_text,
    require_unique,
    too_many_values,
)
from ngramkit.corpus.unpacking import BOM, require_utf_8, too_large

SEPARATORS = ",;\t|"
EXCEL_SEPARATOR = re.compile(rb"sep=([,;\t|])\s*")  # an optional first line
SAMPLE_LINES, SAMPLE_BYTES = 32, 1 << 16  # inspected for another separator


def read_separated(
    path: Path, file: IO[bytes], reading: ReaderOptions, separator: str = ","
) -> Iterator[Row]:
    table = _Table(file, separator, reading.max_document, str(path))
    header = next(table, None)
    if header is None:
        return
    table.width = len(header)
    maker = RowMaker.of(Columns(dict.fromkeys(header, ColumnContent.TEXT)), str(path), reading)
    require_unique([maker.column], header, path)

    def row() -> Row:
        record = dict(zip(header, next(table), strict=True))
        require_text(record[maker.column], table.where)
        return maker.row(record)

    while True:
        try:
            yield make_or_skip(row, reading.skip_bad)
        except StopIteration:
            return


class _Table:
    """An iterator over non-blank rows; invalid UTF-8 becomes surrogates.

    After a BadRecordError, the next row begins in the line after `where`.
    """

    def __init__(self, file: IO[bytes], separator: str, most: int, name: str) -> None:
        # Process-wide; `most` bounds this table.
        csv.field_size_limit(max(csv.field_size_limit(), most))
        self.where, self.width = name, 0
        self._file, self._most, self._name = file, most, name
        head = _first_bytes(file, most)
        require_utf_8(b"".join(head[:1]), name)
        self._again = io.BytesIO(b"".join(head))  # lines to read before the file's
        self._first = 1  # number of the csv reader's first line
        if head and (told := EXCEL_SEPARATOR.fullmatch(head[0])):
            separator = told[1].decode()
            self._again.seek(len(head[0]))
            self._first = 2
        else:
            separator = _find_separator(head, separator, name)
        self._separator = separator
        self._mark = separator.encode()
        self._span = bytearray()  # lines of the current row
        self._line = self._values = 0  # its first line, and an upper bound of its values
        self._rows = self._reader()

    def _reader(self) -> Any:
        return csv.reader(self._lines(), delimiter=self._separator, strict=True)

    def _lines(self) -> Iterator[str]:
        most, span, mark = self._most + 1, self._span, self._mark
        for readline in (self._again.readline, self._file.readline):
            while line := readline(most):
                span += line
                if len(span) >= most:
                    if len(span) == len(line):
                        raise too_large(self.where, self._most)
                    raise csv.Error(f"a document of more than {self._most:,} bytes")
                self._values += line.count(mark) + 1
                if self._values > MAX_ROW_VALUES:
                    raise too_many_values(self.where)
                yield line.decode("utf-8", "surrogateescape")

    def __next__(self) -> list[str]:
        while True:
            self._span.clear()
            self._values, before = 0, self._rows.line_num
            self._line = self._first + before
            self.where = f"{self._name}, line {self._line}"
            try:
                row: list[str] = next(self._rows)
            except csv.Error as error:
                return self._first_line_of_row(f"{self.where}: {error}")
            joined = self._rows.line_num - before > 1
            wrong = self.width and (len(row) != self.width or (joined and self._joins_rows()))
            if row and wrong:
                values, columns = counted(len(row), "value"), counted(self.width, "column")
                return self._first_line_of_row(f"{self.where} has {values} for {columns}")
            if row:
                return row

    def _joins_rows(self) -> bool:
        """Return whether each line of the current row is one, so that its quote is text."""
        between = self.width - 1
        lines = bytes(self._span).splitlines() if self._separator == "\t" else []
        return between > 0 and bool(lines) and all(each.count(b"\t") == between for each in lines)

    def _first_line_of_row(self, problem: str) -> list[str]:
        """Return the first line if it is a TSV row, else raise BadRecordError; reread the rest."""
        line, _, others = bytes(self._span).partition(b"\n")
        if self._again.tell() < len(self._again.getbuffer()):
            self._again.seek(-len(others), io.SEEK_CUR)
        else:
            self._again = io.BytesIO(others)
        self._first = self._line + 1
        self._rows = self._reader()
        if self._separator == "\t" and line.count(b"\t") == self.width - 1:
            return line.removesuffix(b"\r").decode("utf-8", "surrogateescape").split("\t")
        quotes = "its quotes" if b'"' in line else "it"
        raise BadRecordError(problem, f"Mend {quotes}, or drop it.")


def _first_bytes(file: IO[bytes], most: int) -> list[bytes]:
    head: list[bytes] = []
    while len(head) < SAMPLE_LINES and sum(map(len, head)) < SAMPLE_BYTES:
        if not (line := file.readline(most + 1)):
            break
        head.append(line if head else line.removeprefix(BOM))
    return head


def _find_separator(head: Sequence[bytes], usual: str, name: str) -> str:
    """Return `usual`, or another separator that splits all lines into as many columns."""
    lines = [text for line in head if (text := line.decode("utf-8", "replace")).strip()]
    if len(lines) < 2 or usual in lines[0]:
        return usual
    found = [other for other in SEPARATORS if other in lines[0] and _splits_alike(lines, other)]
    if len(found) > 1:
        raise InputError(
            f"cannot choose the separator of {name}: {' or '.join(map(repr, found))}",
            "Save it with another separator.",
        )
    return found[0] if found else usual


def _splits_alike(lines: Sequence[str], separator: str) -> bool:
    rows = list(csv.reader(lines, delimiter=separator))
    if len(rows) > 2:
        rows.pop()  # it may be incomplete
    return all(len(row) == len(rows[0]) for row in rows)
