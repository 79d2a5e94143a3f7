"""A folder or file that is replaced as a whole: at its name stands the old one, or the new.

What is written goes to NAME.partial/ first, synced to the disk, while NAME.partial.lock is held.
A file is then renamed; two folders change places in one step, and the old one is deleted. A kill or
a power cut at any moment leaves one of them, whole, at the name; what else it leaves, the next run
of the same command uses or clears away.

Linux has renameat2(RENAME_EXCHANGE) for that step, macOS renamex_np(RENAME_SWAP); some file systems
refuse both. There the old one steps aside as NAME.replaced.partial for the moment between two
renames, and `mend` puts it back if that moment was the process's last.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Self

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.formats.manifest import NAME, read_manifest
from ngramkit.formats.outputs import (
    PROGRESS,
    ours_in,
    refusal,
    remove,
    require_fit_for_output,
    require_replaceable,
)

POLL = 0.002  # seconds between two looks at a lock that somebody else holds
TRIES = 3  # to lock a file that is not there
RENAME_EXCHANGE = 2  # linux/fs.h
RENAME_SWAP = 2  # macOS, sys/stdio.h
AT_FDCWD = -100
REFUSALS = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM}


class BusyError(InputError):
    """A place that another process or thread writes to."""


def partial_of(path: Path) -> Path:
    """Return the folder that holds what is being written to `path`."""
    return path.parent / f"{path.name}.partial"


class Replacement:
    """A new folder for `path`: write below `partial` inside the block, then `put_in_place`.

    `inputs` are what is read: they are never written to. Leaving without `put_in_place` deletes
    what was written, unless `keep` is set: for a run that goes on. Raises UsageError where `path`
    is unfit for an output (ngramkit.formats.outputs), where it exists and `force` is off, or holds
    something that ngramkit did not write; InputError where another process writes there.
    """

    def __init__(
        self,
        path: Path,
        *,
        force: bool = False,
        inputs: Iterable[Path] = (),
        forcible: bool = True,
    ) -> None:
        self.path = path
        self._forcible = forcible  # the caller has a parameter `force`
        self.partial = partial_of(path)
        self.keep = False
        self._force = force
        self._inputs = inputs
        self._claim = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as claim:
            claim.enter_context(
                claimed(self.path, self._inputs, sure=self._force, forcible=self._forcible)
            )
            _clear_left(self.path)
            self._require_free()
            if os.path.lexists(self.partial):
                ours_in(self.partial)
            self.partial.mkdir(exist_ok=True)
            self._claim = claim.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._claim:
            if not self.keep:
                with suppress(OSError, UsageError):  # what is in the way now is not the news
                    _clear(self.partial)

    def empty(self, mode: int = 0o777) -> None:
        """Delete what another run left in the partial folder, and make it anew of this mode."""
        remove(ours_in(self.partial))
        self.partial.mkdir(mode=mode)

    def put_in_place(self) -> None:
        """Put what was written at `path` in one step, and delete the old folder."""
        for entry in ours_in(self.partial):
            sync_folder(entry) if entry.is_dir() else sync_file(entry)
        self._require_free()
        self.keep = False
        old = put_over(self.partial, self.path)
        sync_folder(self.path.parent)
        if old is not None:
            _clear(old)

    def _require_free(self) -> None:
        if not os.path.lexists(self.path):
            return
        if not self._force:
            raise exists(self.path, forcible=self._forcible)
        require_replaceable(self.path)


def exists(path: Path, *, forcible: bool = True) -> UsageError:
    """Return the error for an output that exists and may not be replaced; unless it is `forcible`,
    force=True is no way out."""
    if not forcible:
        return UsageError(f"{path} exists", "choose another out", option="out")
    return UsageError(
        f"{path} exists",
        "choose another out, or replace it with force=True",
        option=("out", "force"),
    )


def require_place(path: Path, kind: str | None = None, *, force: bool = False) -> None:
    """Raise now what writing an artifact to `path` would raise after all the work for it.

    An artifact there may be the one that is wanted, unless it is of another `kind`: only its
    builder can tell.
    """
    require_fit_for_output(path)
    if (path / NAME).is_file():
        if kind is not None and not force and read_manifest(path).kind != kind:
            raise exists(path)
        return
    if os.path.lexists(path):
        if not force:
            raise exists(path)
        require_replaceable(path)
    require_writable(path)


def require_writable(path: Path) -> None:
    """Raise InputError where nothing can be made beside `path`."""
    above = next(each for each in path.absolute().parents if each.is_dir())
    if above != path.absolute().parent:  # a lock would need folders that only its holder removes
        if not os.access(above, os.W_OK | os.X_OK):
            raise _not_writable(path, os.strerror(errno.EACCES))
        return
    if not _left(path):  # else somebody could make something there
        with suppress(BusyError), locked(_lock(path), busy="busy"):
            """It could be made."""


def _not_writable(path: Path, why: str) -> InputError:
    return InputError(f"{path} cannot be written: {why}", "choose another out", option="out")


@contextmanager
def claimed(
    path: Path, inputs: Iterable[Path] = (), *, sure: bool = True, forcible: bool = True
) -> Iterator[None]:
    """Hold the lock of the output `path`, in a folder that is made; mend what a killed run left.

    Raises UsageError where `path` is unfit for an output, or exists and the caller is not `sure`
    that it may; InputError where another process writes there.
    """
    require_fit_for_output(path, inputs)
    if not sure and os.path.lexists(path) and not _left(path):
        raise exists(path, forcible=forcible)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(_lock(path), busy=f"another process is building {path}"):
        mend(path)
        yield


def tidy(path: Path) -> None:
    """Mend and clear away what a killed run left at and beside `path`, but for a running build."""
    if not _left(path):
        return
    # Somebody may build there, or something not be ours or not be deletable.
    with suppress(InputError, UsageError, OSError), locked(_lock(path), busy="busy"):
        mend(path)
        with suppress(UsageError):
            _require_own_partial(partial_of(path), path.name)
            _remove_file(partial_of(path) / path.name)
        _clear_left(path)


def _clear_left(path: Path) -> None:
    """Delete what a killed run left beside `path`, but for a build that goes on."""
    _clear(stepped_aside(path))
    if not (partial_of(path) / PROGRESS).exists():
        _clear(partial_of(path))


def discard(path: Path) -> None:
    """Delete the artifact at `path`: at no moment is a part of it there."""
    require_replaceable(path)
    with claimed(path):
        _clear(partial_of(path))
        path.rename(partial_of(path))
        _clear(partial_of(path))


def _left(path: Path) -> bool:
    places = (partial_of(path), _lock(path), stepped_aside(path))
    return any(os.path.lexists(place) for place in places)


def _lock(path: Path) -> Path:
    return path.parent / f"{path.name}.partial.lock"


def _clear(folder: Path) -> None:
    if os.path.lexists(folder):
        remove(ours_in(folder))


# Files that replace only an export of their own format.


@contextmanager
def whole_file(
    path: Path,
    is_export: Callable[[Path], bool],
    *,
    force: bool = False,
    inputs: Iterable[Path] = (),
) -> Iterator[BinaryIO]:
    """Open PATH.partial/NAME for writing; it replaces `path` at the end.

    `is_export` tells a file of the same format from others. `inputs` are what the export is made
    of. Raises UsageError where `path` exists and `force` is off or it is no such file, or where it
    is unfit for an output; InputError where another process writes there.
    """
    with claimed(path, inputs, sure=force):
        folder = partial_of(path)
        partial = folder / path.name
        _require_own_partial(folder, path.name)
        _remove_file(partial)  # left by a run that was killed
        _require_free(path, is_export, force=force)
        folder.mkdir()
        try:
            with partial.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _require_free(path, is_export, force=force)
            partial.replace(path)
            sync_folder(path.parent)
        finally:
            _remove_file(partial)


def _require_free(path: Path, is_export: Callable[[Path], bool], *, force: bool) -> None:
    """Raise UsageError where `path` exists and may not be replaced."""
    if not os.path.lexists(path):
        return
    if not force:
        raise exists(path)
    if path.is_symlink() or not path.is_file():
        raise refusal(f"{path} is not a file, so it is not replaced")
    try:
        replaceable = path.stat().st_size == 0 or is_export(path)
    except (InputError, ValueError):
        replaceable = False
    if not replaceable:
        raise refusal(f"{path} is not replaced: it is no such export, so something else made it")


def _remove_file(partial: Path) -> None:
    with suppress(OSError):
        partial.unlink(missing_ok=True)
        partial.parent.rmdir()


def _require_own_partial(folder: Path, name: str) -> None:
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        raise refusal(f"{folder} is in the way", "move it away, or choose another out")
    for entry in folder.iterdir():
        if entry.name != name:
            raise refusal(
                f"{folder} holds {entry.name}, which ngramkit did not write",
                "move that away, or choose another out",
            )


# The exchange of two names, in one step where the system can.


def exchange(one: Path, other: Path) -> bool:
    """Exchange what two names stand for; return False where the system has no such step.

    At no moment does either stand for nothing. Both must exist, on one file system.
    """
    import ctypes

    library: Any = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(one), os.fsencode(other)
    try:
        if sys.platform == "darwin":
            failed = library.renamex_np(first, second, RENAME_SWAP)
        else:
            failed = library.renameat2(AT_FDCWD, first, AT_FDCWD, second, RENAME_EXCHANGE)
    except AttributeError:  # an older C library
        return False
    if not failed:
        return True
    code = ctypes.get_errno()
    if code in REFUSALS:
        return False
    raise OSError(code, os.strerror(code), str(one), None, str(other))


def put_over(new: Path, path: Path) -> Path | None:
    """Rename `new` to `path`. Return where the old one is now; None where there was none."""
    if not path.exists():
        new.rename(path)
        return None
    if exchange(new, path):
        return new
    aside = stepped_aside(path)
    path.rename(aside)
    new.rename(path)
    return aside


def stepped_aside(path: Path) -> Path:
    """Return where the old folder is between two renames."""
    return path.parent / f"{path.name}.replaced.partial"


def mend(path: Path) -> bool:
    """Put back what stood at `path` where a replacement was cut off between its two renames.

    The caller holds the lock of `path`, or knows that nobody replaces it.
    """
    if path.exists() or not stepped_aside(path).exists():
        return False
    with suppress(FileNotFoundError):
        stepped_aside(path).rename(path)
        sync_folder(path.parent)
    return path.exists()


def sync_folder(path: Path) -> None:
    """Return when the names in the folder are on the disk; for files see `sync_file`."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Return when what was written to `path`, by anybody, is on the disk."""
    with path.open("r+b") as file:
        os.fsync(file.fileno())


@contextmanager
def locked(path: Path, *, busy: str | None = None) -> Iterator[None]:
    """Hold the lock file `path`, which is gone when nobody holds it; wait for it unless `busy`.

    One process, and one thread of it, holds it at a time. A killed holder leaves the file behind,
    unlocked: the next one takes it and tidies it away. Raises BusyError, saying `busy`, where
    another process or thread has it, InputError where it cannot be made.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path, timeout=-1 if busy is None else 0, thread_local=False)
    for tries_left in reversed(range(TRIES)):
        try:
            lock.acquire(poll_interval=POLL)
            break
        except Timeout as error:
            if os.path.lexists(path):
                hint = "wait for it, or choose another out"
                raise BusyError(busy or "", hint, option="out") from error
            if not tries_left:  # nobody has let go of it just now: it cannot be made
                output = path.with_name(path.name.removesuffix(".lock").removesuffix(".partial"))
                raise _not_writable(output, f"nothing can be made in {path.parent}") from error
    try:
        yield
    finally:
        # While it is held: whoever waits for this very file sees that it is gone, and looks again.
        with suppress(OSError):
            path.unlink()
        lock.release()
