"""stdin, stdout and stderr as they may be: closed, full, or of an encoding without our letters."""

from __future__ import annotations

import contextlib
import io
import os
import sys

from ngramkit.errors import NgramkitError


def prepare() -> None:
    """What a stream's encoding lacks is written as an escape; a closed one gives nobody its place.

    Where stdout is closed, `sys.stdout` stays None: `write` says so where it matters.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # A file that is opened must not become number 1 or 2, and be written as if it were the screen.
    while (free := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(free)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


def write(line: str) -> None:
    """A line of stdout. Raises NgramkitError where nothing can be written there."""
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
    """What is left in its buffer goes nowhere, or Python would fail on it again at the end."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
