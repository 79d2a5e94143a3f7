"""A file that appears whole or not at all, and replaces only an export of its own format."""

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
    """Open PATH.partial/NAME for writing; it replaces `path` at the end.

    `is_export` tells a file of the same format from others. `inputs` are what the export is made
    of. Raises UsageError where `path` exists and `force` is off or it is no such file, or where it
    is unfit for an output; InputError where another process writes there.
    """
    with claimed(path, inputs, sure=force):
        folder = partial_of(path)
        partial = folder / path.name
        _require_own(folder, path.name)
        _remove(partial)  # left by a run that was killed
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


def _remove(partial: Path) -> None:
    with suppress(OSError):
        partial.unlink(missing_ok=True)
        partial.parent.rmdir()


def _require_own(folder: Path, name: str) -> None:
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
