"""Measured figures: one JSON record per measurement, and the tables and pictures made from them.

`benchmarks/figures/NAME.json` holds the figures next to `measured`:

    command    what measures them
    commit     the commit that was measured, or null if it was not recorded
    published  the commit that first printed them, if `commit` is null
    date       of the measurement or the publication
    machine    cores, processor and threads

A record with `head` and `rows` is a table. Pages take their tables from these records alone
(`tests/doc_pages.py`), so two pages cannot differ.
"""

from __future__ import annotations

import datetime
import io
import json
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import markdown
from ngramkit.basics.machine import cores, processor

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FIGURES = ROOT / "benchmarks" / "figures"


def read_figures(name: str) -> Any:
    return json.loads((FIGURES / f"{name}.json").read_text(encoding="utf-8"))


def write_figures(name: str, command: str, figures: Mapping[str, Any]) -> None:
    """Write benchmarks/figures/NAME.json, measured now, on this machine, at this commit."""
    record = {"measured": measured(command), **figures}
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    (FIGURES / f"{name}.json").write_text(text, encoding="utf-8")


def measured(command: str) -> dict[str, str | None]:
    """Return the provenance of figures that `command` has just measured."""
    head = ["git", "-C", str(ROOT), "rev-parse", "--short=8", "HEAD"]
    commit = subprocess.run(head, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "command": command,
        "commit": commit or None,
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
    }


def machine() -> str:
    """Return cores, processor and Python, on which absolute figures depend."""
    return f"{cores()} cores ({processor()}), Python {platform.python_version()}"


def tables() -> list[str]:
    """Return the names of the records that are tables."""
    return sorted(path.stem for path in FIGURES.glob("*.json") if "rows" in read_figures(path.stem))


def table(name: str) -> str:
    """Return a record as Markdown."""
    record = read_figures(name)
    return f"{markdown(record['head'], record['rows'])}\n\n{provenance(record)}"


def provenance(record: Mapping[str, Any]) -> str:
    """Return a line that says how, when and where a record was measured."""
    found = record["measured"]
    commit = found["commit"] and f"commit {found['commit']}"
    if not commit:
        published = found.get("published")
        commit = f"published in commit {published}" if published else "commit not recorded"
    command = f"`{found['command']}`" if found["command"] else "command not recorded"
    date, where = (found[key] or f"{key} not recorded" for key in ("date", "machine"))
    return f"_Measured: {command}; {commit}, {date}; {where}._"


def draw_steps(name: str, title: str, steps: Mapping[str, Mapping[str, float]]) -> None:
    """Draw docs/NAME.svg: tokens/step by draft nodes. `steps`: {drafter: {budget: tokens/step}}."""
    from ngramkit.evaluate.plots import colors_of, draw_lines, saved_figure
    from ngramkit.evaluate.replay_figures import Replay, Tally

    passes = 10_000
    curves = [
        Replay(drafter, int(budget), Tally(tokens=round(step * passes), passes=passes))
        for drafter, by_budget in steps.items()
        for budget, step in by_budget.items()
    ]
    out = io.BytesIO()
    with saved_figure(out, (5.6, 4.4)) as figure:  # small, so that its text can be read on a phone
        draw_lines(figure.add_subplot(title=title), curves, colors_of(steps))
    (DOCS / f"{name}.svg").write_bytes(out.getvalue())
