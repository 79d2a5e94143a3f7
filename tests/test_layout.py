"""The import rule: kernels <- formats <- builders, drafters <- budget <- decode <- evaluate <- cli;
budget <- engines."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from ngramkit_cli.command import gist
from ngramkit_cli.main import app

ROOT = Path(__file__).parents[1]
EVERYWHERE = {
    "caches",
    "errors",
    "hub_errors",
    "progress",
    "models",
    "machine",
    "processes",
    "visible",
    "hub_bars",
    "words",
}
# What stands between drafters and decode; `test_the_choice_knows_no_decoding`.
CHOICE = {"choose", "fitting", "sources", "automatic", "templates"}
# A package may import from the packages named here, and from itself.
MAY_IMPORT = {
    "kernels": set(),
    "formats": {"kernels"},
    "storage": {"kernels", "formats"},
    "gguf": {"kernels", "formats"},
    "corpus": {"kernels", "formats", "storage", "gguf"},
    "executors": set(),
    "builders": {"kernels", "formats", "corpus", "executors"},
    "exchange": {"kernels", "formats", "gguf", "corpus", "builders"},
    "drafters": {"kernels", "formats"},
    "budget": {"kernels", "formats", "drafters"},
    "engines": {"kernels", "formats", "drafters", "budget", "sources"},
    "demo": {"kernels", "formats", "corpus", "builders", "drafters", "decode", *CHOICE},
    "decode": {
        "kernels",
        "formats",
        "gguf",
        "corpus",
        "builders",
        "drafters",
        "budget",
        "demo",
        "warming",
        "results",
        *CHOICE,
    },
    "verbs": {
        "kernels",
        "formats",
        "corpus",
        "builders",
        "executors",
        "exchange",
        "decode",
        "fetching",
        "storage",
        "hub",
        "hub_pull",
        "hub_push",
        "hub_search",
        "recipes",
        "recipe_files",
        "results",
    },
    "evaluate": {
        "kernels",
        "formats",
        "corpus",
        "builders",
        "drafters",
        "demo",
        "decode",
        "fetching",
        "hub",
        "results",
        "storage",
        *CHOICE,
    },
}
HEAVY = {
    "torch", "transformers", "datasets", "numba", "pyarrow", "matplotlib", "huggingface_hub",
    "numpy", "tokenizers", "scipy",
}  # fmt: skip
TORCH = {"torch", "transformers"}
# Where torch may be imported at all; corpus and gguf load tokenizers through transformers, evaluate
# asks models what they hold likely.
MAY_USE_TORCH = {"decode", "demo", "builders", "corpus", "evaluate", "gguf"}


def imports(path):
    """(module, at module level?) of every import in the file."""
    tree = ast.parse(path.read_text())
    top = set(map(id, tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from ((f"{node.module}.{alias.name}", id(node) in top) for alias in node.names)


def modules(package):
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_nothing_imports_to_the_right(package):
    allowed = MAY_IMPORT[package] | {package} | EVERYWHERE
    breaches = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in modules(f"ngramkit/{package}")
        for module, _ in imports(path)
        if module.startswith("ngramkit.") and module.split(".")[1] not in allowed
    ]
    assert not breaches


def test_the_choice_knows_no_decoding():
    for name in CHOICE:
        right = {f"ngramkit.{package}" for package in ("decode", "evaluate")}
        found = [m for m, _ in imports(ROOT / "ngramkit" / f"{name}.py")]
        assert not [m for m in found if ".".join(m.split(".")[:2]) in right], name


PRIVATE = re.compile(r"_[a-z]\w*")
THEIRS = {"_getframe", "_exit", "_replace", "_attn_implementation", "_get_candidate_generator",
          "_python_dispatch", "_pytree"}  # fmt: skip


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
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls"):
        yield node.attr
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "setattr":
        yield from (str(a.value) for a in node.args[1:2] if isinstance(a, ast.Constant))


def test_every_package_has_its_rule():
    folders = {p.parent.name for p in (ROOT / "ngramkit").glob("*/__init__.py")}
    assert folders == set(MAY_IMPORT)


def test_the_library_does_not_know_the_command_line():
    for path in modules("ngramkit"):
        assert not [m for m, _ in imports(path) if m.split(".")[0] in {"ngramkit_cli", "typer"}], (
            path
        )


def test_the_command_line_imports_nothing_heavy_at_module_level():
    for path in modules("cli"):
        heavy = [m for m, top in imports(path) if top and m.split(".")[0] in HEAVY]
        assert not heavy, path


def test_torch_stays_in_its_place():
    for path in modules("ngramkit"):
        if path.relative_to(ROOT / "ngramkit").parts[0] not in MAY_USE_TORCH:
            assert not [m for m, _ in imports(path) if m.split(".")[0] in TORCH], path


def test_help_loads_nothing_heavy():
    code = (
        "import sys, ngramkit, ngramkit_cli.main;"
        "from typer.testing import CliRunner;"
        "result = CliRunner().invoke(ngramkit_cli.main.app, ['--help']);"
        "assert result.exit_code == 0, result.output;"
        f"print(sorted({HEAVY!r} & set(sys.modules)));"
        "assert 'ngramkit_cli.inspect_cmd' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_the_list_of_commands_says_what_their_help_says():
    group = get_command(app)
    assert group.gists() == [(name, gist(each.help)) for name, each in group.commands.items()]
