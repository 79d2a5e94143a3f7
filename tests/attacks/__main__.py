"""`python -m tests.attacks [PYTEST OPTIONS]`: every attack is tried; then the table, as Markdown.

Ends with pytest's exit code: 0 where nothing fell.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from . import FOLDER, gather

TESTS = Path(__file__).parents[1]


def table(found: dict[str, Counter[str]]) -> str:
    """One row per attack: tries, and how they ended, the most frequent first."""
    rows = ["| attack | tries | how they ended |", "|---|---:|---|"]
    for attack in sorted(found):
        ends = ", ".join(f"{tries:,} {outcome}" for outcome, tries in found[attack].most_common())
        rows.append(f"| {attack} | {sum(found[attack].values()):,} | {ends} |")
    return "\n".join(rows)


def main(options: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER] = folder
        code = pytest.main(["-q", "-m", "attack", str(TESTS), *options])
        found = gather(Path(folder))
    print(table(found))
    if code:
        print("\nSome attack hurt: see the failures above.")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
