"""Every file of examples/ runs as it stands, and what it claims holds."""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path

import doc_pages
import numpy as np
import pytest
from notebooks import Kernel

import ngramkit
from ngramkit.drafters.base import Source
from ngramkit.engines.metrics import COUNTERS

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
BLOCK = re.compile(r"^```(?:python|py)\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(name, *words, monkeypatch):
    monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
    return runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_every_example_is_tried_here():
    here = Path(__file__).read_text(encoding="utf-8")
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    linked = " ".join(page.read_text(encoding="utf-8") for page in pages)
    for path in EXAMPLES.iterdir():
        assert path.is_dir() or f'"{path.name}"' in here
        assert path.is_dir() or f"examples/{path.name})" in linked


def private_imports(code):
    """What a program takes of ngramkit beside its public names and the adapters of engines."""
    for node in ast.walk(ast.parse(code)):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module == "ngramkit":
            yield from {alias.name for alias in node.names} - set(ngramkit.__all__)
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "ngramkit":
            yield from {node.attr} - set(ngramkit.__all__)
        for module in modules:
            if module.startswith("ngramkit.") and not module.startswith("ngramkit.engines."):
                yield module


def programs():
    """(name, code) of every example, and of every block of Python in the documentation."""
    for path in sorted(EXAMPLES.glob("*.py")):
        yield path.name, path.read_text(encoding="utf-8")
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        yield path.name, "\n".join(codes)
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        written = doc_pages.SECTION.sub("", page.read_text(encoding="utf-8"))  # by hand
        for number, block in enumerate(BLOCK.findall(written)):
            yield f"{page.name} {number}", textwrap.dedent(block)


@pytest.mark.parametrize(("name", "code"), list(programs()), ids=lambda value: value[:40])
def test_programs_import_nothing_private(name, code):
    assert not list(private_imports(code)), name


def test_a_private_import_is_noticed():
    code = """
import ngramkit, ngramkit.formats.manifest
from ngramkit import load_model, recipes
from ngramkit.corpus.open import open_corpus
from ngramkit.engines.vllm import Proposer
ngramkit.decode("x"); ngramkit.choose.listed()
"""
    taken = ["choose", "ngramkit.corpus.open", "ngramkit.formats.manifest", "recipes"]
    assert sorted(private_imports(code)) == taken


def test_a_custom_drafter_takes_thirty_lines_and_changes_nothing(monkeypatch, capsys):
    run("custom_drafter.py", monkeypatch=monkeypatch)  # it asserts that the text is the model's
    assert "def read_config" in capsys.readouterr().out
    text = (EXAMPLES / "custom_drafter.py").read_text(encoding="utf-8")
    body = text[text.index("class Followers") : text.index("if __name__")].strip()
    assert len(body.splitlines()) <= 30


def test_a_datastore_is_read_in_forty_lines_and_drafts_what_ours_does(
    monkeypatch, capsys, tmp_path
):
    code = (EXAMPLES / "read_datastore.py").read_text(encoding="utf-8")
    assert len(code[code.index("import json") :].splitlines()) <= 40
    imported = {name.split(".")[0] for name in re.findall(r"^(?:from|import) (\S+)", code, re.M)}
    assert imported - set(sys.stdlib_module_names) == {"safetensors"}
    texts = [f"the {a} of a {b} is a {a}" for a in ["red", "green", "blue"] for b in ["cat", "hat"]]
    store = ngramkit.build_datastore(texts, tmp_path / "d", model="demo", name="t", shard_tokens=30)
    assert len(store.shards) > 2
    names = run("read_datastore.py", store.path, 1, 2, monkeypatch=monkeypatch)
    capsys.readouterr()
    theirs = names["Datastore"](store.path)
    ours = ngramkit.load_drafter("automaton:threshold=1,bias=0,width=8", datastores=[store])
    compared = 0
    for shard in store.shards:
        for end in range(1, len(shard.tokens)):
            context = [
                token for token in shard.tokens[:end].tolist()[-5:] if token < store.separator
            ]
            ours.start(np.array(context, np.int32))
            tree = ours.draft(8)
            if len(tree.token_ids) and tree.source[0] == Source.DATASTORE:
                assert theirs.draft(context) == tree.token_ids.tolist()
                compared += 1
    assert compared > 50


def test_reading_a_wrong_folder_as_a_datastore_is_two_lines(tmp_path, monkeypatch):
    (tmp_path / "manifest.json").write_text('{"kind": "history", "version": 1}')
    for given in ([], [tmp_path / "missing", 1], [tmp_path, 1], [tmp_path, "x"]):
        with pytest.raises(SystemExit) as ended:
            run("read_datastore.py", *given, monkeypatch=monkeypatch)
        first, second = str(ended.value).splitlines()
        assert "Error: " in first
        assert second == "usage: python examples/read_datastore.py DATASTORE TOKEN-ID TOKEN-ID ..."


def test_transformers_generate_writes_the_same_with_drafts(monkeypatch, capsys):
    run("transformers_generate.py", monkeypatch=monkeypatch)
    assert "class Cache:" in capsys.readouterr().out


def test_the_second_edit_repeats_the_first():
    """docs/seeing.md shows them."""
    lines = (EXAMPLES / "edits.jsonl").read_text(encoding="utf-8").splitlines()
    first, second = map(json.loads, lines)
    assert {"import logging", "                continue"} <= set(
        first["output"].splitlines()
    ) & set(second["output"].splitlines())


def test_from_a_corpus_to_a_plot(monkeypatch, capsys, tmp_path):
    run("corpus_to_plot.py", tmp_path / "out", 40, 3, monkeypatch=monkeypatch)
    assert (tmp_path / "out" / "replay.png").read_bytes().startswith(b"\x89PNG")
    assert "blend" in capsys.readouterr().out


def test_the_notebook_runs_from_top_to_bottom(monkeypatch, capsys):
    kernel = Kernel(monkeypatch)
    cells = json.loads((EXAMPLES / "quickstart.ipynb").read_text(encoding="utf-8"))["cells"]
    codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert not any(cell.get("outputs") for cell in cells)
    shown = [kernel.run(code) for code in codes]
    assert [type(value).__name__ for value in shown] == [
        "Datastore", "NoneType", "Replays", "dict", "Forecasts"]  # fmt: skip
    tables = [value for value in shown if hasattr(value, "_repr_html_")]
    assert all("<table" in value._repr_html_() for value in tables)
    assert len(tables) == 3
    assert len(kernel.displays) == 4
    assert float(capsys.readouterr().out.splitlines()[-1]) > 1


def pipeline(folder, least):
    """The script in a folder with a small recipe, with `ngramkit` from this environment."""
    (folder / "artifacts").mkdir(exist_ok=True)
    corpus = '[corpus]\nname = "python-stdlib"\nlimit = 20\n'
    recipe = f'kind = "datastore"\n[model]\nid = "demo"\n{corpus}'
    (folder / "artifacts" / "small.toml").write_text(recipe)
    answer = {"prompt": "import os\n", "output": "import sys\nimport os\nimport re\nimport sys\n"}
    (folder / "answers.jsonl").write_text(json.dumps(answer) + "\n")
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    (bin_folder / "ngramkit").write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'from ngramkit_cli.main import run; run()' \"$@\"\n"
    )
    (bin_folder / "ngramkit").chmod(0o755)
    return subprocess.run(
        ["bash", EXAMPLES / "pipeline.sh", "answers.jsonl"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "NGRAMKIT_RECIPES": "small",
            "NGRAMKIT_LEAST": least,
        },
    )


def test_the_pipeline_says_how_it_is_called(tmp_path):
    line = ["bash", EXAMPLES / "pipeline.sh"]
    done = subprocess.run(line, cwd=tmp_path, text=True, capture_output=True, check=False)
    assert done.returncode != 0
    assert "usage: examples/pipeline.sh ANSWERS [QUESTIONS]" in done.stderr


def test_the_pipeline_builds_judges_and_refuses(tmp_path):
    done = pipeline(tmp_path, "0.5")
    assert done.returncode == 0, done.stderr
    assert "rest, 16 nodes" in done.stdout
    assert (tmp_path / "artifacts" / "small" / "manifest.json").is_file()
    refused = pipeline(tmp_path, "99")
    assert refused.returncode == 1
    assert "nothing is published" in refused.stderr


QUERY = re.compile(r"""
    (?P<name>ngramkit_\w+) | (?P<label>\w+)=~ | by\ \((?P<by>\w+)\) | (?P<word>[a-z_$]+)
""", re.VERBOSE)  # fmt: skip


def test_the_dashboard_asks_for_exported_counters_by_labels_that_exist():
    """`job` and `instance` are Prometheus's own labels; our counters have none."""
    text = (EXAMPLES / "grafana.json").read_text(encoding="utf-8")
    board = json.loads(text)
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    queries += [each["query"] for each in board["templating"]["list"]]
    found = [match for query in queries for match in QUERY.finditer(query)]
    assert {match["name"] for match in found} - {None} == set(COUNTERS)
    assert {match["label"] or match["by"] for match in found} - {None} == {"job", "instance"}
    words = {match["word"] for match in found} - {None}
    assert words == {"sum", "rate", "$__rate_interval", "label_values", "prometheus", "job",
                     "instance", "$job", "$instance"}  # fmt: skip
    assert all(query.count("(") == query.count(")") for query in queries)
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
