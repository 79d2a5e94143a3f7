"""`python -m benchmarks [NAME ...]`: run all or some, print the table."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

import benchmarks
from benchmarks._figures import machine

HEAD = ("what", "ours", "reference", "ratio", "target")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(available()))
    options = parser.parse_args()
    unknown = set(options.names) - set(available())
    if unknown:
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}")
    rows = run(options.names or available())
    cells = [(row.what, row.ours, row.reference, f"{row.ratio:.2f}", row.target) for row in rows]
    print(f"Measured on {machine()}.\n\n{benchmarks.markdown(HEAD, cells)}")
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


if __name__ == "__main__":
    raise SystemExit(main())
