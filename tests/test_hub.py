"""push, pull, search and hf:// over the wire: the real huggingface_hub against the stand-in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import hub_writing
import pytest
from attacks.crafted import read_arrays, sign
from command_lines import run_here
from hub_standin import TOKEN, Fault

from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.builders.tokens import build_tokens
from ngramkit.corpus.open import open_corpus
from ngramkit.formats.verify import verify_artifact

COMMAND = [sys.executable, "-c", "from ngramkit_cli.main import run; run()"]
TEXT = "the river counts the leaves of the tree and the lamp burns low\n"


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    """A datastore of three shards and a frozen table, for the embedded tokenizer."""
    folder = tmp_path_factory.mktemp("artifacts")
    for i in range(8):
        (folder / f"{i}.txt").write_text(TEXT * (i + 1))
    store = build_tokens(open_corpus(str(folder / "*.txt")), "demo", folder / "tokens")
    return {
        "datastore": build_datastore(store, folder / "datastore", shard_tokens=300).path,
        "frozen": build_frozen(store, folder / "frozen").path,
    }


@pytest.fixture
def shared(hub, tmp_path, monkeypatch):
    """shared(*lines, token=TOKEN) runs command lines against the stand-in, with one cache."""
    from huggingface_hub import constants

    home = tmp_path / "home"
    monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
    url = hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url)
    monkeypatch.setattr(constants, "HF_HOME", str(home))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.chdir(tmp_path)

    def run(*lines, token=TOKEN):
        if token is None:
            monkeypatch.delenv("HF_TOKEN", raising=False)
        else:
            monkeypatch.setenv("HF_TOKEN", token)
        return [one(list(map(str, line))) for line in lines]

    def one(line):
        return run_here(line)

    yield run
    hub.faults.clear()
    for key in [key for key in hub.repositories if key[1].startswith("acme/our-")]:
        del hub.repositories[key]
    hub.blobs.clear()


def sent(hub, since=0):
    return [line for line in hub.requests[since:] if line.startswith("PUT")]


def test_what_is_pushed_can_be_pulled(hub, shared, tmp_path, artifacts):
    path = artifacts["datastore"]
    shards = len(list(path.glob("*.safetensors")))
    assert shards > 2
    pushed, again, pulled, found = shared(
        ["push", path, "acme/our-data", "--tag", "v1", "--json"],
        ["push", path, "acme/our-data", "--tag", "v1", "--json"],
        ["pull", "acme/our-data@v1", "--out", tmp_path / "back", "--json"],
        ["search", "--tokenizer", "demo", "--json"],
    )
    assert pushed.code == 0, pushed.err
    assert (pushed.json["files"], pushed.json["skipped"]) == (shards + 2, 0)
    assert (
        pushed.json["url"]
        == f"{hub.endpoint}/datasets/acme/our-data/tree/{pushed.json['revision']}"
    )
    assert (again.code, again.json["files"], again.json["bytes"]) == (0, 0, 0)
    assert again.json["revision"] == pushed.json["revision"]
    assert pulled.code == 0, pulled.err
    assert pulled.json["revision"] == pushed.json["revision"]
    assert list(verify_artifact(tmp_path / "back"))
    for name in (*(file.name for file in path.glob("*.safetensors")), "manifest.json"):
        assert (tmp_path / "back" / name).read_bytes() == (path / name).read_bytes()
    assert [entry["id"] for entry in found.json["found"]] == ["acme/our-data"]
    assert found.json["found"][0]["kind"] == "datastore"


def test_the_card(hub, shared, artifacts):
    [pushed] = shared(["push", artifacts["frozen"], "acme/our-table"])
    assert pushed.code == 0, pushed.err
    repository = hub.repositories["dataset", "acme/our-table"]
    text = repository.commits[repository.refs["main"]]["README.md"].decode()
    header = hub_writing.front_matter(text)
    assert header["tags"] == ["ngramkit", "frozen-table"]
    assert header["size_categories"] == ["n<1K"]
    facts = header["ngramkit"]
    assert facts["kind"] == "frozen-table"
    assert (facts["tokenizer"], facts["vocabulary"]) == ("demo", 4096)
    assert "ngramkit build-frozen --corpus" in text
    assert "--follower-len 3 --followers 128 --leader-len 1 --leaders 1048576" in text
    assert "--drafter cacheback --frozen-table hf://acme/our-table" in text
    table = text.split("## Most frequent entries")[1]
    assert "` the` | 108 |" in table
    assert "The source says nothing of its licence." in text


def test_a_change_sends_only_what_changed(hub, shared, tmp_path, artifacts):
    path = tmp_path / "mine"
    shutil.copytree(artifacts["datastore"], path)
    [first] = shared(["push", path, "acme/our-data", "--json"])
    assert first.code == 0, first.err
    third = read_arrays(path / "shard-00002.safetensors")["tokens"]

    def without_the_third(manifest):
        del manifest["files"]["shard-00002.safetensors"]
        manifest["counts"]["tokens"] -= int((third != 4096).sum())
        manifest["counts"]["documents"] -= int((third == 4096).sum())

    sign(path, without_the_third)
    since = len(hub.requests)
    [second] = shared(["push", path, "acme/our-data", "--json"])
    assert (second.code, second.json["files"]) == (0, 2)  # the manifest and the card
    assert not sent(hub, since)
    files = hub.repositories["dataset", "acme/our-data"].commits[second.json["revision"]]
    assert "shard-00002.safetensors" not in files
    assert {".gitattributes", "README.md", "shard-00001.safetensors"} <= files.keys()


def test_an_interrupted_upload_goes_on(hub, shared, artifacts, monkeypatch):
    path = artifacts["datastore"]
    shards = len(list(path.glob("*.safetensors")))
    monkeypatch.setattr("time.sleep", lambda _: None)  # the client's pauses between tries
    hub.faults.append(Fault(r"POST .*/commit/", 500, times=20))
    since = len(hub.requests)
    [broken] = shared(["push", path, "acme/our-data", "--json"])
    assert broken.code == 4
    assert "500" in broken.err
    assert "again" in broken.err
    assert len(sent(hub, since)) == shards
    assert "shard-00000.safetensors" not in str(
        hub.repositories["dataset", "acme/our-data"].commits
    )
    hub.faults.clear()
    since = len(hub.requests)
    [whole] = shared(["push", path, "acme/our-data", "--json"])
    assert whole.code == 0, whole.err
    assert not sent(hub, since)


def test_a_connection_lost_while_uploading(hub, shared, artifacts, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)  # the client's pauses between tries
    path = artifacts["datastore"]
    second = json.loads((path / "manifest.json").read_text())["files"]["shard-00001.safetensors"]
    hub.faults.append(Fault(f"PUT .*{second['sha256']}", 0, times=100))
    [broken] = shared(["push", path, "acme/our-data"])
    assert broken.code == 4
    assert "could not be reached" in broken.err
    assert len(broken.err.strip().splitlines()) == 2
    hub.faults.clear()
    since = len(hub.requests)
    [whole] = shared(["push", path, "acme/our-data"])
    assert whole.code == 0, whole.err
    assert len(sent(hub, since)) == len(list(path.glob("*.safetensors"))) - 1


def test_dropped_connections_and_busy_answers_are_tried_again(
    hub, shared, tmp_path, artifacts, monkeypatch
):
    monkeypatch.setattr("time.sleep", lambda _: None)  # the client's pauses between tries
    hub.faults += [Fault("PUT", 0, times=1), Fault("PUT", 429, times=1, retry_after="0")]
    hub.faults += [Fault("GET .*/resolve/.*shard-00001", -1, times=1)]
    pushed, pulled = shared(
        ["push", artifacts["datastore"], "acme/our-data"],
        ["pull", "acme/our-data", "--out", tmp_path / "back", "--json"],
    )
    assert pushed.code == 0, pushed.err
    assert pulled.code == 0, pulled.err
    assert not any(fault.times for fault in hub.faults)
    assert list(verify_artifact(tmp_path / "back"))


def test_branches_private_repositories_and_pull_requests(hub, shared, tmp_path, artifacts):
    private, branch, request, stranger = shared(
        ["push", artifacts["frozen"], "acme/our-own", "--private", "--json"],
        ["push", artifacts["datastore"], "acme/our-own", "--revision", "data", "--json"],
        ["push", artifacts["datastore"], "acme/our-own", "--create-pr", "--json"],
        ["push", artifacts["frozen"], "acme/our-own", "--create-pr", "--tag", "x"],
    )
    repository = hub.repositories["dataset", "acme/our-own"]
    assert repository.private
    assert repository.refs["main"] == private.json["revision"]
    assert repository.refs["data"] == branch.json["revision"]
    assert repository.refs["refs/pr/1"] == request.json["revision"]
    assert request.json["pull_request"].endswith("/discussions/1")
    assert (stranger.code, "--create-pr" in stranger.err) == (2, True)
    [alone] = shared(["pull", "acme/our-own", "--out", tmp_path / "x"], token=None)
    assert alone.code == 3
    assert "private" in alone.err
    assert not (tmp_path / "x").exists()


def test_other_peoples_files_are_left_alone(hub, shared, artifacts):
    theirs = {"README.md": b"# Mine\n", "data/train.parquet": b"x"}
    hub.add("dataset", "acme/our-corpus", theirs)
    add(hub, artifacts["frozen"], **{"notes.txt": b"mine", "old.safetensors": b"x"})
    foreign, own = shared(
        ["push", artifacts["frozen"], "acme/our-corpus"],
        ["push", artifacts["frozen"], "acme/our-data", "--json"],
    )
    assert (foreign.code, "did not put there" in foreign.err) == (2, True)
    repository = hub.repositories["dataset", "acme/our-corpus"]
    assert repository.commits[repository.refs["main"]] == theirs
    files = hub.repositories["dataset", "acme/our-data"].commits[own.json["revision"]]
    assert "notes.txt" in files
    assert "old.safetensors" not in files


def test_a_tag_does_not_move(hub, shared, artifacts):
    first, second = shared(
        ["push", artifacts["frozen"], "acme/our-data", "--tag", "v1", "--json"],
        ["push", artifacts["datastore"], "acme/our-data", "--tag", "v1"],
    )
    assert second.code == 2
    assert "tag v1 on another commit" in second.err
    assert hub.repositories["dataset", "acme/our-data"].tags == {"v1": first.json["revision"]}


@pytest.mark.parametrize(
    ("token", "line", "code", "said"),
    [
        (None, ["push", "{frozen}", "acme/our-x"], 4, "hf auth login"),
        ("hf_wrong", ["push", "{frozen}", "acme/our-x"], 4, "hf auth login"),
        (TOKEN, ["push", "{frozen}", "elsewhere/x"], 4, "refuses"),
        (TOKEN, ["push", "{frozen}", "our-x"], 2, "USER/NAME"),
        (TOKEN, ["push", "{frozen}/..", "acme/our-x"], 3, "not an ngramkit artifact"),
        (TOKEN, ["pull", "acme/no-such"], 3, "there is no dataset acme/no-such"),
        (TOKEN, ["pull", "Skylion007/openwebtext"], 3, "not an ngramkit artifact"),
        (TOKEN, ["pull", "Skylion007/openwebtext@v9"], 3, "no such revision"),
        (None, ["pull", "acme/our-gated"], 4, "gated"),
        (TOKEN, ["pull", "not a name"], 2, "USER/NAME"),
    ],
)
def test_refusals_say_what_to_do(hub, shared, artifacts, tmp_path, token, line, code, said):
    files = {path.name: path.read_bytes() for path in artifacts["frozen"].iterdir()}
    hub.add("dataset", "acme/our-gated", files, gated=True)
    words = [word.format(**artifacts) for word in line]
    if line[0] == "pull":
        words += ["--out", tmp_path / "x"]
    [result] = shared(words, token=token)
    assert (result.code, said in result.err) == (code, True), result.err
    assert len(result.err.strip().splitlines()) <= 2, result.err
    assert not list(tmp_path.glob("x*"))


def add(hub, path, **changed):
    files = {file.name: file.read_bytes() for file in path.iterdir()} | changed
    hub.add("dataset", "acme/our-data", {n: c for n, c in files.items() if c is not None})


@pytest.mark.parametrize("what", ["flipped", "shorter", "missing", "newer", "outside"])
def test_nothing_half_pulled_is_ever_opened(hub, shared, tmp_path, artifacts, what):
    path = artifacts["frozen"]
    whole = (path / "table.safetensors").read_bytes()
    manifest = (path / "manifest.json").read_bytes()
    changed, said = {
        "flipped": ({"table.safetensors": whole[:-1] + b"\x7f"}, "sha256 differs"),
        "shorter": ({"table.safetensors": whole[:-8]}, "sha256 differs"),
        "missing": ({"table.safetensors": None}, "does not hold it"),
        "newer": ({"manifest.json": manifest.replace(b'"version": 1', b'"version": 9')}, "upgrade"),
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
    assert "could not be reached" in pulled.err


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


def test_a_source_may_be_a_path_that_lost_a_slash():
    from pathlib import Path

    from ngramkit.hub import Source, is_remote

    mangled = Path("hf://acme/our-data@v1")
    assert is_remote(mangled)
    assert Source.parse(str(mangled)) == Source("acme/our-data", "v1")
    assert not is_remote(Path("artifacts/hf"))


def test_anyone_can_generate_with_what_was_pushed(hub, shared, tmp_path, artifacts, monkeypatch):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from ngramkit.models import resolve_model

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
