"""stdout and stderr, which may be closed or full, or have an encoding without some letters."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any

from ngramkit.basics.errors import NgramkitError

ASK = "> "  # before what the user types


def make_streams_safe() -> None:
    """Escape letters that the encoding lacks; reserve the file numbers of closed streams."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if isinstance(sys.stderr, io.TextIOWrapper):
        lossy = io.BufferedWriter(_Lossy(sys.stderr.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(
            lossy, sys.stderr.encoding, "backslashreplace", line_buffering=True
        )
    # Files opened later must not get number 1 or 2, to which text is printed.
    while (free := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(free)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


class _Lossy(io.FileIO):
    """A file that drops what cannot be written, so that a closed stderr ends no work."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def write(text: str, end: str = "\n") -> None:
    """Write a line to stdout. Raises NgramkitError or BrokenPipeError."""
    require_stdout()
    try:
        print(text, end=end, flush=True)
    except BrokenPipeError:
        forget_stdout()
        raise
    except OSError as error:
        forget_stdout()
        hint = "Free some space, or redirect stdout; the result is lost."
        raise NgramkitError(f"cannot write to stdout: {error.strerror}", hint) from error


def ask() -> str:
    """Read a line from the terminal; a redirected stdout does not get the prompt."""
    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    if not on_terminal:
        print(ASK, end="", file=sys.stderr, flush=True)
    return input(ASK if on_terminal else "")


def require_stdout() -> None:
    if sys.stdout is None:
        raise NgramkitError(
            "cannot write the result: stdout is closed", "Redirect stdout to a file."
        )


def forget_stdout() -> None:
    """Discard stdout's buffer, which Python would fail to flush at exit."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
