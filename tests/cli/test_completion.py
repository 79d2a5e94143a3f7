"""What the Tab key offers: names of drafters, models, corpora and artifacts, in an instant."""

from __future__ import annotations

import json
import os
import re
import shutil

import pytest
from test_starts import ROOT, child

import ngramkit
from ngramkit_cli import completion

# Answers a shell's questions, each in a fork; one is the environment that the shell gives.
COMPLETE = """
import json, tempfile
questions, sys.argv = json.loads(sys.argv[1]), ["ngramkit"]
import ngramkit.drafters.registry  # which imports numpy
from ngramkit_cli.main import run
answers = []
for question in questions:
    with tempfile.TemporaryFile() as file:
        if not os.fork():
            os.environ.update(question)
            os.dup2(file.fileno(), 1)
            run()
            os._exit(1)  # it has answered nothing
        _, status = os.wait()
        assert status == 0, question
        file.seek(0)
        answers.append(file.read().decode())
print(json.dumps(answers))
"""


def complete(folder, *questions):
    """What `ngramkit` prints when a shell asks it, and imports none of the heavy libraries for."""
    env = {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "cli")))}
    blocked = "torch numba transformers datasets"
    return json.loads(child(COMPLETE, json.dumps(questions), blocked=blocked, cwd=folder, env=env))


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


OFFERED = {
    "ngramkit dec": ["decode"],
    "ngramkit decode --drafter rec": ["recycling"],
    "ngramkit drafters cach": ["cacheback"],
    "ngramkit decode --model smol": ["smollm2-135m"],
    "ngramkit calibrate mistral-7b-": ["mistral-7b-instruct"],
    "ngramkit decode --model ti": ["tiny", "tiny.gguf"],
    "ngramkit tokenize --corpus the-": ["the-stack"],
    "ngramkit warm --engine s": ["sglang"],
    "ngramkit check-engine tens": ["tensorrt-llm"],
    "ngramkit decode --datastore ": ["artifacts/mine"],
    "ngramkit decode --frozen-table artifacts/": [],
    "ngramkit inspect ./artifacts/m": ["./artifacts/mine"],
    "ngramkit export artifacts/mine --to r": ["rest-idx"],
    "ngramkit forecast --format v": ["vllm", "verl"],
    "ngramkit replay --template vi": ["vicuna"],
}


def test_tab_completes(folder):
    in_bash = [
        {
            "_NGRAMKIT_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(line.count(" ")),
        }
        for line in OFFERED
    ]
    in_zsh = [
        {"_NGRAMKIT_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": line} for line in OFFERED
    ]
    answers = complete(folder, *in_bash, *in_zsh)
    found = [answer.split() for answer in answers[: len(OFFERED)]]
    assert dict(zip(OFFERED, found, strict=True)) == OFFERED
    found = [
        re.findall(r'^(?:_arguments .*\(\()?"([^"]+)"', answer, re.MULTILINE)
        for answer in answers[len(OFFERED) :]
    ]
    assert dict(zip(OFFERED, found, strict=True)) == OFFERED


def test_every_drafter_and_model_is_offered_with_what_it_is():
    from ngramkit.basics.models import HUB_IDS
    from ngramkit.drafters.registry import DRAFTERS

    assert [name for name, _ in completion.drafters()] == list(DRAFTERS)
    assert HUB_IDS.keys() <= dict(completion.models("nowhere/")).keys()
    assert all(what for _, what in completion.corpora())


def test_bash_falls_back_to_files(tmp_path):
    (script,) = complete(tmp_path, {"_NGRAMKIT_COMPLETE": "source_bash"})
    assert "complete -o default -F" in script
