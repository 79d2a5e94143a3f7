"""stdout and stderr, which may be closed, full, or of an encoding that lacks some letters."""

from __future__ import annotations

import contextlib
import io
import os
import sys

from ngramkit.errors import NgramkitError


def prepare() -> None:
    """Make missing letters escapes, and keep the file numbers of closed streams free.

    Where stdout is closed, `sys.stdout` stays None, and `write` raises.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # A file opened later must not get number 1 or 2, where text for the screen is written.
    while (free := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(free)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


def write(line: str) -> None:
    """Write a line to stdout. Raises NgramkitError where it cannot be written."""
    if sys.stdout is None:
        raise NgramkitError("stdout is closed", "the result has nowhere to go")
    try:
        print(line, flush=True)
    except BrokenPipeError:
        forget_stdout()
        raise
    except OSError as error:
        forget_stdout()
        hint = "the result is lost; free some space, or send it elsewhere"
        raise NgramkitError(f"stdout cannot be written: {error.strerror}", hint) from error


def forget_stdout() -> None:
    """Discard the rest of stdout's buffer, on which Python would fail again when it ends."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
