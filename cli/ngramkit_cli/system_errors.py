"""Errors of the operating system as NgramkitErrors. Any other exception is a bug."""

from __future__ import annotations

import errno

from ngramkit.errors import InputError, NetworkError, NgramkitError
from ngramkit.text import visible

FULL = (errno.ENOSPC, errno.EDQUOT)
MESSAGES = {
    errno.EROFS: ("is on a read-only file system", "choose a path that can be written"),
    errno.EFBIG: ("may not grow so large", "raise the limit of this shell: ulimit -f"),
    errno.ENAMETOOLONG: ("has a name that is too long", "choose a shorter one"),
    errno.ENOTDIR: ("is not below a folder", "check the path"),
    errno.EISDIR: ("is a folder", "name a file"),
    errno.ENOENT: ("does not exist", "check the path"),
    errno.EEXIST: ("exists", "choose another path"),
    errno.ELOOP: ("is a link that leads to itself", "check the path"),
    errno.EMFILE: ("cannot be opened: too many open files", "raise the limit: ulimit -n"),
    errno.ENFILE: ("cannot be opened: too many open files", "close other programs"),
}


def to_ngramkit_error(error: BaseException) -> NgramkitError:
    """Return the error to show instead of `error`."""
    if isinstance(error, NgramkitError):
        return error
    if isinstance(error, MemoryError):
        hint = "lower memory, shard_tokens or sample, or close other programs"
        return InputError("out of memory", hint, option=("memory", "shard_tokens", "sample"))
    if isinstance(error, ConnectionError | TimeoutError):
        return NetworkError(f"no connection: {error}", "check the network, then run it again")
    if isinstance(error, OSError) and error.errno is not None:
        return _refused(error)
    return NgramkitError(
        f"unexpected {type(error).__name__}: {visible(error, 500)}",
        "this is a bug in ngramkit: run again with --debug and report the traceback",
    )


def _refused(error: OSError) -> NgramkitError:
    path = str(error.filename) if error.filename else ""
    if error.errno in FULL:
        return InputError(
            f"no space left on the disk{path and f' at {path}'}",
            "free some space and run the same command again; finished shards are kept",
        )
    if isinstance(error, PermissionError):
        return InputError(f"no permission for {path or 'a file'}", "choose another path")
    default = (f"cannot be used: {error.strerror}", "check the path")
    message, hint = MESSAGES.get(error.errno or 0, default)
    return InputError(f"{path or 'a file'} {message}", hint)
