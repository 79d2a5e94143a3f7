"""Atomic replacement of a folder or file: after a kill, its name refers to the old or the new one.

New content is written to NAME.partial/, while NAME.partial.lock is held. A file is renamed; two
folders exchange their names. On file systems without an exchange, the old folder first becomes
NAME.replaced.partial, and `undo_half_replacement` renames it back after a kill.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Self

from ngramkit.basics.errors import InputError, UsageError, reason
from ngramkit.basics.untrusted import not_linked, owner_only
from ngramkit.formats.manifest import MANIFEST_FILE, read_manifest
from ngramkit.formats.outputs import (
    PROGRESS,
    entries_with_our_names,
    output_refusal,
    partial_of as partial_of,
    remove_entries,
    require_fit_for_output,
    require_written_by_us,
)

EXCHANGE_UNSUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM}

PRIVATE, PRIVATE_FILE = 0o700, 0o600  # modes of folders and files with people's text


class BusyError(InputError):
    """Another process or thread is writing there."""


class Replacement:
    """A context for writing a new folder `path`: write below `partial`, then `put_in_place`.

    Otherwise the files are deleted at the end, unless `keep` is set. Raises UsageError if `path` is
    unsuitable, exists without `force` or holds foreign files; InputError if another process is
    writing it.
    """

    def __init__(
        self, path: Path, *, force: bool = False, inputs: Iterable[Path] = (), forcible: bool = True
    ) -> None:
        self.path = path
        self._forcible = forcible  # whether the user can set `force`
        self.partial = partial_of(path)
        self.keep = False
        self._force = force
        self._inputs = inputs
        self._claim = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as claim:
            claim.enter_context(
                claim_output(self.path, self._inputs, sure=self._force, forcible=self._forcible)
            )
            _delete_unless_resumable(self.path)
            self._require_replaceable()
            if os.path.lexists(self.partial):
                entries_with_our_names(self.partial)
            self.partial.mkdir(exist_ok=True)
            self._claim = claim.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._claim:
            if not self.keep:
                with suppress(OSError, UsageError):  # the first error matters more
                    _delete_folder(self.partial)

    def empty(self, mode: int = 0o777) -> None:
        remove_entries(entries_with_our_names(self.partial))
        self.partial.mkdir(mode=mode)

    def put_in_place(self, names: Collection[str] | None = None) -> None:
        """Give the folder its name, with only the files `names` (default: all entries).

        A task that a cluster cancelled or lost may still write others in the meantime. In a folder
        for its owner only, files are too.
        """
        private = not self.partial.stat().st_mode & 0o077
        if names is not None:
            _keep_only(self.partial, names)
        for entry in entries_with_our_names(self.partial):
            if private:
                entry.chmod(PRIVATE if entry.is_dir() else PRIVATE_FILE)
            if entry.is_dir():
                sync_folder(entry)
            elif names is None or entry.name in names:
                sync_file(entry)
        self._require_replaceable()
        self.keep = False
        old = exchange_or_rename_twice(self.partial, self.path)
        if names is not None:  # nobody can write to `partial` now
            _keep_only(self.path, names)
        sync_folder(self.path.parent)
        if old is not None:
            _delete_folder(old)

    def _require_replaceable(self) -> None:
        require_replaceable_folder(self.path, force=self._force, forcible=self._forcible)


def require_replaceable_folder(path: Path, *, force: bool, forcible: bool = True) -> None:
    if not os.path.lexists(path):
        return
    if not force:
        raise exists_error(path, forcible=forcible)
    require_written_by_us(path)


def _keep_only(folder: Path, names: Collection[str]) -> None:
    remove_entries(entry for entry in folder.iterdir() if entry.name not in names)


def exists_error(path: object, *, forcible: bool = True) -> UsageError:
    if not forcible:
        return UsageError(f"cannot write {path}: it exists", "Choose another out.", option="out")
    return UsageError(
        f"cannot write {path}: it exists",
        "Choose another out, or replace it with force=True.",
        option=("out", "force"),
    )


def require_place(path: Path, kind: str | None = None, *, force: bool = False) -> None:
    """Raise early the errors of writing to `path`.

    An artifact of the same `kind` is accepted: its builder decides whether it is up to date.
    """
    require_fit_for_output(path)
    if (path / MANIFEST_FILE).is_file():
        if kind is not None and not force and read_manifest(path).kind != kind:
            raise exists_error(path)
        return
    require_replaceable_folder(path, force=force)
    require_writable(path)


def require_writable(path: Path) -> None:
    above = next(each for each in path.absolute().parents if each.is_dir())
    if above != path.absolute().parent:  # do not create folders for a lock
        if not os.access(above, os.W_OK | os.X_OK):
            raise _not_writable(path, os.strerror(errno.EACCES))
        return
    if not _has_leftovers(path):  # a lock or a partial folder shows that it is writable
        with suppress(BusyError), hold_lock(_lock_of(path), busy="busy"):
            pass  # it can be created


def require_room_for_file(path: Path, option: str) -> None:
    """Raise UsageError, which names `option`, unless files can be created next to `path`."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"no such folder: {path.parent}", "Create it first.", option=option)
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {reason(error)}", "Choose another folder.", option=option
        ) from error


def _not_writable(path: Path, why: str) -> InputError:
    return InputError(f"cannot write {path}: {why}", "Choose another out.", option="out")


@contextmanager
def claim_output(
    path: Path, inputs: Iterable[Path] = (), *, sure: bool = True, forcible: bool = True
) -> Iterator[None]:
    """Hold the lock of the output `path`, and undo what a killed run left half-done.

    Raises UsageError if `path` is unsuitable, or exists without `sure`; InputError if another
    process is writing it.
    """
    require_fit_for_output(path, inputs)
    if not sure and os.path.lexists(path) and not _has_leftovers(path):
        raise exists_error(path, forcible=forcible)
    path.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(_lock_of(path), busy=f"another process is building {path}"):
        undo_half_replacement(path)
        yield


def clear_killed_run(path: Path) -> None:
    """Clean up after a killed run at `path`, unless a build is running."""
    if not _has_leftovers(path):
        return
    # A build may be running, or a file may be foreign or not deletable.
    with suppress(InputError, UsageError, OSError), hold_lock(_lock_of(path), busy="busy"):
        undo_half_replacement(path)
        with suppress(UsageError):
            _require_own_partial(partial_of(path), path.name)
            _remove_file(partial_of(path) / path.name)
        _delete_unless_resumable(path)


def _delete_unless_resumable(path: Path) -> None:
    _delete_folder(path_of_replaced(path))
    if not (partial_of(path) / PROGRESS).exists():
        _delete_folder(partial_of(path))


def delete_artifact(path: Path) -> None:
    """Delete the artifact at `path`, which is never visible in part."""
    require_written_by_us(path)
    with claim_output(path):
        _delete_folder(partial_of(path))
        path.rename(partial_of(path))
        _delete_folder(partial_of(path))


def discard_unfinished(path: Path) -> None:
    """Delete what an unfinished build of `path` has kept."""
    with claim_output(path):
        _delete_folder(partial_of(path))


def _has_leftovers(path: Path) -> bool:
    places = (partial_of(path), _lock_of(path), path_of_replaced(path))
    return any(os.path.lexists(place) for place in places)


def _lock_of(path: Path) -> Path:
    return path.parent / f"{path.name}.partial.lock"


def _delete_folder(folder: Path) -> None:
    if os.path.lexists(folder):
        remove_entries(entries_with_our_names(folder))


# Files that replace only an export of their format.


@contextmanager
def whole_file(
    path: Path,
    is_export: Callable[[Path], bool],
    *,
    force: bool = False,
    inputs: Iterable[Path] = (),
    private: bool = False,
) -> Iterator[BinaryIO]:
    """Open PATH.partial/NAME for writing; it replaces `path` at the end of the block.

    Only the owner can read a `private` file.

    Raises UsageError if `path` exists without `force`, fails `is_export` or is unsuitable;
    InputError if another process is writing it.
    """
    with claim_output(path, inputs, sure=force):
        folder = partial_of(path)
        partial = folder / path.name
        _require_own_partial(folder, path.name)
        _remove_file(partial)  # left by a killed run
        _require_replaceable_file(path, is_export, force=force)
        folder.mkdir()
        try:
            with open(partial, "xb", opener=owner_only if private else None) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _require_replaceable_file(path, is_export, force=force)
            partial.replace(path)
            sync_folder(path.parent)
        finally:
            _remove_file(partial)


def replace_text(path: Path, text: str, opener: Callable[[str, int], int] = not_linked) -> None:
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "w", encoding="utf-8", opener=opener) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def _require_replaceable_file(
    path: Path, is_export: Callable[[Path], bool], *, force: bool
) -> None:
    if not os.path.lexists(path):
        return
    if not force:
        raise exists_error(path)
    if path.is_symlink() or not path.is_file():
        raise output_refusal(f"cannot replace {path}: it is not a file")
    try:
        replaceable = path.stat().st_size == 0 or is_export(path)
    except (InputError, ValueError):
        replaceable = False
    if not replaceable:
        raise output_refusal(f"cannot replace {path}: it is not an export of this format")


def _remove_file(partial: Path) -> None:
    with suppress(OSError):
        partial.unlink(missing_ok=True)
        partial.parent.rmdir()


def _require_own_partial(folder: Path, name: str) -> None:
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        raise output_refusal(
            f"cannot write {folder}: it is not a folder", "Move it away, or choose another out."
        )
    for entry in folder.iterdir():
        if entry.name != name:
            raise output_refusal(
                f"cannot write {folder}: ngramkit did not write {entry.name} in it",
                "Move it away, or choose another out.",
            )


# The exchange of two names.


def exchange_names(one: Path, other: Path) -> bool:
    """Exchange two names on one file system atomically; return False if unsupported."""
    import ctypes

    library: Any = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(one), os.fsencode(other)
    try:
        if sys.platform == "darwin":
            failed = library.renamex_np(first, second, 2)  # RENAME_SWAP, sys/stdio.h
        else:
            at_fdcwd, rename_exchange = -100, 2  # fcntl.h, linux/fs.h
            failed = library.renameat2(at_fdcwd, first, at_fdcwd, second, rename_exchange)
    except AttributeError:  # an older C library
        return False
    if not failed:
        return True
    code = ctypes.get_errno()
    if code in EXCHANGE_UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(one), None, str(other))


def exchange_or_rename_twice(new: Path, path: Path) -> Path | None:
    """Rename `new` to `path`; return the new name of the old one, or None."""
    if not path.exists():
        new.rename(path)
        return None
    if exchange_names(new, path):
        return new
    aside = path_of_replaced(path)
    path.rename(aside)
    new.rename(path)
    return aside


def path_of_replaced(path: Path) -> Path:
    return path.parent / f"{path.name}.replaced.partial"


def undo_half_replacement(path: Path) -> bool:
    """Rename the old folder back if a replacement was killed between its two renames.

    The caller holds the lock of `path`, or knows that nobody replaces it.
    """
    if path.exists() or not path_of_replaced(path).exists():
        return False
    with suppress(FileNotFoundError):
        path_of_replaced(path).rename(path)
        sync_folder(path.parent)
    return path.exists()


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    with path.open("r+b") as file:
        os.fsync(file.fileno())


@contextmanager
def hold_lock(path: Path, *, busy: str | None = None) -> Iterator[None]:
    """Hold the lock file `path`, which exists only while it is held (or after a kill).

    Other threads and processes wait, or with `busy` get a BusyError of that text. Raises InputError
    if the file cannot be created.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path, timeout=-1 if busy is None else 0, thread_local=False)
    for tries_left in (2, 1, 0):
        try:
            lock.acquire(poll_interval=0.002)
            break
        except Timeout as error:
            if os.path.lexists(path):
                hint = "Wait for it, or choose another out."
                raise BusyError(busy or "", hint, option="out") from error
            if not tries_left:  # it was not just released: it cannot be created
                output = path.with_name(path.name.removesuffix(".lock").removesuffix(".partial"))
                raise _not_writable(output, f"nothing can be created in {path.parent}") from error
    try:
        yield
    finally:
        # Before the release: a process that waits for this file sees that it is gone, and retries.
        with suppress(OSError):
            path.unlink()
        lock.release()
