"""A folder that is replaced as a whole: at its name stands the old one, or the new.

What is written goes to NAME.partial/ first, synced to the disk, while NAME.partial.lock is held;
then the two change places in one step (ngramkit.formats.swap), and the old one is deleted. A kill
or a power cut at any moment leaves one of them, whole, at the name; what else it leaves, the next
run of the same command uses or clears away.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from ngramkit.errors import InputError, UsageError
from ngramkit.formats import swap
from ngramkit.formats.locks import locked
from ngramkit.formats.outputs import (
    PROGRESS,
    ours_in,
    remove,
    require_fit_for_output,
    require_replaceable,
)


def partial_of(path: Path) -> Path:
    """The folder that holds what is being written to `path`."""
    return path.parent / f"{path.name}.partial"


class Replacement:
    """`with Replacement(path) as new:` write below `new.partial`, then `new.put_in_place()`.

    `inputs` are what is read: they are never written to. Leaving without `put_in_place` deletes
    what was written, unless `keep` is set: for a run that goes on. Raises UsageError where `path`
    is unfit for an output (ngramkit.formats.outputs), where it exists and `force` is off, or holds
    something that ngramkit did not write; InputError where another process writes there.
    """

    def __init__(
        self, path: Path, *, force: bool = False, inputs: Iterable[Path] = (), mode: int = 0o777
    ) -> None:
        self.path = path
        self.partial = partial_of(path)
        self.keep = False
        self._force = force
        self._inputs = inputs
        self._mode = mode
        self._claim: AbstractContextManager[None] | None = None

    def __enter__(self) -> Self:
        with ExitStack() as entering:
            claim = claimed(self.path, self._inputs, sure=self._force)
            entering.enter_context(claim)
            _clear_left(self.path)
            self._require_free()
            if os.path.lexists(self.partial):
                ours_in(self.partial)
            self.partial.mkdir(mode=self._mode, exist_ok=True)
            entering.pop_all()
            self._claim = claim
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if not self.keep:
                with suppress(OSError, UsageError):  # what is in the way now is not the news
                    _clear(self.partial)
        finally:
            assert self._claim is not None
            self._claim.__exit__(kind, error, trace)

    def empty(self) -> None:
        """Deletes what another run left in the partial folder."""
        remove(ours_in(self.partial)[:-1])

    def put_in_place(self) -> None:
        """`path` is what was written, from one moment to the next; the old one is deleted."""
        for entry in ours_in(self.partial):
            swap.sync_folder(entry) if entry.is_dir() else sync_file(entry)
        self._require_free()
        self.keep = False
        old = swap.put_over(self.partial, self.path)
        swap.sync_folder(self.path.parent)
        if old is not None:
            _clear(old)

    def _require_free(self) -> None:
        if not os.path.lexists(self.path):
            return
        if not self._force:
            raise exists(self.path)
        require_replaceable(self.path)


def exists(path: Path) -> UsageError:
    return UsageError(
        f"{path} exists",
        "choose another out, or replace it with force=True",
        option=("out", "force"),
    )


@contextmanager
def claimed(path: Path, inputs: Iterable[Path] = (), *, sure: bool = True) -> Iterator[None]:
    """Holds the lock of the output `path`, whose folder is made; mends what a killed run left.

    Raises UsageError where `path` is unfit for an output, or exists and the caller is not `sure`
    that it may; InputError where another process writes there.
    """
    require_fit_for_output(path, inputs)
    if not sure and os.path.lexists(path) and not _left(path):
        raise exists(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(_lock(path), busy=f"another process is building {path}"):
        swap.mend(path)
        yield


def tidy(path: Path) -> None:
    """Mends and clears away what a killed run left at and beside `path`, but for what goes on."""
    if not _left(path):
        return
    # Not where somebody builds there, nor what is not ours or may not be deleted.
    with suppress(InputError, UsageError, OSError), locked(_lock(path), busy="busy"):
        swap.mend(path)
        _clear_left(path)


def _clear_left(path: Path) -> None:
    """Delete what a killed run left beside `path`, but for a build that goes on."""
    _clear(swap.stepped_aside(path))
    if not (partial_of(path) / PROGRESS).exists():
        _clear(partial_of(path))


def discard(path: Path) -> None:
    """Deletes the artifact at `path`: at no moment is a part of it there."""
    require_replaceable(path)
    with claimed(path):
        _clear(partial_of(path))
        path.rename(partial_of(path))
        _clear(partial_of(path))


def _left(path: Path) -> bool:
    places = (partial_of(path), _lock(path), swap.stepped_aside(path))
    return any(os.path.lexists(place) for place in places)


def _lock(path: Path) -> Path:
    return path.parent / f"{path.name}.partial.lock"


def _clear(folder: Path) -> None:
    if os.path.lexists(folder):
        remove(ours_in(folder))


def sync_file(path: Path) -> None:
    """What was written to `path`, by whomever, is on the disk when this returns."""
    with path.open("r+b") as file:
        os.fsync(file.fileno())
