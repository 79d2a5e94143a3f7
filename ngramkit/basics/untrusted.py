"""Readers of untrusted files and JSON; every fault is a one-line error with its place.

Only plain files are opened, opening never waits, and links are never written through. json.loads
fails with RecursionError for deep nesting and accepts Infinity and equal keys.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
import stat
import sys
from io import FileIO
from pathlib import Path
from typing import IO, Any, NoReturn

from ngramkit.basics.errors import ArtifactError, InputError, reason
from ngramkit.basics.limits import LIMITS
from ngramkit.basics.terminal_text import visible

# Files of equal identity hold the same bytes.
Identity = tuple[int, int, int, int, int]


def file_identity(state: os.stat_result) -> Identity:
    return (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)


def open_plain(
    path: Path, *, error: type[InputError] = ArtifactError, hint: str = "Check the path."
) -> FileIO:
    """Open a plain file unbuffered, also through links.

    Raises FileNotFoundError if it is missing, `error` for a folder, pipe or device.
    """
    try:
        # Non-blocking: opening a pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as failure:
        if isinstance(failure, NotADirectoryError):
            hint = f"Check the path: {path.parent} is not a folder."
        raise error(f"cannot read {path}: {reason(failure)}", hint) from failure
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise error(f"{path} is not a plain file", hint)
    return FileIO(descriptor, "rb")


def open_stream(path: Path) -> IO[bytes]:
    return io.BufferedReader(open_plain(path, error=InputError))


def read_given(path: Path, most: int, *, too_long: str) -> bytes:
    """Read a file, pipe or device that the user names. Raises InputError.

    A pipe without a writer is empty.
    """
    try:
        # Non-blocking: opening a pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(descriptor, True)
        with os.fdopen(descriptor, "rb") as file:
            raw = file.read(most + 1)
    except (OSError, ValueError) as failure:
        raise InputError(f"cannot read {path}: {reason(failure)}", "Check the path.") from failure
    if len(raw) > most:
        raise InputError(f"cannot read {path}: it has more than {most:,} bytes", too_long)
    return raw


def not_linked(path: str, flags: int, mode: int = 0o666) -> int:
    """Open for `open(..., opener=not_linked)`. Raises OSError for a link, pipe or device."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, mode)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe without a reader
            raise _not_plain(path) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_plain(path)
    return descriptor


def _not_plain(path: str) -> OSError:
    return OSError(errno.EINVAL, "it is not a plain file", path)


def owner_only(path: str, flags: int) -> int:
    """Open as `not_linked`, also a file that others could read before."""
    descriptor = not_linked(path, flags, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def require_no_links(folder: Path) -> None:
    for entry in folder.rglob("*"):
        if entry.is_symlink():
            raise ArtifactError(
                f"cannot use {entry}: it is a link to {visible(str(entry.readlink()), 200)}",
                "Replace it by the file itself, if it belongs to the artifact.",
            )


def read_plain(
    path: Path,
    most: int,
    *,
    error: type[InputError] = ArtifactError,
    hint: str = "Check the path.",
) -> bytes:
    with open_plain(path, error=error, hint=hint) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise error(f"{path} has {size:,} bytes, more than {most:,}", hint)
        return file.read(size)  # read(most) would allocate `most` bytes


TRY_AGAIN = "Build or pull the artifact again."


def parse_json(
    text: str | bytes,
    where: str,
    *,
    strict: bool = False,
    most_values: int = LIMITS.json_values,
    error: type[InputError] = InputError,
    hint: str = "",
) -> Any:
    """Parse JSON, which errors name by `where`.

    Raises `error` also for more than `most_values` values and, with `strict`, for equal keys, NaN,
    Infinity, lone surrogates, or nesting deeper than LIMITS.json_nesting.
    """
    # Each value begins after a bracket or a comma.
    if _count_marks(text, "[", "{", ",") >= most_values:
        raise error(f"{where}: it holds more than {most_values:,} values", hint)
    try:
        body = json.loads(text, **STRICT_JSON) if strict else json.loads(text)
        if strict and (not text.isascii() or _count_marks(text, "\\u")):
            json.dumps(body, ensure_ascii=False).encode()  # raises for a lone surrogate
    except RecursionError as failure:
        raise error(f"{where}: it nests too deeply", hint) from failure
    except UnicodeDecodeError as failure:
        told = "it holds zero bytes" if b"\0" in failure.object else f"not UTF-8: {failure}"
        raise error(f"{where}: {told}", hint) from failure
    except ValueError as failure:
        if "int_max_str_digits" in str(failure):
            most = sys.get_int_max_str_digits()
            raise error(f"{where}: it holds a number of more than {most:,} digits", hint) from None
        raise error(f"{where}: not JSON: {failure}", hint) from failure
    levels = LIMITS.json_nesting
    if strict and _count_marks(text, "[", "{") > levels and not nests_within(body, levels):
        raise error(f"{where}: it nests deeper than {levels} levels", hint)
    return body


def read_json(
    path: Path,
    *,
    strict: bool = False,
    error: type[InputError] = ArtifactError,
    hint: str = TRY_AGAIN,
) -> Any:
    raw = read_plain(path, LIMITS.json_bytes, error=error, hint=hint)
    return parse_json(raw, str(path), strict=strict, error=error, hint=hint)


def whole_number(value: Any, least: int = 0, most: int = (1 << 63) - 1) -> bool:
    """Return whether `value` is an int, not a bool, in [least, most]."""
    return type(value) is int and least <= value <= most


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    body = dict(pairs)
    if len(body) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"the key {name!r:.80} occurs twice")
            seen.add(name)
    return body


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _finite_number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.80} is too large a number")
    return value


STRICT_JSON: dict[str, Any] = {
    "object_pairs_hook": _no_key_twice,
    "parse_constant": _no_constant,
    "parse_float": _finite_number,
}


def _count_marks(text: Any, *marks: str) -> int:
    return sum(text.count(mark.encode() if isinstance(text, bytes) else mark) for mark in marks)


def nests_within(body: Any, levels: int) -> bool:
    """Return whether `body` nests at most `levels` deep, without recursion."""
    level = [body]
    while level and levels >= 0:
        level = [
            value
            for holder in level
            if isinstance(holder, dict | list)
            for value in (holder.values() if isinstance(holder, dict) else holder)
        ]
        levels -= 1
    return not level
