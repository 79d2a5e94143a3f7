"""Every verb from Python: the whole flow in a script, and each command is a call of one of them."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import hub_writing  # noqa: F401 (the routes that write)
import pytest
from hub_standin import TOKEN

import ngramkit

ROOT = Path(__file__).parents[1]
CLI = ROOT / "cli" / "ngramkit_cli"
# command: (file, function, the verb it calls)
COMMANDS = {
    "tokenize": ("build_cmd", "tokenize", "tokenize"),
    "build-datastore": ("build_cmd", "build_datastore", "build_datastore"),
    "build-frozen": ("build_cmd", "build_frozen", "build_frozen"),
    "model-bigram": ("model_cmd", "model_bigram", "model_bigram"),
    "model-unigram": ("model_cmd", "model_unigram", "model_unigram"),
    "inspect": ("inspect_cmd", "inspect", "inspect"),
    "verify": ("inspect_cmd", "verify", "verify"),
    "history inspect": ("history_cmd", "inspect", "history"),
    "history import": ("history_cmd", "import_", "import_history"),
    "history merge": ("history_cmd", "merge", "merge_histories"),
    "history forget": ("history_cmd", "forget", "forget_history"),
    "history trim": ("history_cmd", "trim", "trim_history"),
    "forecast": ("forecast_cmd", "forecast", "forecast"),
    "build": ("recipe_cmd", "build", "build_recipe"),
    "push": ("hub_cmd", "push", "push"),
    "pull": ("hub_cmd", "pull", "pull"),
    "search": ("hub_cmd", "search", "search"),
    "export": ("exchange_cmd", "export", "export"),
    "import": ("exchange_cmd", "import_", "import_"),
    "merge": ("exchange_cmd", "merge", "merge"),
    "prune": ("prune_cmd", "prune", "prune"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_a_call_of_a_verb(command):
    file, name, verb = COMMANDS[command]
    tree = ast.parse((CLI / f"{file}.py").read_text())
    function = next(
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name
    )
    called = [
        node.func.attr
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "ngramkit"
    ]
    assert verb in called
    assert verb in ngramkit.__all__
    builders = [
        node.module
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith(
            ("ngramkit.builders", "ngramkit.exchange", "ngramkit.remote.hub", "ngramkit.hub")
        )
    ]
    assert not builders


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
    assert said["unigram"]["work"]["flops"] > 0
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
    assert ngramkit.build_recipe("small.toml", check=True).status == "would build"
    built = ngramkit.build_recipe("small.toml")
    assert (built.status, built.why) == ("built", "missing")
    assert ngramkit.build_recipe("small.toml").to_dict()["status"] == "up to date"
    assert "Datastore" in repr(ngramkit.open_artifact(built.artifact))
