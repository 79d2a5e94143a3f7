"""The generated parts of the documentation: `python -m tests.doc_pages [--write]` (make docs).

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import FunctionType
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

import ngramkit
from ngramkit.basics.errors import (
    InputError,
    NetworkError,
    NgramkitError,
    UsageError,
)
from ngramkit.basics.kinds import KINDS
from ngramkit.formats.opening import CLASS_OF_KIND
from ngramkit_cli.errors import EXIT_INTERRUPTED, exit_code
from ngramkit_cli.main import app

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "artifacts" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
NOTEBOOKS = sorted((ROOT / "research").glob("*.md"))
SECTION = re.compile(r"(<!-- generated: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
FORMATS = [
    "manifest",
    "safetensors",
    *(CLASS_OF_KIND[kind].__module__.rpartition(".")[2] for kind in KINDS),
    "history",
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


# The public names of ngramkit by the package that they are from, in the order of the flow.
CHAPTERS = {
    "Text to artifacts": "corpus builders decode.model_tables recipes",
    "Artifacts": "inspection catalog evaluate.prune exchange hub remote",
    "Drafters": "drafters choose",
    "Models": "basics.models gguf",
    "Decoding": "decode warming",
    "Judging": "evaluate",
    "Engines": "engines budget",
    "Past requests": "logs.history_commands",
    "Errors and progress": "basics",
}


def python() -> str:
    """Return every public name, from its docstring."""
    chapters: dict[str, list[str]] = {title: [] for title in [*CHAPTERS, "More"]}
    for name in ngramkit.__all__:
        thing = getattr(ngramkit, name)
        if inspect.ismodule(thing):  # called as the function of its name
            thing = getattr(importlib.import_module(ngramkit._HOMES[name]), name)
        chapters[_chapter(thing.__module__)].append(_entry(name, thing))
    return "\n\n".join(
        "\n\n".join([f"## {title}", *entries]) for title, entries in chapters.items() if entries
    )


def _chapter(module: str) -> str:
    """Return the chapter whose list has the longest name that the module is or lies in."""
    titles = {room: title for title, rooms in CHAPTERS.items() for room in rooms.split()}
    parts = module.split(".")[1:]
    above = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return next((titles[room] for room in above if room in titles), "More")


def _entry(name: str, thing: Any) -> str:
    """Return a name's heading, how it is called, what its docstring says, and a class's methods."""
    parts = [f"### {name}"]
    is_error = inspect.isclass(thing) and issubclass(thing, Exception)
    if inspect.isclass(thing) and issubclass(thing, Enum):
        parts.append(f"```python\n{', '.join(f'{name}.{each.name}' for each in thing)}\n```")
    elif not is_error and not getattr(thing, "_is_protocol", False):
        parts.append(f"```python\n{_call(name, thing)}\n```")
    text = inspect.getdoc(thing) or ""
    parts.append(_prose(text))
    if inspect.isclass(thing) and not is_error:
        methods = [
            f"- `{_call(key, value) if inspect.isfunction(value) else key}`: "
            + " ".join((inspect.getdoc(value) or "").split())
            for key, value in vars(thing).items()
            if not key.startswith("_") and isinstance(value, FunctionType | property)
        ]
        parts += ["\n".join(methods)] if methods else []
    return "\n\n".join(parts)


def _call(name: str, function: Any) -> str:
    """Return how a function is called: its parameters, with their defaults."""
    entries = inspect.signature(function).parameters.values()
    bare = [
        entry.replace(annotation=entry.empty, default=_Shown.of(entry.default))
        for entry in entries
        if entry.name != "self"
    ]
    words = str(inspect.Signature(bare))[1:-1]
    if len(name) + len(words) < 98:
        return f"{name}({words})"
    return f"{name}(\n{textwrap.indent(textwrap.fill(words, 92), '    ')}\n)"


class _Shown(str):
    """A default as a page shows it."""

    @classmethod
    def of(cls, default: Any) -> Any:
        if default is inspect.Parameter.empty:
            return default
        if isinstance(default, str | Path):
            return cls(f'"{default}"')
        return cls("..." if " object at 0x" in repr(default) else repr(default))

    def __repr__(self) -> str:
        return str(self)


def _prose(text: str) -> str:
    """Return a docstring as Markdown: code is fenced."""
    parts = []
    for part in text.split("\n\n"):
        code = part.startswith((">>>", "    "))
        parts.append(f"```python\n{textwrap.dedent(part)}\n```" if code else part)
    return "\n\n".join(parts)


def recipe_keys() -> str:
    """Return the keys of a recipe, from the module that reads them."""
    from ngramkit import recipe_files as recipes

    keys = textwrap.dedent((recipes.__doc__ or "").split("\n\n", 1)[1].split("Unknown keys")[0])
    shape = f"```text\n{keys.rstrip()}\n```"
    corpus = f"`[corpus]` takes {', '.join(f'`{key}`' for key in recipes.CORPUS)}."
    rows = ["| kind | parameters, and their defaults |", "|---|---|"]
    for kind, defaults in recipes.PARAMETERS.items():
        values = (f"`{key} = {json.dumps(value)}`" for key, value in defaults.items())
        rows.append(f"| `{kind}` | {', '.join(values)} |")
    return "\n\n".join([shape, corpus, "\n".join(rows)])


def exit_codes() -> str:
    rows = ["| code | meaning |", "|---|---|", "| 0 | done |"]
    families = [NgramkitError, UsageError, InputError, NetworkError]
    meanings = ["failed, or would change", "usage", "bad input or artifact", "network or Hub"]
    for family, meaning in zip(families, meanings, strict=True):
        rows.append(f"| {exit_code(family(''))} | {meaning} |")
    return "\n".join([*rows, f"| {EXIT_INTERRUPTED} | interrupted |"])


def record() -> str:
    """Return tokens/step on the record."""
    from benchmarks.record import table

    return table()


def real() -> str:
    """Return README's table of drafters on a real model."""
    from benchmarks._real import table

    return table()


def real_facts() -> str:
    """Return all figures on that model."""
    from benchmarks._real import facts

    return facts()


def evidence() -> str:
    """Return drafters side by side."""
    from benchmarks.evidence import page

    return page()


def published() -> str:
    """Return figures of papers next to ours."""
    from benchmarks._published import table

    return table()


def longcontext(part: str) -> str:
    """Return what a SpeCache forgets."""
    from benchmarks.longcontext import table

    return table(part)


def packed_gain() -> str:
    """Return what packed weights bring without drafts."""
    from benchmarks._real import packed_gain

    return packed_gain()


def vllm_steps() -> str:
    """Return README's figures of vLLM's Model Runner V2."""
    from benchmarks._figures import read_figures

    steps = {name: (once, again) for name, once, _, again, _ in read_figures("vllm_v2")["rows"]}
    ngram, _ = steps["vLLM's `ngram`"]
    datastore, _ = steps["ngramkit, datastore"]
    _, learned = steps["ngramkit, datastore and its own answers"]
    _, suffix = steps["vLLM's `suffix` (V1)"]
    return (
        f"On MT-Bench a datastore divides the steps of vLLM's Model Runner V2 by {datastore} "
        f"(vLLM's `ngram`: {ngram}).\nWhen the questions come again, its own answers divide "
        f"them by {learned} (vLLM's `suffix`: {suffix})."
    )


def figure(name: str) -> str:
    """Return the table of benchmarks/figures/NAME.json."""
    from benchmarks._figures import table

    return table(name)


def figures() -> list[str]:
    """Return the names of the records that are tables."""
    from benchmarks._figures import tables

    return tables()


GENERATORS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "options": options,
    "formats": formats,
    "python": python,
    "recipe_keys": recipe_keys,
    "exit_codes": exit_codes,
    "record": record,
    "evidence": evidence,
    "published": published,
    "real": real,
    "real_facts": real_facts,
    "packed_gain": packed_gain,
    "vllm_steps": vllm_steps,
    **{f"figure_{name}": functools.partial(figure, name) for name in figures()},
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
    for page in [*PAGES, *NOTEBOOKS]:
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
