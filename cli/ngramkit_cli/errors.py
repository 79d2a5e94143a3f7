"""Errors on the command line: exit codes, and messages that name the command's own flags.

Errors of the operating system become NgramkitErrors; any other exception is a bug. Parameters that
an error names become the running command's flags: top_p is --top-p. A name without a flag, such as
a recipe's key, stays.
"""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ngramkit.basics.errors import InputError, NetworkError, NgramkitError, UsageError
from ngramkit.basics.terminal_text import visible

try:
    # Newer versions of Typer include click.
    from typer._click.globals import get_current_context as get_current_context
except ImportError:
    from click import get_current_context as get_current_context  # type: ignore[no-redef]

# The exit codes are an interface; 0 is done.
EXIT_FAILED = 1  # also: `build --check` would build, or a pipe is closed
EXIT_INTERRUPTED = 130
EXIT_CODES: dict[type[NgramkitError], int] = {UsageError: 2, InputError: 3, NetworkError: 4}


def exit_code(error: NgramkitError) -> int:
    return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), EXIT_FAILED)


NO_MEMORY = re.compile(r"out of memory|can't allocate memory|can't start new thread", re.IGNORECASE)
MESSAGES = {
    errno.EROFS: ("it is on a read-only file system", "Choose a path that you can write."),
    errno.EFBIG: ("it would be larger than the limit of this shell", "Raise it: ulimit -f"),
    errno.ENAMETOOLONG: ("its name is too long", "Choose a shorter name."),
    errno.ENOTDIR: ("its parent is not a folder", "Check the path."),
    errno.EISDIR: ("it is a folder", "Name a file."),
    errno.ENOENT: ("it does not exist", "Check the path."),
    errno.EEXIST: ("it exists", "Choose another path."),
    errno.ELOOP: ("it is a link to itself", "Check the path."),
    errno.EMFILE: ("too many files are open", "Raise the limit: ulimit -n"),
    errno.ENFILE: ("too many files are open", "Close other programs."),
}


def to_ngramkit_error(error: BaseException) -> NgramkitError:
    if isinstance(error, NgramkitError):
        return error
    if isinstance(error, ModuleNotFoundError) and (package := _package_of(error.name or "")):
        return UsageError(
            f"cannot run: it needs the package {package}", f"Run: pip install {package}"
        )
    if is_out_of_memory(error):
        names = ("memory", "shard_tokens", "sample")
        hint = "Use a smaller model, or close other programs."
        if running_flags().keys() & names:
            hint = "Lower memory, shard_tokens or sample, or close other programs."
        return InputError("cannot go on: out of memory", hint, option=names)
    if isinstance(error, ConnectionError | TimeoutError):
        return NetworkError(
            f"cannot connect: {error}", "Check the network and run the command again."
        )
    if isinstance(error, OSError) and error.errno is not None:
        return _system_refusal(error)
    return NgramkitError(
        f"unexpected {type(error).__name__}: {visible(error, 500)}",
        "Report the traceback that --debug shows: this is a bug in ngramkit.",
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out; torch and threads raise RuntimeErrors then."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and NO_MEMORY.search(str(error)) is not None
    )


def _package_of(module: str) -> str:
    """Return a module's package, "" for the standard library and ngramkit."""
    name = module.partition(".")[0]
    return "" if name.startswith("ngramkit") or name in sys.stdlib_module_names else name


def _system_refusal(error: OSError) -> NgramkitError:
    path = str(error.filename) if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return InputError(
            f"cannot write{path and f' {path}'}: no space left on the disk",
            "Free some space and run the same command again.",
        )
    if isinstance(error, PermissionError):
        return InputError(f"cannot use {path or 'a file'}: no permission", "Choose another path.")
    default = (error.strerror, "Check the path.")
    message, hint = MESSAGES.get(error.errno or 0, default)
    return InputError(f"cannot use {path or 'a file'}: {message}", hint)


def error_lines(message: str, *hints: str) -> list[str]:
    return [f"error: {message}", *(f"  -> {hint}" for hint in hints if hint)]


def in_flags(error: NgramkitError) -> tuple[str, str]:
    """Return an error's message and hint, with the running command's flags for parameters.

    Text after a colon may be quoted; only names with an underscore are replaced there.
    """
    flags = running_flags()
    head, colon, rest = str(error).partition(": ")
    sure = [name for name in error.option if "_" in name]
    message = with_flags(head, error.option, flags) + colon + with_flags(rest, sure, flags)
    return message, with_flags(error.hint, error.option, flags)


@dataclass(frozen=True)
class Flag:
    """An option's flags; a switch takes no value."""

    on: str
    off: str = ""
    switch: bool = False


def running_flags() -> dict[str, Flag]:
    """Return the running command's flags by parameter, {} outside a command."""
    context = get_current_context(silent=True)
    flags: dict[str, Flag] = {}
    for entry in context.command.params if context else ():
        off = next((flag for flag in entry.secondary_opts if flag.startswith("--")), "")
        for flag in entry.opts:
            if flag.startswith("--"):
                name = flag.removeprefix("--").replace("-", "_")
                flags[name] = Flag(flag, off, bool(getattr(entry, "is_flag", False)))
                flags.setdefault(entry.name or name, flags[name])
                if getattr(entry, "multiple", False):
                    flags.setdefault(f"{name}s", flags[name])
    return flags


def lack_line(drafter: str, needs: str) -> str:
    """Return the line of a drafter without figures; `needs`: as DrafterChoice.missing."""
    return f"{drafter}: n/a, {with_flags(needs, ('evidence', 'history'), running_flags())}"


def with_flags(text: str, names: Iterable[str], flags: Mapping[str, Flag]) -> str:
    """Replace every whole word of `names` by its flag: `top_p=1` by `--top-p 1`."""
    words = "|".join(re.escape(name) for name in names if name in flags)
    if not words:
        return text
    # Not inside a path, a longer name or ngramkit[dedup]; includes `=True`, `=False` and `=`.
    word = rf"(?<![\w/.[-])({words})(?:=(True|False)\b|(=)(?=\S)|(?![\w=/-]|\.\w))"
    return re.sub(word, lambda match: _as_flag(flags[match[1]], match), text)


def _as_flag(flag: Flag, match: re.Match[str]) -> str:
    if match[2] == "False" and flag.off:
        return flag.off
    if match[3]:
        return f"{flag.on} "
    return flag.on if flag.switch or not match[2] else f"{flag.on} {match[2]}"
