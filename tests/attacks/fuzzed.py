"""The fuzzer's tries so far: kept between its runs, and published in docs/reliability.md."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
KEPT = ROOT / ".fuzzed.json"  # what was tried of the code as it is
HEAD = ("kind", "mutations", "outcomes")


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


def rows(known: dict[str, Report]) -> list[list[str]]:
    return [[kind, f"{each.outcomes.total():,}", each.ends()] for kind, each in known.items()]


def write(known: dict[str, Report]) -> None:
    """Write benchmarks/figures/fuzz.json, from which `make docs` fills the page."""
    from benchmarks._figures import write_figures

    write_figures("fuzz", "make fuzz", {"head": HEAD, "rows": rows(known)})
