"""`python -m tests.attacks [--write] [PYTEST OPTIONS]`: every attack is tried; then the table.

`--write` also puts it into research/attacks.md, if nothing fell. Ends with pytest's exit code: 0
where nothing fell.
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
PAGE = TESTS.parent / "research" / "attacks.md"
PROCESSES = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
BEGIN, END = "<!-- attacks: begin -->\n", "<!-- attacks: end -->"


def table(found: dict[str, Counter[str]]) -> str:
    """Return one row per attack: tries and outcomes, the most frequent first.

    Attacks that share what stands before ": ", as a kill during each command, share a row.
    """
    totals: dict[str, Counter[str]] = {}
    for attack, ends in found.items():
        totals.setdefault(attack.partition(": ")[0], Counter()).update(ends)
    rows = ["| attack | tries | how they ended |", "|---|---:|---|"]
    for attack in sorted(totals):
        ends = ", ".join(f"{tries:,} {outcome}" for outcome, tries in totals[attack].most_common())
        rows.append(f"| {attack} | {sum(totals[attack].values()):,} | {ends} |")
    return "\n".join(rows)


def written(page: str, rows: str) -> str:
    """Return the page with `rows` in place of its table."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}{rows}\n{END}{rest.split(END)[1]}"


def main(options: list[str]) -> int:
    write = "--write" in options
    options = [option for option in options if option != "--write"]
    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER] = folder
        code = pytest.main(["-q", "-m", "attack", *PROCESSES, str(TESTS), *options])
        found = gather(Path(folder))
    print(table(found))
    if code:
        print("\nSome attack hurt: see the failures above.")
    elif write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(written(page, table(found)), encoding="utf-8")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
