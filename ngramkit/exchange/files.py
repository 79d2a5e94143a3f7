"""A file that appears whole or not at all, and takes only the place of one that it may replace."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ngramkit.errors import InputError
from ngramkit.formats.outputs import refusal
from ngramkit.formats.replacing import claimed, exists, partial_of, sync_folder


@contextmanager
def whole_file(
    path: Path,
    is_export: Callable[[Path], bool],
    *,
    force: bool = False,
    inputs: Iterable[Path] = (),
) -> Iterator[BinaryIO]:
    """Writes go to PATH.partial/NAME, which takes the place of `path` at the end.

    `is_export` tells a file of the same format from any other. `inputs` are what is read. Raises
    UsageError where `path` exists and `force` is off or it is no such file, or where it is unfit
    for an output; InputError where another process writes there.
    """
    with claimed(path, inputs, sure=force):
        folder = partial_of(path)
        partial = folder / path.name
        _require_ours(folder, path.name)
        _remove(partial)  # of a run that was killed
        require_free(path, is_export, force=force)
        folder.mkdir()
        try:
            with partial.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            require_free(path, is_export, force=force)
            partial.replace(path)
            sync_folder(path.parent)
        finally:
            _remove(partial)


def require_free(path: Path, is_export: Callable[[Path], bool], *, force: bool) -> None:
    """Raises UsageError where `path` exists and may not be replaced."""
    if not os.path.lexists(path):
        return
    if not force:
        raise exists(path)
    if path.is_symlink() or not path.is_file():
        raise refusal(f"{path} is not a file, so it is not replaced")
    try:
        known = path.stat().st_size == 0 or is_export(path)
    except (InputError, ValueError):
        known = False
    if not known:
        raise refusal(f"{path} is not replaced: it is no such export, so something else made it")


def _remove(partial: Path) -> None:
    with suppress(OSError):
        partial.unlink(missing_ok=True)
        partial.parent.rmdir()


def _require_ours(folder: Path, name: str) -> None:
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
