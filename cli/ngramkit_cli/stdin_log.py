"""A log from standard input: `-` in place of a file."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ngramkit.basics.errors import InputError, NgramkitError, UsageError
from ngramkit_cli.progress_reporters import QuietReporter

STDIN = Path("-")
STDIN_NAME = "standard input"  # in messages


@contextmanager
def with_stdin(files: Sequence[Path], reporter: QuietReporter) -> Iterator[list[Path]]:
    """Yield the files.

    Standard input, read to its end, is a temporary file in place of `-`. Its name is not in notes
    and errors.
    """
    if STDIN not in files:
        yield list(files)
        return
    if files.count(STDIN) > 1:
        raise UsageError("- must be given once: it is standard input", "Leave out the others.")
    if sys.stdin is None:
        raise InputError("cannot read the log: stdin is closed", "Name a file.")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "stdin"
        with copy.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        reporter.renamed[str(copy)] = STDIN_NAME
        try:
            yield [copy if each == STDIN else each for each in files]
        except NgramkitError as error:
            error.args = (str(error).replace(str(copy), STDIN_NAME), *error.args[1:])
            error.hint = error.hint.replace(str(copy), STDIN_NAME)
            raise
