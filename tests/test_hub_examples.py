"""The folders of examples/hub, as the Hub's clients would run them; without a network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

import ngramkit
from ngramkit.basics.models import resolve_model
from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.tokens import tokenize
from ngramkit.corpus.open import open_corpus

HUB = Path(__file__).parents[1] / "examples" / "hub"
CODE = "def area(width, height):\n    return width * height\n\n\n"


@pytest.fixture(scope="module")
def datastore(tmp_path_factory):
    folder = tmp_path_factory.mktemp("artifact")
    (folder / "code.txt").write_text(CODE * 3)
    store = tokenize(open_corpus(str(folder / "code.txt")), "demo", folder / "tokens")
    return build_datastore(store, folder / "datastore").path


def test_each_is_small_and_has_a_readme():
    for folder in HUB.iterdir():
        assert (folder / "README.md").is_file()
        for path in folder.rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                assert len(path.read_text(encoding="utf-8").splitlines()) <= 100, path


@pytest.mark.parametrize("folder", ["custom_generate", "space"])
def test_the_headers_are_yaml(folder):
    text = (HUB / folder / "README.md").read_text(encoding="utf-8")
    header = yaml.safe_load(text.split("---\n")[1])
    assert "ngramkit" in header["tags"]
    if folder == "space":
        assert (header["sdk"], header["app_file"]) == ("gradio", "app.py")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """The custom_generate folder; transformers copies its code below tmp_path."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "m"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "m"), *sys.path])
    before = set(sys.modules)
    yield str(HUB / "custom_generate")
    for name in set(sys.modules) - before:
        if name.startswith("transformers_modules"):
            del sys.modules[name]


@pytest.mark.parametrize("with_artifact", [False, True])
def test_custom_generate_writes_the_models_text(repository, datastore, with_artifact):
    name = resolve_model("demo")
    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(name)
    inputs = tokenizer("def area(width", return_tensors="pt")
    wanted = {"max_new_tokens": 24, "do_sample": False}
    hub = {"custom_generate": repository, "trust_remote_code": True, "budget": 8}
    hub |= {"artifact": str(datastore)} if with_artifact else {"drafter": "cacheback"}
    assert torch.equal(
        model.generate(**inputs, **wanted, **hub), model.generate(**inputs, **wanted)
    )
    with pytest.raises(ValueError, match="trust_remote_code"):
        model.generate(**inputs, **wanted, custom_generate=repository, trust_remote_code=False)


def test_custom_generate_refuses_an_artifact_of_another_tokenizer(
    repository, token_store, tmp_path
):
    other = build_datastore(token_store([[1, 2, 3]], 12, eos=11), tmp_path / "other")
    name = resolve_model("demo")
    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32).eval()
    hub = {"custom_generate": repository, "trust_remote_code": True, "artifact": str(other.path)}
    inputs = AutoTokenizer.from_pretrained(name)("def area(width", return_tensors="pt")
    with pytest.raises(ngramkit.ArtifactError, match="it was built for the tokenizer of"):
        model.generate(**inputs, max_new_tokens=4, do_sample=False, **hub)


def test_hf_runs_the_extension(tmp_path):
    """As `hf extensions install` leaves it, with `ngramkit` on the path."""
    home, tools = tmp_path / "home", tmp_path / "bin"
    place = home / ".local/share/hf/extensions/hf-ngramkit"
    place.mkdir(parents=True)
    tools.mkdir()
    script = place / "hf-ngramkit"
    script.write_bytes((HUB / "hf-ngramkit" / "hf-ngramkit").read_bytes())
    script.chmod(0o755)
    facts = {
        "owner": "OWNER", "repo": "hf-ngramkit", "repo_id": "OWNER/hf-ngramkit", "type": "binary",
        "short_name": "ngramkit", "executable_path": str(script),
        "installed_at": "2026-11-26T00:00:00+00:00",
    }  # fmt: skip
    (place / "manifest.json").write_text(json.dumps(facts))
    (tools / "ngramkit").write_text('#!/bin/sh\necho "$#:$*"\n')
    (tools / "ngramkit").chmod(0o755)
    (tools / "sh").symlink_to("/bin/sh")
    hf = [sys.executable, "-m", "huggingface_hub.cli.hf"]
    environment = {**os.environ, "HOME": str(home), "HF_HUB_DISABLE_UPDATE_CHECK": "1"}

    def run(path):
        line = [*hf, "ngramkit", "pull", "me/a b", "--json"]
        return subprocess.run(
            line, env={**environment, "PATH": path}, capture_output=True, text=True, check=False
        )

    found = run(f"{tools}:{os.environ['PATH']}")
    assert (found.returncode, found.stdout) == (0, "3:pull me/a b --json\n"), found.stderr
    (tools / "ngramkit").unlink()
    missing = run(str(tools))
    assert missing.returncode == 127
    assert missing.stderr.endswith("cannot find ngramkit\n  -> Install it: pip install ngramkit\n")
