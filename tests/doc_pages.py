"""The generated parts of the documentation: `python -m tests.doc_pages [--write]` (make docs).

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

import ngramkit
from ngramkit.errors import ArtifactError, InputError, NetworkError, NgramkitError, UsageError
from ngramkit_cli.main import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SECTION = re.compile(r"(<!-- generated: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
FORMATS = [
    "tokens",
    "datastore",
    "frozen_table",
    "model_bigram",
    "model_unigram",
    "request_log",
    "evidence",
]


def leaves(command: Any = None, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield ("history trim", its command) and so on: every command that does something."""
    command = command or get_command(app)
    children = getattr(command, "commands", None)
    if children is None:
        yield name, command
        return
    for child_name, child in children.items():
        yield from leaves(child, f"{name} {child_name}".strip())


def commands() -> str:
    """Return a row per command, in flow order, with what it does."""
    rows = ["| command | what it does |", "|---|---|"]
    for name, command in leaves():
        first = (command.help or "").strip().split("\n\n")[0].replace("\n", " ")
        rows.append(f"| `ngramkit {name}` | {first} |")
    return "\n".join(rows)


def options() -> str:
    """Return `--help` of every command, folded."""
    runner = CliRunner()
    parts = []
    for name, _ in leaves():
        line = [*name.split(), "--help"]
        environment = {"COLUMNS": "100", "TERMINAL_WIDTH": "100"}
        text = runner.invoke(app, line, env=environment, prog_name="ngramkit").output
        text = "\n".join(line.rstrip() for line in text.strip().splitlines())
        parts.append(
            f"<details><summary><code>ngramkit {name}</code></summary>\n\n"
            f"```\n{text}\n```\n\n</details>"
        )
    return "\n".join(parts)


def formats() -> str:
    """Return the specification of every artifact kind, from its module."""
    parts = []
    for name in FORMATS:
        module = importlib.import_module(f"ngramkit.formats.{name}")
        parts.append(f"```text\n{(module.__doc__ or '').strip()}\n```")
    return "\n\n".join(parts)


def python() -> str:
    """Return the signature and the docstring of every public function, folded."""
    parts = []
    for name in ngramkit.__all__:
        function = getattr(ngramkit, name)
        if not isinstance(function, type):
            text = inspect.getdoc(function) or ""
            if isinstance(function, ModuleType):  # which is called as a function
                text = text.partition("\n\n")[2]
            parts.append(
                f"<details><summary><code>ngramkit.{name}</code></summary>\n\n"
                f"```text\n{signature(name)}\n\n{text}\n```\n\n</details>"
            )
    return "\n".join(parts)


def signature(name: str) -> str:
    """Return the call of a public function, a parameter a line."""
    shown = inspect.signature(getattr(ngramkit, name))
    lines, named = [], False
    for each in shown.parameters.values():
        if each.kind == each.KEYWORD_ONLY and not named:
            lines.append("*")
            named = True
        default = each.default.as_posix() if isinstance(each.default, Path) else each.default
        value = "" if each.default is each.empty else f" = {default!r}"
        stars = {each.VAR_KEYWORD: "**", each.VAR_POSITIONAL: "*"}.get(each.kind, "")
        lines.append(f"{stars}{each.name}: {each.annotation}{value}")
    inside = "".join(f"    {line},\n" for line in lines)
    return f"{name}(\n{inside}) -> {shown.return_annotation}" if lines else f"{name}()"


def exit_codes() -> str:
    rows = ["| code | meaning |", "|---|---|", "| 0 | done |"]
    families = [NgramkitError, UsageError, InputError, NetworkError]
    meanings = ["failed, or would change", "usage", "bad input or artifact", "network or Hub"]
    assert ArtifactError.exit_code == InputError.exit_code
    for family, meaning in zip(families, meanings, strict=True):
        rows.append(f"| {family.exit_code} | {meaning} |")
    return "\n".join([*rows, "| 130 | interrupted |"])


def record() -> str:
    """Return tokens/step on the record, from docs/record.json."""
    from benchmarks.record import read_figures, table

    return table(read_figures())


def real() -> str:
    """Return what was measured on a real model, from docs/real.json."""
    from benchmarks._real_figures import read_figures, table

    return table(read_figures())


def real_facts() -> str:
    """Return what those figures hold for."""
    from benchmarks._real_figures import facts, read_figures

    return facts(read_figures())


def evidence() -> str:
    """Return drafters side by side, from docs/evidence.json."""
    from benchmarks.evidence import page, read_figures

    return page(read_figures())


def longcontext(part: str) -> str:
    """Return what a SpeCache forgets, from docs/longcontext.json."""
    from benchmarks.longcontext import TABLES, read_figures

    return TABLES[part](read_figures())


GENERATORS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "options": options,
    "formats": formats,
    "python": python,
    "exit_codes": exit_codes,
    "record": record,
    "evidence": evidence,
    "real": real,
    "real_facts": real_facts,
    **{
        f"longcontext_{part}": functools.partial(longcontext, part)
        for part in ("needles", "hits", "multikey", "text", "guesses", "layers")
    },
}


def generated(text: str) -> str:
    """Return a page with every generated part made anew."""
    return SECTION.sub(lambda m: f"{m[1]}{GENERATORS[m[2]]()}\n{m[4]}", text)


def main() -> int:
    behind = 0
    for page in PAGES:
        current = page.read_text(encoding="utf-8")
        fresh = generated(current)
        if "--write" in sys.argv[1:]:
            page.write_text(fresh, encoding="utf-8")
            continue
        changes = difflib.unified_diff(current.splitlines(), fresh.splitlines(), lineterm="", n=0)
        text = "\n".join(changes)
        if text:
            print(f"{page.relative_to(ROOT)} is behind the code; run: make docs\n{text}")
            behind = 1
    return behind


if __name__ == "__main__":
    raise SystemExit(main())
