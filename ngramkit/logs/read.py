"""Requests of any files, in the order in which they stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, groupby
from pathlib import Path

from ngramkit.errors import InputError, UsageError
from ngramkit.logs import slime
from ngramkit.logs.columns import reader
from ngramkit.logs.files import LogFile, log_files
from ngramkit.logs.formats import FORMATS, LogFormat, format_named, recognised, unknown
from ngramkit.logs.request import Line, LoggedRequest
from ngramkit.progress import SILENT, Reporter
from ngramkit.text import many

Files = str | Path | Iterable[str | Path]


def read_log(
    files: Files,
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    reporter: Reporter = SILENT,
) -> Iterator[LoggedRequest]:
    """Yield every request of the files, and of the files in folders.

    `format` is one of FORMATS; None: it is recognised, file by file, and said. `columns` names the
    columns of a JSON log by field (prompt, output, ...). What is left out is said at the end.

    Raises UsageError for an unknown format or field, InputError, with file and line, for a file
    that is missing, damaged or in none of the formats.
    """
    if columns is not None and format not in (None, "columns"):
        raise UsageError(
            f"columns are for JSON lines, not for the format {format}",
            "leave out one of them",
            option=("columns", "format"),
        )
    chosen = "columns" if columns else format
    named = format_named(chosen) if chosen else None
    read_columns = reader(columns) if columns else None
    paths, inside = log_files(files)
    told, others = _told(paths, inside, named)
    left_out: Counter[str] = Counter()
    for form, group in groupby(told, key=lambda pair: pair[1]):
        of_form = [file for file, _ in group]
        what = many(len(of_form), "file") if len(of_form) > 1 else str(of_form[0].path)
        reporter.note(f"log: {what}, {form.title}" + ("" if named else " (by its content)"))
        lines = chain.from_iterable(_lines(file, form) for file in of_form)
        for found in (read_columns or form.read)(lines):
            if isinstance(found, LoggedRequest):
                yield found
            else:
                left_out[found] += 1
    if others:
        reporter.note(f"left out: {many(others, 'file')} of the folders, in no known format")
    for why, count in left_out.most_common():
        reporter.note(f"left out: {many(count, 'request')} ({why})")


def _told(
    paths: list[Path], inside: set[Path], named: LogFormat | None
) -> tuple[list[tuple[LogFile, LogFormat]], int]:
    """Return the files with their formats, and how many of the folders' files have none."""
    told, others = [], 0
    for path in paths:
        try:
            file = LogFile(path)
            form = named or recognised(file)
            if form is None:
                raise unknown(file)
        except InputError:
            if path not in inside:
                raise
            others += 1
            continue
        told.append((file, form))
    if not told:
        raise InputError(
            "no file of the folder is in a known format",
            f"name one ({', '.join(FORMATS)})",
            option="format",
        )
    return told, others


def _lines(file: LogFile, form: LogFormat) -> Iterator[Line]:
    if file.is_torch:
        if form is not FORMATS["slime"]:
            raise InputError(f"{file.path} is a file of torch.save", "its format is slime")
        return slime.samples(file.path)
    return file.lines() if form.marks else file.objects()


def in_time(requests: Iterable[LoggedRequest]) -> list[LoggedRequest]:
    """Return the requests by their time where all have one, else as they stand."""
    listed = list(requests)
    if any(request.time is None for request in listed):
        return listed
    return sorted(listed, key=lambda request: request.time or 0.0)
