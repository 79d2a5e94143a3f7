"""One process, and one thread of it, at a time: a lock file that is gone when nobody holds it.

A killed holder leaves the file behind, unlocked: the next one takes it and tidies it away. Works
on every system that filelock knows. Knows nothing of what is guarded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ngramkit.errors import InputError

POLL = 0.002  # seconds between two looks at a lock that somebody else holds


@contextmanager
def locked(path: Path, *, busy: str | None = None) -> Iterator[None]:
    """Holds the lock file `path`; waits for it, or where `busy` is given does not.

    Raises InputError, saying `busy`, where another process or thread has it.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path, timeout=-1 if busy is None else 0, thread_local=False)
    try:
        lock.acquire(poll_interval=POLL)
    except Timeout as error:
        hint = "wait for it, or choose another out"
        raise InputError(busy or "", hint, option="out") from error
    try:
        yield
    finally:
        # While it is held: whoever waits for this very file sees that it is gone, and looks again.
        with suppress(OSError):
            path.unlink()
        lock.release()
        if sys.platform == "win32":  # it deletes no open file
            with suppress(OSError):
                path.unlink()
