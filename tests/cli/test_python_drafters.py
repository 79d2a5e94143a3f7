"""`--drafter python:PACKAGE.MODULE:CLASS`: which code a command line may name."""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path

import pytest
from command_lines import run_here

import ngramkit
from ngramkit.basics.errors import UsageError
from ngramkit.engines.config import DraftConfig
from ngramkit_cli.python_drafters import without_working_folder

ROOT = Path(__file__).parents[2]
OTHERS = """
class Needs(Followers):
    def __init__(self, folder): pass

class Half:
    def draft(self, budget): pass

NUMBER = 3
"""
ANSWERS = [
    {"prompt": f"def f_{i}(x):\n", "output": "    return x + 1\n" * (i + 2)} for i in range(6)
]
REPLAY = ["replay", "--answers", "answers.jsonl", "--model", "demo", "--budget", "4"]
OWN = "python:own_package.drafters:Followers"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package with drafters; the working folder has answers and evil.py."""
    package, here = tmp_path / "site/own_package", tmp_path / "here"
    package.mkdir(parents=True)
    here.mkdir()
    (package / "__init__.py").write_text("")
    example = (ROOT / "examples/custom_drafter.py").read_text()
    (package / "drafters.py").write_text(example + OTHERS)
    (package / "broken.py").write_text("raise ValueError('half done')\n")
    (here / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ANSWERS))
    (here / "evil.py").write_text(
        "from pathlib import Path\nPath('PWNED').touch()\nclass Evil: pass\n"
    )
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setattr(sys, "path", ["", str(here), *sys.path])
    yield here
    for name in [name for name in sys.modules if name.partition(".")[0] in ("own_package", "evil")]:
        del sys.modules[name]
    assert not (here / "PWNED").exists()


def test_a_class_is_replayed_like_a_drafter_with_a_name(package):
    words = ["--drafter", "context", "--drafter", OWN, "--baseline", OWN, "--json"]
    done = run_here([*REPLAY, *words])
    assert done.code == 0, done.err
    assert [row["drafter"] for row in done.json["results"]] == ["context", "Followers"]
    assert [(each["of"], each["to"]) for each in done.json["ratios"]] == [("context", "Followers")]
    assert f"--drafter context --drafter {OWN}" in done.json["provenance"]["command"]
    from own_package.drafters import Followers  # what the command imported

    found = ngramkit.replay("answers.jsonl", model="demo", drafters=Followers, budgets=[4])
    assert found[0].total.passes == done.json["results"][1]["passes"]
    assert "" not in sys.path


def test_a_class_is_forecast_like_a_drafter_with_a_name(package):
    """With the context's drafter as a class, each request has its own and the figures agree."""
    (package.parent / "site/own_package/context.py").write_text(
        "import ngramkit\nclass Own:\n"
        "    def __new__(cls): return ngramkit.load_drafter('context')\n"
        "    def start(self, prompt): pass\n    def draft(self, budget): pass\n"
        "    def accept(self, tokens, evidence=None): pass\n    def finish(self): pass\n"
    )
    line = ["forecast", "answers.jsonl", "--model", "demo", "--no-store", "--json", "--drafter"]
    own, named = (run_here([*line, name]) for name in ("python:own_package.context:Own", "context"))
    assert own.code == named.code == 0, own.err + named.err
    assert (own.json["drafter"], named.json["drafter"]) == ("Own", "context")
    figures = [
        {name: value for name, value in done.json["results"][0].items() if name != "draft_us"}
        for done in (own, named)
    ]
    assert figures[0] == figures[1]
    made = ngramkit.load_drafter("context")
    with pytest.raises(UsageError, match="must be a name or a class, got one Context"):
        ngramkit.forecast("answers.jsonl", model="demo", drafter=made)


@pytest.mark.parametrize(
    "line",
    ["decode --prompt x", "bench", "record --out r", "replay --answers answers.jsonl",
     "forecast answers.jsonl"],
)  # fmt: skip
def test_commands_that_take_a_class_check_it_first(package, line):
    done = run_here(
        [*line.split(), "--model", "demo", "--drafter", OWN.replace("Followers", "Half")]
    )
    assert done.code == 2
    assert "cannot use python:own_package.drafters:Half" in done.err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("python:own_package", "must be python:PACKAGE.MODULE:CLASS, got 'python:own_package'"),
        ("python:own_package.drafters:A:b=1", "must be python:PACKAGE.MODULE:CLASS"),
        ("python:no_such_package:A", "no module named 'no_such_package'"),
        ("python:own_package.none:A", "no module named 'own_package.none'"),
        ("python:own_package.broken:A", "ValueError: half done"),
        ("python:own_package.drafters:Follower", "Did you mean Followers?"),
        ("python:own_package.drafters:Needs", "drafters:Needs: TypeError: "),
        ("python:own_package.drafters:Half", "lacks start, accept, finish"),
        ("python:own_package.drafters:NUMBER", "must be a drafter or its name, got 3"),
        ("python:evil:Evil", "the working folder is not searched"),
    ],
)  # fmt: skip
def test_what_is_not_a_drafter_is_refused_by_name(package, given, said):
    done = run_here([*REPLAY, "--drafter", given])
    assert done.code == 2
    assert said.lower() in done.err.lower()
    assert "tokens/step" not in done.out


def test_only_the_command_line_names_code(package):
    with pytest.raises(UsageError, match="unknown drafter 'python'"):
        ngramkit.replay("answers.jsonl", model="demo", drafters=OWN)
    with pytest.raises(UsageError, match="unknown drafter 'python'"):
        DraftConfig.read(json.dumps({"drafter": OWN}))
    done = run_here(["warm", "--drafter", OWN])
    assert done.code == 2
    assert "python" in done.err
    assert "own_package" not in sys.modules


def test_the_working_folder_is_searched_only_if_it_was_installed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here, standard = str(tmp_path), sysconfig.get_path("stdlib")
    assert without_working_folder(["", ".", here, "/x", standard]) == ["/x", standard]
    installed = [here, standard, "/site-packages", here]
    assert without_working_folder(installed) == installed[1:]
    assert without_working_folder([here, "/x"]) == ["/x"]
