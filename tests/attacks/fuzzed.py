"""The fuzzer's tries so far: kept between its runs, and a table of docs/reliability.md."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
KEPT = ROOT / ".fuzzed.json"  # what was tried of the code as it is
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- fuzz: begin -->\n", "<!-- fuzz: end -->"


@dataclass
class Report:
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)  # "KIND SEED: what"

    def ends(self) -> str:
        return ", ".join(f"{n:,} {end}" for end, n in self.outcomes.most_common())


def code() -> str:
    """Return a checksum of all that decides the outcome of a mutation."""
    digest = hashlib.sha256()
    for folder in (ROOT / "ngramkit", TESTS / "attacks"):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def known_so_far() -> dict[str, Report]:
    """Return the tries with this very code, by kind."""
    if not KEPT.exists():
        return {}
    body = json.loads(KEPT.read_text(encoding="utf-8"))
    found = body["found"] if body["code"] == code() else {}
    return {kind: Report(Counter(ends), failures) for kind, (ends, failures) in found.items()}


def keep(known: dict[str, Report]) -> None:
    found = {kind: [report.outcomes, report.failures] for kind, report in known.items()}
    temporary = KEPT.with_suffix(".tmp")
    temporary.write_text(json.dumps({"code": code(), "found": found}), encoding="utf-8")
    temporary.replace(KEPT)


def table(known: dict[str, Report]) -> str:
    rows = ["| kind | mutations | how they ended |", "|---|---:|---|"]
    for kind, report in known.items():
        rows.append(f"| {kind} | {report.outcomes.total():,} | {report.ends()} |")
    return "\n".join(rows)


def write(known: dict[str, Report]) -> None:
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{table(known)}\n{END}{rest.split(END)[1]}", encoding="utf-8")
