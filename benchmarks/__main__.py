"""`python -m benchmarks [--write] [NAME ...]`: runs all or some, prints the table.

`--write` also puts it into docs/benchmarks.md, with the machine's description.
"""

from __future__ import annotations

import argparse
import importlib
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

import benchmarks
from ngramkit.basics.machine import cores, processor

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
BEGIN, END = "<!-- benchmarks: begin -->", "<!-- benchmarks: end -->"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(available()))
    parser.add_argument("--write", action="store_true", help="put the table into docs/")
    options = parser.parse_args()
    unknown = set(options.names) - set(available())
    if unknown:
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}")
    rows = run(options.names or available())
    cells = [(row.what, row.ours, row.reference, f"{row.ratio:.2f}", row.target) for row in rows]
    head = ("what", "ours", "reference", "ratio", "target")
    text = f"Measured on {machine()}.\n\n{benchmarks.markdown(head, cells)}"
    print(text)
    if options.write:
        write(text)
    return 0


def available() -> list[str]:
    """Name the modules that have `rows`."""
    files = sorted(Path(benchmarks.__file__).parent.glob("*.py"))
    return [path.stem for path in files if "\ndef rows(" in path.read_text(encoding="utf-8")]


def run(names: Sequence[str]) -> list[benchmarks.Row]:
    rows = []
    for name in names:
        for row in importlib.import_module(f"benchmarks.{name}").rows():
            print(f"{name}: {row.what}: {row.ours}, {row.ratio:.2f}x", file=sys.stderr)
            rows.append(row)
    return rows


def machine() -> str:
    """Return cores, processor and Python, on which the absolute figures depend."""
    return f"{cores()} cores ({processor()}), Python {platform.python_version()}"


def write(text: str) -> None:
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
