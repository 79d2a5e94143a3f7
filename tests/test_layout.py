"""The floors of the library: whatever is imported, lazily too, lies on a floor below."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from typer.main import get_command

from ngramkit_cli.command import first_clause
from ngramkit_cli.main import app

ROOT = Path(__file__).parents[1]
# From the ground up; a room is a module or a package of the library. Rooms of one floor do not know
# each other.
FLOORS = [
    ["basics"],
    ["kernels"],
    ["formats"],
    ["gguf", "remote"],
    ["corpus", "drafters"],
    ["budget", "builders", "catalog", "default_artifacts", "demo", "hub", "inspection", "logs",
     "recipe_files"],
    ["choose", "engines", "exchange"],
    ["decode"],
    ["evaluate", "recipes", "warming"],
]  # fmt: skip
HEAVY = {
    "torch", "transformers", "datasets", "numba", "pyarrow", "matplotlib", "huggingface_hub",
    "numpy", "tokenizers", "scipy",
}  # fmt: skip
TORCH = {"torch", "transformers"}
# Where torch may be imported at all; corpus and gguf load tokenizers through transformers, evaluate
# asks models what they hold likely, logs reads a file that torch wrote.
MAY_USE_TORCH = {"decode", "builders", "corpus", "evaluate", "gguf", "logs"}
RUN = (
    ROOT / "ngramkit/__main__.py"
)  # `python -m ngramkit`: starts the command line, is imported by none
IN_A_WORKER = {"ngramkit/engines/vllm_v2.py"}  # imported by an engine that has imported torch


@cache
def imports(path):
    """(module, at module level?) of every import in the file."""
    tree, found = ast.parse(path.read_text()), []
    top = set(map(id, tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) in top) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found += [(f"{node.module}.{alias.name}", id(node) in top) for alias in node.names]
    return found


def modules(package):
    return sorted((ROOT / package).rglob("*.py"))


def rooms():
    """Room -> its files."""
    files = [
        path for path in modules("ngramkit") if path not in (ROOT / "ngramkit/__init__.py", RUN)
    ]
    found = {}
    for path in files:
        found.setdefault(
            path.relative_to(ROOT / "ngramkit").parts[0].removesuffix(".py"), []
        ).append(path)
    return found


def test_every_room_has_its_floor():
    assert sorted(rooms()) == sorted(room for floor in FLOORS for room in floor)


def test_nothing_imports_from_above():
    below: dict[str, list[str]] = {}
    known: list[str] = []
    for floor in FLOORS:
        below |= {room: list(known) for room in floor}
        known += floor
    breaches = [
        f"{path.relative_to(ROOT)} imports {module}"
        for room, paths in rooms().items()
        for path in paths
        for module, _ in imports(path)
        if module.startswith("ngramkit.") and module.split(".")[1] not in [*below[room], room]
    ]
    assert not breaches


def test_no_module_imports_itself_by_way_of_others():
    names = {".".join(p.relative_to(ROOT).with_suffix("").parts): p for p in modules("ngramkit")}
    needs = {
        name: {m for found, _ in imports(path) for m in (found, found.rpartition(".")[0])}
        & set(names)
        for name, path in names.items()
    }
    order = graphlib.TopologicalSorter({name: found - {name} for name, found in needs.items()})
    order.prepare()  # CycleError names the circle


PRIVATE = re.compile(r"_[a-z]\w*")
THEIRS = {"_getframe", "_exit", "_replace", "_asdict", "_attn_implementation",
          "_python_dispatch", "_pytree", "_sampler",
          "_get_local_constants", "_local_constants", "_repr_html_"}  # fmt: skip


def test_tests_reach_into_no_privates_of_the_product():
    """Attributes and what is patched by name; those of the test's own objects are free."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        for name in reached(node)
        if PRIVATE.fullmatch(name) and name not in THEIRS
    ]
    assert not found


def reached(node):
    if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") not in ("self", "cls"):
        yield node.attr
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "setattr":
        yield from (str(a.value) for a in node.args[1:2] if isinstance(a, ast.Constant))


def test_the_library_does_not_know_the_command_line():
    for path in modules("ngramkit"):
        known = [m for m, _ in imports(path) if m.split(".")[0] in {"ngramkit_cli", "typer"}]
        assert not known or path == RUN, path


def test_the_command_line_imports_nothing_heavy_at_module_level():
    for path in modules("cli"):
        heavy = [m for m, top in imports(path) if top and m.split(".")[0] in HEAVY]
        assert not heavy, path


def test_torch_stays_in_its_place():
    for path in modules("ngramkit"):
        if str(path.relative_to(ROOT)) in IN_A_WORKER:
            continue
        if path.relative_to(ROOT / "ngramkit").parts[0] not in MAY_USE_TORCH:
            assert not [m for m, _ in imports(path) if m.split(".")[0] in TORCH], path


def test_help_loads_nothing_heavy():
    code = (
        "import sys, ngramkit, ngramkit_cli.main;"
        "from typer.testing import CliRunner;"
        "result = CliRunner().invoke(ngramkit_cli.main.app, ['--help']);"
        "assert result.exit_code == 0, result.output;"
        f"print(sorted({HEAVY!r} & set(sys.modules)));"
        "assert 'ngramkit_cli.artifact_cmd' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_the_list_of_commands_says_what_their_help_says():
    group = get_command(app)
    assert group.summaries() == [
        (name, first_clause(each.help)) for name, each in group.commands.items()
    ]
