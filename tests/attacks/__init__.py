"""Attacks on ngramkit, and their outcomes.

Every test in this folder is an attack, and any test elsewhere may be one: it is marked
`@pytest.mark.attack` and tells its tries,

    tally("kill -9 during a pull", "the old one, whole")
    tally("one-bit flips", "refused", tries=320)

An attack that hurts fails its test, so an outcome is always one that is allowed.
`make attacks` runs them, two at a time, and prints the table of attacks, tries and outcomes. The
suite leaves them out, CI runs both.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

FOLDER = "NGRAMKIT_ATTACKS"  # environment: where a test process leaves what it has counted

_counted: Counter[tuple[str, str]] = Counter()


def tally(attack: str, outcome: str, tries: int = 1) -> None:
    """Count `tries` more of `attack` that ended in `outcome`."""
    _counted[attack, outcome] += tries


def leave() -> None:
    """Write this process's counts for the process that prints the table, if there is one."""
    folder = os.environ.get(FOLDER)
    if folder and _counted:
        rows = [[attack, outcome, tries] for (attack, outcome), tries in _counted.items()]
        Path(folder, f"{os.getpid()}.json").write_text(json.dumps(rows), encoding="utf-8")


def gather(folder: Path) -> dict[str, Counter[str]]:
    """Return {attack: {outcome: tries}} of all processes."""
    found: dict[str, Counter[str]] = {}
    for path in sorted(folder.glob("*.json")):
        for attack, outcome, tries in json.loads(path.read_text(encoding="utf-8")):
            found.setdefault(attack, Counter())[outcome] += tries
    return found
