"""pull and hf:// over the wire: proven, fetched once, killed, without a network."""

from __future__ import annotations

import os
import subprocess
import sys

import hub_writing
import pytest
from hub_datasets import TEXT, add
from hub_standin import Fault

from ngramkit.formats.opening import verify_artifact
from ngramkit.remote.fetch import silence_client

COMMAND = [sys.executable, "-c", "from ngramkit_cli.main import run; run()"]


@pytest.mark.parametrize("what", ["flipped", "shorter", "missing", "newer", "outside"])
def test_a_partial_pull_is_never_opened(hub, shared, tmp_path, artifacts, what):
    path = artifacts["frozen"]
    whole = (path / "table.safetensors").read_bytes()
    manifest = (path / "manifest.json").read_bytes()
    changed, said = {
        "flipped": ({"table.safetensors": whole[:-1] + b"\x7f"}, "its manifest (sha256)"),
        "shorter": ({"table.safetensors": whole[:-8]}, "its manifest (sha256)"),
        "missing": ({"table.safetensors": None}, "does not hold it"),
        "newer": ({"manifest.json": manifest.replace(b'"version": 1', b'"version": 9')}, "Upgrade"),
        "outside": (
            {"manifest.json": manifest.replace(b"table.safetensors", b"../table.safetensors")},
            "not inside its folder",
        ),
    }[what]
    add(hub, path, **changed)
    pulled, opened = shared(
        ["pull", "acme/our-data", "--out", tmp_path / "x"],
        ["export", "hf://acme/our-data", "--to", "llama.cpp", "--out", tmp_path / "x.bin"],
    )
    for result in (pulled, opened):
        assert (result.code, said in result.err) == (3, True), result.err
    assert not list(tmp_path.glob("x*"))
    add(hub, path)
    [good] = shared(["pull", "acme/our-data", "--out", tmp_path / "x"])
    assert good.code == 0, good.err


def test_errors_name_a_source_on_the_hub_as_given(hub, shared, artifacts):
    add(hub, artifacts["frozen"])
    pruned, merged, exported = shared(
        ["prune", "hf://acme/our-data", "--bytes", "1", "--out", "x"],
        ["merge", "hf://acme/our-data", artifacts["datastore"], "--out", "x"],
        ["export", "hf://acme/our-data", "--to", "jsonl", "--out", "x"],
    )
    assert "cannot prune hf://acme/our-data to 1 B" in pruned.err
    assert "a frozen-table (hf://acme/our-data) with" in " ".join(merged.err.split())
    assert "hf://acme/our-data to jsonl: it is a frozen-table" in exported.err


def test_a_source_on_the_hub_is_fetched_once_and_its_commit_recorded(
    hub, shared, tmp_path, artifacts, monkeypatch
):
    add(hub, artifacts["datastore"])
    commit = hub.repositories["dataset", "acme/our-data"].refs["main"]
    line = ["export", "hf://acme/our-data", "--to", "rest-idx", "--force", "--json", "--out"]
    [first] = shared([*line, tmp_path / "x.idx"])
    assert first.code == 0, first.err
    assert first.json["revisions"] == {"hf://acme/our-data": commit}
    since = len(hub.requests)
    [again] = shared([*line, tmp_path / "x.idx"])
    assert again.code == 0, again.err
    assert not [r for r in hub.requests[since:] if "GET" in r and "safetensors" in r]
    since = len(hub.requests)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    [away] = shared([*line, tmp_path / "y.idx"])
    assert away.code == 0, away.err
    assert away.json["revisions"] == first.json["revisions"]
    assert hub.requests[since:] == []
    assert (tmp_path / "x.idx").read_bytes() == (tmp_path / "y.idx").read_bytes()


def test_decode_takes_its_datastore_from_the_hub(hub, shared, artifacts):
    add(hub, artifacts["datastore"])
    commit = hub.repositories["dataset", "acme/our-data"].refs["main"]
    [done] = shared(
        ["decode", "--drafter", "rest", "--datastore", f"hf://acme/our-data@{commit}",
         "--prompt", "the river", "--max-new-tokens", "6", "--json"],
    )  # fmt: skip
    assert done.code == 0, done.err
    assert done.json["new_tokens"] == 6
    assert done.json["revisions"] == {f"hf://acme/our-data@{commit}": commit}


def test_without_a_network_and_a_cache(shared, tmp_path, monkeypatch):
    nowhere = "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", nowhere)
    monkeypatch.setattr("time.sleep", lambda _: None)  # the client's pauses between tries
    [pulled] = shared(["pull", "acme/our-data", "--out", tmp_path / "x"])
    assert pulled.code == 4
    assert "cannot reach" in pulled.err


@pytest.mark.attack
def test_a_killed_pull_leaves_nothing_that_opens(hub, tmp_path, artifacts):
    add(hub, artifacts["datastore"])
    hub.faults.append(Fault("GET .*/resolve/.*shard-00002", 0, times=10**6))
    process = subprocess.Popen(
        [*COMMAND, "pull", "acme/our-data", "--out", "x"],
        cwd=tmp_path, stderr=subprocess.DEVNULL,
        env={**os.environ, **hub.environment(tmp_path / "home")},
    )  # fmt: skip
    try:
        process.wait(timeout=4)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    finally:
        hub.faults.clear()
    assert not (tmp_path / "x").exists()
    done = subprocess.run(
        [*COMMAND, "pull", "acme/our-data", "--out", "x"],
        cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, **hub.environment(tmp_path / "home")}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert list(verify_artifact(tmp_path / "x"))


def test_a_hub_name_may_be_a_path_that_lost_a_slash():
    from pathlib import Path

    from ngramkit.remote.fetch import HubName, is_hub_name

    mangled = Path("hf://acme/our-data@v1")
    assert is_hub_name(mangled)
    assert HubName.parse(str(mangled)) == HubName("acme/our-data", "v1")
    assert not is_hub_name(Path("artifacts/hf"))


def test_generate_with_a_pushed_artifact(hub, shared, tmp_path, artifacts, monkeypatch):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from ngramkit.basics.models import resolve_model

    modules = tmp_path / "modules"
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(modules))
    monkeypatch.setattr(sys, "path", [str(modules), *sys.path])
    exported, pushed = shared(
        ["export", artifacts["datastore"], "--to", "transformers", "--out", tmp_path / "out"],
        ["push", tmp_path / "out", "acme/our-drafts", "--json"],
    )
    assert exported.code == 0, exported.err
    assert pushed.code == 0, pushed.err
    repository = hub.repositories["model", "acme/our-drafts"]
    files = repository.commits[pushed.json["revision"]]
    assert {"custom_generate/generate.py", "artifact/manifest.json", "README.md"} <= files.keys()
    readme = files["README.md"].decode()
    assert hub_writing.front_matter(readme)["tags"][0] == "custom_generate"
    assert 'custom_generate="acme/our-drafts"' in readme
    tokenizer = AutoTokenizer.from_pretrained(resolve_model("demo"))
    model = AutoModelForCausalLM.from_pretrained(resolve_model("demo"), dtype=torch.float32)
    inputs = tokenizer(TEXT, return_tensors="pt")
    options = {"max_new_tokens": 10, "do_sample": False}
    drafted = model.generate(
        **inputs, **options, custom_generate="acme/our-drafts", trust_remote_code=True
    )
    assert torch.equal(drafted, model.generate(**inputs, **options))


def test_that_the_hub_is_asked_again_is_said_once(caplog):
    from huggingface_hub.utils import http_backoff

    silence_client()
    for _ in range(2):
        with pytest.raises(Exception, match="refused"):
            http_backoff("GET", "http://127.0.0.1:9/", max_retries=2, base_wait_time=0.01)
    said = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert len(said) == 1
    assert said[0].startswith("the Hub does not answer yet")
