"""What people see goes to stderr, one JSON object for programs is the last line of stdout.

A command's body runs inside `Output`; an error in it becomes one or two lines and an exit code.
"""

from __future__ import annotations

import errno
import json
import resource
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import typer

from ngramkit.errors import NgramkitError
from ngramkit.progress import Reporter
from ngramkit.visible import visible
from ngramkit_cli.command import running_flags
from ngramkit_cli.flags import with_flags

INTERRUPTED = 130
WIDEST = 32  # characters of a table's first column


class Output:
    """`with Output("verify", json=json, debug=debug) as out:`, ended by `out.result(...)`."""

    def __init__(self, command: str, *, json: bool, debug: bool) -> None:
        self.command = command
        self._json = json
        self._debug = debug
        self._started = time.perf_counter()
        self._reporter: BarReporter | None = None
        self._revisions: dict[str, str] = {}  # the commit of every hf:// source

    def __enter__(self) -> Self:
        return self

    def say(self, *lines: str) -> None:
        """Lines for people. Whatever is in one, it stays one line and drives no terminal."""
        for line in lines or ("",):
            print(visible(line), file=sys.stderr, flush=True)

    def show(self, *lines: str) -> None:
        """Lines that are the command's result: stdout's, unless a program reads that."""
        if self._json:
            self.say(*lines)
        else:
            for line in lines or ("",):
                print(visible(line), flush=True)

    @property
    def reporter(self) -> BarReporter:
        """Draws progress bars on a terminal; elsewhere prints only the notes."""
        if self._reporter is None:
            self._reporter = BarReporter(self)
        return self._reporter

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._started

    def fetch(self, source: str | Path) -> Path:
        """An artifact's folder, for hf:// in the Hub's cache; the JSON line says which commit."""
        from ngramkit.hub import Source, fetch

        fetched = fetch(source, reporter=self.reporter)
        if fetched.commit is not None:
            self._revisions[f"hf://{Source.parse(str(source))}"] = fetched.commit
        return fetched.path

    def used(self, revisions: Mapping[str, str]) -> None:
        """The commits of hf:// sources that the library fetched; the JSON line says them."""
        self._revisions.update(revisions)

    def result(self, artifact: object = None, **values: Any) -> None:
        """Prints the JSON line when it was asked for."""
        if self._reporter is not None:
            self._reporter.close()
        if not self._json:
            return
        path = None if artifact is None else str(artifact)
        head = {"command": self.command, "artifact": path, "seconds": round(self.seconds, 6)}
        revisions = {"revisions": self._revisions} if self._revisions else {}
        print(json.dumps({**head, **values, **revisions}), flush=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._reporter is not None:
            self._reporter.close()
        if error is None or isinstance(error, (typer.Exit, SystemExit)) or self._debug:
            return
        if isinstance(error, KeyboardInterrupt):
            self.say("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        if isinstance(error, BrokenPipeError):
            raise typer.Exit(1) from None
        known = error if isinstance(error, NgramkitError) else _as_known(error)
        self._fail(known)

    def _fail(self, error: NgramkitError) -> None:
        flags = running_flags()
        message, hint = (with_flags(text, error.option, flags) for text in (str(error), error.hint))
        self.say(f"error: {message}")
        if hint:
            self.say(f"  -> {hint}")
        if self._json:
            said = {"command": self.command, "error": message, "hint": hint}
            print(json.dumps(said), flush=True)
        raise typer.Exit(error.exit_code) from None


def _as_known(error: BaseException) -> NgramkitError:
    """Operating-system errors that any command can meet; others are bugs, and say so."""
    from ngramkit.errors import InputError

    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = f" at {error.filename}" if error.filename else ""
        return InputError(
            f"no space left on the disk{where}",
            "free some space and run the same command again; finished shards are kept",
        )
    if isinstance(error, PermissionError):
        return InputError(f"no permission for {error.filename}", "choose another path")
    if isinstance(error, MemoryError):
        return InputError("out of memory", "lower --memory, --shard-tokens or the sample")
    return NgramkitError(
        f"unexpected {type(error).__name__}: {error}",
        "this is a bug in ngramkit: run again with --debug and report the traceback",
    )


class BarReporter(Reporter):
    """A rich progress bar per stage, on a terminal only."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._progress: Any = None
        self._task: Any = None
        self._started = 0.0

    def stage(self, name: str, total: float | None = None, unit: str = "tokens") -> None:
        if not sys.stderr.isatty():
            return
        if self._progress is None:
            self._progress = self._new_bars()
            self._progress.start()
        self._started = time.perf_counter()
        self._task = self._progress.add_task(
            visible(name, WIDEST), total=total, unit=unit, counts=""
        )

    def advance(self, amount: float, **counts: float) -> None:
        if self._progress is None:
            return
        seconds = max(time.perf_counter() - self._started, 1e-9)
        text = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        if "tokens" in counts:
            text += f", {counts['tokens'] / seconds:,.0f} tokens/s"
        self._progress.update(self._task, advance=amount, counts=text)

    def note(self, text: str) -> None:
        if self._progress is not None:
            self._progress.console.print(visible(text), highlight=False, markup=False)
        else:
            self._output.say(text)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    @staticmethod
    def _new_bars() -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        return Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%  {task.fields[counts]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )


def table(title: str, rows: Mapping[str, object]) -> list[str]:
    """Two aligned columns under a title, as lines."""
    width = min(max(map(len, rows), default=0), WIDEST)
    return [title, *(f"  {visible(name, WIDEST).ljust(width)}  {rows[name]}" for name in rows)]


def peak_rss() -> int:
    """Most bytes of memory that this process has held at once."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10
