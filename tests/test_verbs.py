"""Every verb from Python: the whole flow in a script, and each command is a call of one of them."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import json
import keyword
import re
import subprocess
import sys
from pathlib import Path

import doc_pages
import hub_writing  # noqa: F401 (the routes that write)
import pytest
from hub_standin import TOKEN

import ngramkit
from ngramkit.basics.kinds import KINDS
from ngramkit_cli import main

ROOT = Path(__file__).parents[1]
CLI = ROOT / "cli" / "ngramkit_cli"
COMMANDS = [name for name, _ in doc_pages.leaves()]


def function_of(command):
    """The function of a command: its own name, as Python can say it."""
    name = re.sub("[- ]", "_", command)
    taken = keyword.iskeyword(name) or hasattr(builtins, name)
    return f"{name}_" if taken else name


def signature(command):
    """The parameters of a command's function."""
    name = function_of(command)
    return inspect.signature(
        getattr(importlib.import_module(ngramkit._HOMES[name]), name)
    ).parameters


def test_every_command_is_a_function_by_its_own_name():
    assert "history merge" in COMMANDS
    assert "import" in COMMANDS
    for command in COMMANDS:
        name = function_of(command)
        assert name in ngramkit.__all__, command
        assert callable(getattr(ngramkit, name))
        assert signature(command) or name in ARGUMENTLESS


ARGUMENTLESS = {"corpora", "models"}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_a_call_of_its_function(command):
    """Its file calls ngramkit.NAME, and imports no builder beside."""
    first = command.split()[0]
    file = importlib.import_module(f"ngramkit_cli.{main.COMMANDS[first][0].split('.')[0]}")
    tree = ast.parse(Path(file.__file__).read_text())
    called = {
        node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "ngramkit"
    }
    if command != "decode":  # which builds DecodeOptions and answers with them
        assert function_of(command) in called
    builders = [
        node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith(
            ("ngramkit.builders", "ngramkit.exchange", "ngramkit.hub")
        )
        and node not in typed_only(tree)
    ]
    assert not builders


def typed_only(tree):
    """The imports under `if TYPE_CHECKING:`."""
    blocks = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
    ]
    return {statement for block in blocks for statement in ast.walk(block)}


# Options of the command line that Python says otherwise: a plural for what may be repeated, as
# drafters, or what is said here. None: of the terminal alone.
SAID = {
    "no_store": "store",
    "reference": "references",
    "curve": "artifacts",
    "prompt": "prompts",
    "prompt_file": "prompts",
    "keep_state": "keep_state",
    "repeat": "keep_state",
    "from": "origin",
    "cache_dir": None,
    "cache_size": None,
    "color": None,
    "json": None,
    "debug": None,
    "verbose": None,
    "quiet": None,
    "help": None,
    "yes": None,
    "plot": None,  # Replays.plot
    "model_name": "model",
    **dict.fromkeys(
        ["kv_bits", "kv_group", "kv_top_k", "kv_residual", "speculative_token"], "cache"
    ),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_options_of_a_command_are_the_words_of_its_function(command):
    words = set(signature(command))
    for option in dict(doc_pages.leaves())[command].params:
        if option.param_type_name == "argument":
            continue
        long = next(flag for flag in option.opts if flag.startswith("--"))
        flag = long.removeprefix("--").replace("-", "_")
        said = SAID.get(flag, flag)
        known = said is None or said in words or f"{said}s" in words
        if "source" in words and flag in ("corpus", "tokens"):
            known = True
        if command == "replay" and flag in ("seed", "prompts"):
            known = "keep_state" in words
        assert known, f"{command} {flag}: {sorted(words)}"


# Words of Python alone: what is open already, what a program hears, names for texts that it holds.
OF_PYTHON = {"reporter", "show", "artifacts", "recipe", "name"}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_words_of_a_function_are_options_of_its_command(command):
    options = dict(doc_pages.leaves())[command].params
    arguments = sum(option.param_type_name == "argument" for option in options)
    said = {flag.removeprefix("--").replace("-", "_") for each in options for flag in each.opts}
    said |= {SAID.get(option) for option in said} - {None}
    if {"corpus", "tokens"} <= said:
        said.add("source")
    words = signature(command)
    for position, word in enumerate(words):
        known = position < arguments or said & {word, word.removesuffix("s")} or word in OF_PYTHON
        assert known, f"{command}: {word}"


def test_the_command_of_a_kind_takes_what_its_card_prints():
    """The card gives a kind's builder its model, and if it reads a corpus the corpus too."""
    for kind in KINDS.values():
        options = dict(doc_pages.leaves())[kind.command].params
        flags = {flag for each in options for flag in each.opts}
        assert {"--model"} <= flags, kind.name
        assert kind.of_model or {"--corpus"} <= flags, kind.name


def test_what_takes_urls_says_where_their_files_are_staged():
    for command, parsed in doc_pages.leaves():
        options = {option.name for option in parsed.params}
        urls = [option.name for option in parsed.params if "URL" in (option.metavar or "")]
        assert not urls or {"cache_dir", "cache_size"} <= options, (command, urls)


SCRIPT = """
import json
import sys
import ngramkit

store = ngramkit.tokenize("corpus.txt", "demo", "tokens")
datastore = ngramkit.build_datastore(store, "d")
frozen = ngramkit.build_frozen("tokens", "f", follower_len=2)
from_text = ngramkit.build_datastore("corpus.txt", "e", model="demo", limit=1, memory="64M")
unigram = ngramkit.model_unigram("demo", "u", k=5)
found = ngramkit.inspect("d", "import")
pushed = ngramkit.push("d", "acme/verbs", tag="v1")
pulled = ngramkit.pull("acme/verbs@v1", "pulled")
ngramkit.export("d", "llama.cpp", "d.bin")
imported = ngramkit.import_("d.bin", "llama.cpp", "i", model="demo")
exported = ngramkit.export("d", "jsonl", "d.jsonl")
drafter = ngramkit.load_drafter("rest", datastores=[datastore])
json.dump({
    "reprs": [repr(datastore), repr(frozen), repr(unigram.table), repr(store)],
    "unigram": unigram.to_dict(),
    "inspection": found.to_dict(),
    "frequent": ngramkit.inspect("f").most_frequent.to_pandas()["matches"].tolist(),
    "verified": ngramkit.verify("f").to_dict(),
    "pushed": pushed.to_dict(),
    "pulled": pulled.to_dict(),
    "remote": ngramkit.open_artifact("hf://acme/verbs@v1").manifest.build,
    "build": datastore.manifest.build,
    "found": ngramkit.search().to_dict(),
    "rows": len(ngramkit.search().to_pandas()),
    "imported": imported.kind,
    "exported": exported.to_dict(),
}, sys.stdout)
"""


def test_the_whole_flow_from_python(tmp_path, hub):
    import os

    (tmp_path / "corpus.txt").write_text("import os\nimport sys\ndef main():\n    pass\n")
    environment = {**os.environ, **hub.environment(tmp_path / "home", TOKEN)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["reprs"][0].startswith("<Datastore ")
    assert said["reprs"][1].split(" ")[0] == "<FrozenTable"
    assert " leaders, demo, 0." in said["reprs"][1]
    assert said["inspection"]["query"]["matches"] == 2
    assert said["unigram"]["table"] == "u"
    assert said["unigram"]["seconds"] > 0
    assert said["frequent"] == sorted(said["frequent"], reverse=True)
    assert said["verified"]["ok"]
    assert len(said["verified"]["checks"]) > 3
    assert said["pulled"]["revision"] == said["pushed"]["revision"]
    assert said["remote"] == said["build"]
    assert [entry["id"] for entry in said["found"] if entry["id"] == "acme/verbs"]
    assert said["rows"] == len(said["found"])
    assert said["imported"] == "frozen-table"
    assert said["exported"]["counts"]["documents"] == 1


def test_a_recipe_from_python(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(
        'kind = "datastore"\n[model]\nid = "demo"\n[corpus]\nname = "python-stdlib"\nlimit = 2\n'
    )
    assert ngramkit.build("small.toml", check=True).status == "would build"
    built = ngramkit.build("small.toml")
    assert (built.status, built.why) == ("built", "missing")
    assert ngramkit.build("small.toml").to_dict()["status"] == "up to date"
    assert "Datastore" in repr(ngramkit.open_artifact(built.artifact))
