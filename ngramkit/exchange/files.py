"""A file that appears whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ngramkit.errors import UsageError


@contextmanager
def whole_file(path: Path, *, force: bool = False) -> Iterator[BinaryIO]:
    """Writes go to PATH.partial, which is renamed at the end and removed after an error.

    Raises UsageError where `path` exists and `force` is off.
    """
    refuse_existing(path, force=force)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def refuse_existing(path: Path, *, force: bool) -> None:
    """Raises UsageError where `path` exists and `force` is off."""
    if path.exists() and not force:
        raise UsageError(
            f"{path} exists",
            "choose another out, or replace it with force=True",
            option=("out", "force"),
        )
