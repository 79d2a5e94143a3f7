"""A command's output: the result on stdout, progress and notes on stderr.

With --json the result is one object, the only line of stdout. A command's body runs inside
`Output`; an error becomes one or two lines and an exit code. The library's warnings go to stderr,
with -v its whole log, with -vv other libraries' logs too.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self

import typer

from ngramkit.basics.errors import NgramkitError, UsageError
from ngramkit.basics.kinds import a_kind
from ngramkit.basics.terminal_text import counts_text, size_text, visible, without_secrets
from ngramkit_cli import streams, tables
from ngramkit_cli.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    error_lines,
    exit_code,
    in_flags,
    to_ngramkit_error,
)
from ngramkit_cli.progress_reporters import BarReporter, LineReporter, QuietReporter

if TYPE_CHECKING:
    from ngramkit.formats.artifact import Artifact

LIBRARY = "ngramkit"
NOTICE = 25  # level between INFO and WARNING, for slow steps
logging.addLevelName(NOTICE, "NOTICE")


class Output:
    """The output of one command. `verbosity` is -1 with --quiet, 1 with -v, 2 with -vv."""

    def __init__(self, command: str, *, json: bool, debug: bool, verbosity: int = 0) -> None:
        self.command, self.json = command, json
        self._debug, self._verbosity = debug, verbosity
        self._started = time.perf_counter()
        self.partial: dict[str, Any] = {}  # results that the JSON object of an error has, too
        self._written = False  # the JSON object
        self.reporter: QuietReporter  # bars on a terminal, else lines
        if verbosity < 0:
            self.reporter = QuietReporter()
        elif sys.stderr is not None and sys.stderr.isatty():
            self.reporter = BarReporter()
        else:
            self.reporter = LineReporter(self._to_stderr)

    def __enter__(self) -> Self:
        self._log = _log_to(self.note, self._verbosity)
        self._log.__enter__()
        return self

    def say(self, *lines: str) -> None:
        """Write to stderr, without control characters and URLs' secrets; nothing with --quiet."""
        if self._verbosity >= 0:
            self.reporter.close()
            self._to_stderr(*map(without_secrets, lines))

    def show(self, *lines: str) -> None:
        """Write lines of the result to stdout; nothing with --json."""
        if self.json:
            return
        self.reporter.close()
        for line in lines or ("",):
            streams.write(visible(line))

    def confirm(self, question: str, *, sure: bool) -> None:
        """Ask on the terminal unless `sure`; end the command without a yes.

        Raises UsageError if nobody can be asked.
        """
        if sure:
            return
        if self.json or sys.stdin is None or not sys.stdin.isatty():
            raise UsageError(f"cannot {question}: nobody can be asked", "Give --yes.")
        self.reporter.close()
        self._to_stderr(f"{question}? [y/N]")
        answer = ""
        with suppress(EOFError):
            answer = streams.ask()
        if answer.strip().lower() not in ("y", "yes"):
            self._to_stderr("nothing was changed")
            raise typer.Exit(EXIT_FAILED)

    def note(self, text: str) -> None:
        """Write a line above the bars, also with --quiet, without URLs' secrets."""
        text = without_secrets(text)
        if isinstance(self.reporter, BarReporter):
            self.reporter.note(text)
        else:
            self._to_stderr(text)

    @staticmethod
    def _to_stderr(*lines: str) -> None:
        for line in lines or ("",):
            for part in tables.fit_line(visible(line), sys.stderr):
                print(part, file=sys.stderr, flush=True)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._started

    def result(self, artifact: object = None, **values: Any) -> None:
        self.reporter.close()
        if not self.json:
            return
        path = None if artifact is None else str(artifact)
        head = {"command": self.command, "artifact": path, "seconds": round(self.seconds, 6)}
        fetched = self.reporter.revisions
        revisions = {"revisions": fetched} if fetched else {}
        streams.write(json.dumps({**head, **values, **revisions}))
        self._written = True

    def made(self, artifact: Artifact, from_bytes: int | None = None) -> None:
        """Print a created artifact; `from_bytes` is the size before."""
        manifest, kind = artifact.manifest, artifact.kind
        counts = counts_text(manifest.counts)
        before = "" if from_bytes is None else f" of {size_text(from_bytes)}"
        self.show(
            f"{artifact.where}: {a_kind(kind)}, {counts}, {size_text(manifest.bytes)}{before}"
        )
        smaller = {} if from_bytes is None else {"from_bytes": from_bytes}
        self.result(artifact.where, kind=kind, **manifest.counts, bytes=manifest.bytes, **smaller)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.reporter.close(whole=error is None)
        self._log.__exit__(None, None, None)
        if error is None or isinstance(error, (typer.Exit, SystemExit)) or self._debug:
            return
        hint = getattr(error, "hint", "")
        notes = [note for note in getattr(error, "__notes__", ()) if note != hint]
        if isinstance(error, KeyboardInterrupt):
            self._to_stderr("interrupted", *(f"  {note}" for note in notes))
            if self.partial:
                self._write_error("interrupted", "")
            raise typer.Exit(EXIT_INTERRUPTED) from None
        if isinstance(error, BrokenPipeError):
            streams.forget_stdout()
            raise typer.Exit(EXIT_FAILED) from None
        self._fail(to_ngramkit_error(error), notes)

    def _fail(self, error: NgramkitError, notes: Sequence[str]) -> None:
        message, hint = in_flags(error)
        self._to_stderr(*error_lines(message, hint, *notes))
        self._write_error(message, hint)
        raise typer.Exit(exit_code(error)) from None

    def _write_error(self, message: str, hint: str) -> None:
        if self.json and not self._written:
            body = {"command": self.command, "error": message, "hint": hint, **self.partial}
            with suppress(NgramkitError, OSError):
                streams.write(json.dumps(body))


class _NoteHandler(logging.Handler):
    """A handler that writes records as lines for people."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__(NOTICE)
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        prefix = "warning: " if record.levelno >= logging.WARNING else ""
        self._note(prefix + record.getMessage())


@contextmanager
def _log_to(note: Callable[[str], None], verbosity: int) -> Iterator[None]:
    """Send warnings to `note`; with a verbosity above 0, the whole log to stderr."""
    logger = logging.getLogger("" if verbosity > 1 else LIBRARY)
    level = logger.level
    handler: logging.Handler = _NoteHandler(note)
    if verbosity == 0:
        logger.setLevel(NOTICE)
    if verbosity > 0:
        from rich.console import Console
        from rich.logging import RichHandler

        console = Console(stderr=True)
        handler = RichHandler(console=console, show_path=False, highlighter=None, markup=False)
        logger.setLevel(logging.DEBUG if verbosity > 1 else logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def peak_rss() -> int:
    """Return peak memory in bytes."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10
