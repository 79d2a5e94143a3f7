"""What the Tab key offers: names of drafters, models, corpora and artifacts, in an instant."""

from __future__ import annotations

import os
import re
import shutil

import pytest
from test_starts import ROOT, child

import ngramkit
from ngramkit_cli import completion

COMPLETE = """
sys.argv = ["ngramkit"]
from ngramkit_cli.main import run
run()
"""


def complete(folder, asked, **environment):
    """What `ngramkit` prints when a shell asks it, and imports none of the heavy libraries for."""
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "cli")))
    env = {"PYTHONPATH": paths, "_NGRAMKIT_COMPLETE": asked, **environment}
    return child(COMPLETE, blocked="torch numba transformers datasets", cwd=folder, env=env)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a datastore, what is left of a table, a model, and a name that would run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.txt").write_text("a b c\n")
    ngramkit.build_datastore("c.txt", "artifacts/mine", model="demo")
    shutil.copytree("artifacts/mine", "artifacts/$(touch pwned)")
    (tmp_path / "artifacts" / "broken").mkdir()
    (tmp_path / "artifacts" / "broken" / "manifest.json").write_text("{")
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text("{}")
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("ngramkit dec", ["decode"]),
        ("ngramkit decode --drafter re", ["rest", "recycling"]),
        ("ngramkit drafters cach", ["cacheback"]),
        ("ngramkit decode --model smol", ["smollm2-135m"]),
        ("ngramkit calibrate mistral-7b-", ["mistral-7b-instruct"]),
        ("ngramkit decode --model ti", ["tiny", "tiny.gguf"]),
        ("ngramkit tokenize --corpus the-", ["the-stack"]),
        ("ngramkit warm --engine s", ["sglang"]),
        ("ngramkit check-engine tens", ["tensorrt-llm"]),
        ("ngramkit decode --datastore ", ["artifacts/mine"]),
        ("ngramkit decode --frozen-table artifacts/", []),
        ("ngramkit inspect ./artifacts/m", ["./artifacts/mine"]),
        ("ngramkit export artifacts/mine --to r", ["rest-idx"]),
    ],
)
def test_tab_completes(line, offered, folder):
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    assert complete(folder, "complete_bash", **words).split() == offered
    in_zsh = complete(folder, "complete_zsh", _TYPER_COMPLETE_ARGS=line)
    assert re.findall(r'^(?:_arguments .*\(\()?"([^"]+)"', in_zsh, re.MULTILINE) == offered


def test_every_drafter_and_model_is_offered_with_what_it_is():
    from ngramkit.basics.models import HUB_IDS
    from ngramkit.drafters.registry import DRAFTERS

    assert [name for name, _ in completion.drafters()] == list(DRAFTERS)
    assert HUB_IDS.keys() <= dict(completion.models("nowhere/")).keys()
    assert all(what for _, what in completion.corpora())


def test_bash_falls_back_to_files(tmp_path):
    assert "complete -o default -F" in complete(tmp_path, "source_bash")
