"""What starting costs, told by what is imported: building, drafting and shipping need no torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import hub_writing  # noqa: F401 (the routes that write)
import pytest
from hub_standin import TOKEN

ROOT = Path(__file__).parents[1]
PATHS = os.pathsep.join(map(str, (ROOT / "tests", ROOT, ROOT / "cli")))
# A child in which some modules cannot be imported: `BLOCKED` is an environment variable.
BLOCKING = """
import os, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if {name, name.split(".")[0]} & set(os.environ["BLOCKED"].split()):
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocked())
"""
RUN = """
import json
from command_lines import run_here
for line in json.loads(sys.argv[1]):
    result = run_here(line)
    print(json.dumps([line, result.code, result.out, result.err]))
"""
RECORD = {"prompt": "import os\nimport sys\n", "output": "def main():\n    print(os.getcwd())\n"}


def child(code, *arguments, blocked="", cwd=None, env=None):
    done = subprocess.run(
        [sys.executable, "-c", BLOCKING + code, *arguments],
        cwd=cwd,
        env={**os.environ, "BLOCKED": blocked, "PYTHONPATH": PATHS, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def commands(lines, tmp_path, blocked, env=None):
    """The JSON line of each command, run where `blocked` cannot be imported."""
    asked = json.dumps([[str(word) for word in line] for line in lines])
    results = []
    for text in child(RUN, asked, blocked=blocked, cwd=tmp_path, env=env).splitlines():
        line, code, out, err = json.loads(text)
        assert code == 0, (line, err)
        results.append(json.loads(out.splitlines()[-1]) if "--json" in line else out)
    return results


def test_a_mistake_is_told_without_what_reports_need(tmp_path):
    """Nor by way of packages' versions, whose reader takes a tenth of a start."""
    lines = "bench --questions none", "replay --answers none", "tokenize --corpus ./none"
    asked = json.dumps([line.split() for line in (*lines, "decode --prompt x --datastore none")])
    told = child(RUN, asked, blocked="email ngramkit.evaluate.bench_report", cwd=tmp_path)
    assert [json.loads(text)[1] for text in told.splitlines()] == [3, 3, 3, 3], told


@pytest.fixture
def recorded(tmp_path):
    (tmp_path / "answers.jsonl").write_text(json.dumps(RECORD) + "\n")
    (tmp_path / "corpus.txt").write_text("import os\nimport sys\ndef main():\n    pass\n")
    return tmp_path


def test_building_judging_and_shipping_need_no_torch(recorded, hub):
    """The whole life of artifacts, but for those that are read off a model and for decoding."""
    judge = ["replay", "--answers", "answers.jsonl", "--template", "none", "--budget", 4, "--json"]
    built = commands(
        [
            ["tokenize", "--corpus", "corpus.txt", "--out", "tokens", "--json"],
            ["build-datastore", "--tokens", "tokens", "--out", "d", "--json"],
            ["build-frozen", "--tokens", "tokens", "--out", "f", "--json"],
            ["verify", "d", "--json"],
            ["inspect", "d", "--query", "import", "--json"],
            [*judge, "--drafter", "blend", "--datastore", "d", "--frozen-table", "f"],
            [*judge, "--drafter", "rest", "--datastore", "d"],
            [*judge, "--drafter", "cacheback", "--frozen-table", "f"],
            [*judge, "--drafter", "context"],
            ["push", "d", "acme/no-torch", "--json"],
            ["pull", "acme/no-torch", "--out", "pulled", "--json"],
            ["search", "--json"],
            ["export", "d", "--to", "jsonl", "--out", "d.jsonl", "--json"],
            ["export", "d", "--to", "llama.cpp", "--out", "d.bin", "--json"],
            ["import", "d.bin", "--from", "llama.cpp", "--model", "demo", "--out", "i", "--json"],
            [
                "build-datastore",
                "--corpus",
                "answers.jsonl",
                "--column",
                "output",
                "--out",
                "e",
                "--json",
            ],
            ["merge", "d", "e", "--out", "both", "--json"],
        ],
        recorded,
        "torch transformers",
        hub.environment(recorded / "home", TOKEN),
    )
    assert built[4]["query"]["matches"] == 2


def test_looking_into_an_artifact_starts_nothing_heavy(recorded):
    build = ["build-datastore", "--corpus", "corpus.txt", "--out", "d"]
    frozen = ["build-frozen", "--corpus", "corpus.txt", "--out", "f"]
    commands([build, frozen], recorded, "torch transformers")
    heavy = "torch transformers numba scipy datasets pyarrow matplotlib pandas huggingface_hub"
    heavy += " pydantic numpy.ma"
    said = commands(
        [["inspect", "d"], ["inspect", "f"], ["inspect", "d", "--query", "import os"]],
        recorded,
        heavy,
    )
    assert "most frequent" in said[0]
    assert "most frequent" in said[1]


def test_the_package_itself_imports_nothing_heavy():
    heavy = "torch transformers numba scipy datasets pyarrow numpy tokenizers huggingface_hub rich"
    child("import ngramkit; print(ngramkit.__version__)", blocked=heavy)
