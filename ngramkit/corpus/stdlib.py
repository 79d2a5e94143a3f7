"""The running interpreter's standard library as a corpus: always there, no download.

Knows which files count and which are held out; knows nothing of tokens.
"""

from __future__ import annotations

import hashlib
import sysconfig
from pathlib import Path

from ngramkit.errors import InputError

# Test suites are stripped from many Python packages, so they would make the corpus unstable.
TESTS = frozenset({"test", "tests", "idle_test"})
NOT_LIBRARY = frozenset({"site-packages", "dist-packages", "__pycache__"})
HELD_OUT_ONE_IN = 10
SPLITS = ("train", "held-out", "all")
DEFAULT_SPLIT = "train"


def stdlib_files(*, tests: bool = False) -> list[tuple[str, Path]]:
    """(name, path) of every source file, sorted by name; the name is relative, with `/`.

    >>> stdlib_files()[0][0]
    '__future__.py'
    """
    root = Path(sysconfig.get_path("stdlib"))
    skipped = NOT_LIBRARY if tests else NOT_LIBRARY | TESTS
    found = []
    for path in root.rglob("*.py"):
        relative = path.relative_to(root)
        # _sysconfigdata holds the build machine's paths, config-* its makefiles.
        if skipped.isdisjoint(relative.parts) and not relative.name.startswith("_sysconfigdata"):
            found.append((relative.as_posix(), path))
    return sorted(found)


def is_held_out(name: str) -> bool:
    """Whether the file belongs to the fixed tenth that the demo model never saw.

    Decided by the name alone, so it holds across interpreter versions.
    """
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:8], "little") % HELD_OUT_ONE_IN == 0


def stdlib_split(split: str = DEFAULT_SPLIT) -> list[tuple[str, Path]]:
    """`train`: without the held-out tenth. `held-out`: only that. `all`: both.

    Raises InputError at any other split.
    """
    if split not in SPLITS:
        raise InputError(f"python-stdlib has no split {split!r}", f"splits: {', '.join(SPLITS)}")
    wanted = {"train": (False,), "held-out": (True,), "all": (False, True)}[split]
    return [(name, path) for name, path in stdlib_files() if is_held_out(name) in wanted]
