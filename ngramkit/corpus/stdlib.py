"""The running interpreter's standard library as a corpus, which needs no download."""

from __future__ import annotations

import hashlib
import os
import sysconfig
from pathlib import Path

from ngramkit.basics.errors import InputError

# Many Python packages omit the test suite, so including it would make the corpus unstable.
TEST_FOLDERS = frozenset({"test", "tests", "idle_test"})
NOT_LIBRARY = frozenset({"site-packages", "dist-packages", "__pycache__"})
HELD_OUT_ONE_IN = 10
SPLITS = ("train", "held-out", "all")
DEFAULT_SPLIT = "train"


def stdlib_files(*, tests: bool = False) -> list[tuple[str, Path]]:
    """Return (relative name, path) of every source file, sorted.

    >>> stdlib_files()[0][0]
    '__future__.py'
    """
    root = Path(sysconfig.get_path("stdlib"))
    skipped = NOT_LIBRARY if tests else NOT_LIBRARY | TEST_FOLDERS
    files = []
    for folder, below, names in os.walk(root):
        below[:] = set(below) - skipped
        for name in names:
            # _sysconfigdata holds paths of the build machine.
            if name.endswith(".py") and not name.startswith("_sysconfigdata"):
                path = Path(folder, name)
                files.append((path.relative_to(root).as_posix(), path))
    return sorted(files)


def is_held_out(name: str) -> bool:
    """Return whether the demo model never saw the file."""
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:8], "little") % HELD_OUT_ONE_IN == 0


def stdlib_split(split: str = DEFAULT_SPLIT) -> list[tuple[str, Path]]:
    """Return the files of "train" (nine tenths), "held-out" or "all"."""
    if split not in SPLITS:
        raise InputError(
            f"unknown split {split!r} of python-stdlib", f"Choose one of {', '.join(SPLITS)}."
        )
    wanted = {"train": (False,), "held-out": (True,), "all": (False, True)}[split]
    return [(name, path) for name, path in stdlib_files() if is_held_out(name) in wanted]
