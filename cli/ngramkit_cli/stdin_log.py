"""A log from standard input: `-` in place of a file."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ngramkit.basics.errors import InputError, NgramkitError, UsageError
from ngramkit.basics.progress import Reporter

STDIN = Path("-")
STDIN_NAME = "standard input"  # in messages


class _Renaming(Reporter):
    """A reporter that names a temporary file in its notes by what it is a copy of."""

    def __init__(self, reporter: Reporter, path: str) -> None:
        self._reporter, self._path = reporter, path

    def stage(self, name: str, total: float | None = None, unit: str = "tokens") -> None:
        self._reporter.stage(name, total, unit)

    def advance(self, amount: float, **counts: float) -> None:
        self._reporter.advance(amount, **counts)

    def fetched(self, source: str, commit: str) -> None:
        self._reporter.fetched(source, commit)

    def note(self, text: str) -> None:
        self._reporter.note(text.replace(self._path, STDIN_NAME))


@contextmanager
def with_stdin(files: Sequence[Path], reporter: Reporter) -> Iterator[tuple[list[Path], Reporter]]:
    """Yield the files and a reporter for them.

    Standard input, read to its end, is a temporary file in place of `-`. Its name is not in notes
    and errors.
    """
    if STDIN not in files:
        yield list(files), reporter
        return
    if files.count(STDIN) > 1:
        raise UsageError("- must be given once: it is standard input", "leave out the others")
    if sys.stdin is None:
        raise InputError("cannot read the log: stdin is closed", "name a file")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "stdin"
        with copy.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        try:
            logs = [copy if each == STDIN else each for each in files]
            yield logs, _Renaming(reporter, str(copy))
        except NgramkitError as error:
            error.args = (str(error).replace(str(copy), STDIN_NAME), *error.args[1:])
            error.hint = error.hint.replace(str(copy), STDIN_NAME)
            raise
