"""Recipes: what is stale and why, the same bytes anywhere, keys that are not known."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import hub_writing  # noqa: F401 (its endpoints)
import pytest
from command_lines import run_here
from hub_standin import TOKEN

from ngramkit import recipe_files
from ngramkit.basics.errors import ArtifactError, InputError
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.formats.manifest import read_manifest
from ngramkit.recipe_files import read_recipe
from ngramkit.recipes import build_resolved as build, judge_staleness, resolve

SHIPPED = sorted((Path(__file__).parents[1] / "artifacts").glob("*.toml"))
DATASTORE = """
kind = "datastore"
destination = "acme/our-recipe"
model.id = "demo"
corpus.name = "python-stdlib"
corpus.limit = 12
parameters.shard_tokens = 9000
"""
FROZEN = DATASTORE.replace('"datastore"', '"frozen-table"').replace(
    "parameters.shard_tokens = 9000", "parameters.followers = 9"
)


def write(folder, text, name="mine"):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.toml"
    path.write_text(text)
    return str(path)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("text", [DATASTORE, FROZEN])
def test_two_builds_are_the_same_bytes(tmp_path, text):
    found = []
    for name, workers in (("one", 1), ("other/place", 3)):
        recipe = read_recipe(write(tmp_path / name, text))
        built = build(resolve(recipe), tmp_path / name, workers=workers)
        found.append(contents(built.path))
    assert found[0] == found[1]
    assert {"manifest.json", "README.md", "recipe.json"} < found[0].keys()


def test_a_bigram_is_built_from_a_recipe(tmp_path):
    text = """
kind = "model-bigram"
model.id = "demo"
parameters = {k = 3, width = 2, dtype = "float32"}
"""
    recipe = read_recipe(write(tmp_path, text))
    resolved = resolve(recipe)
    assert len(resolved.inputs["weights"]) == 64
    built = build(resolved, tmp_path)
    assert (built.kind, built.manifest.parameters["k"]) == ("model-bigram", 3)
    assert not judge_staleness(resolved, tmp_path / "mine").stale


@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
def test_changed_weights_make_a_bigram_stale(tmp_path, suffix):
    model = tmp_path / "model"
    model.mkdir()
    load_tokenizer("demo").backend.save(str(model / "tokenizer.json"))
    weights = model / f"{'pytorch_model' if suffix == 'bin' else 'model'}.{suffix}"
    text = f'kind = "model-bigram"\nmodel.id = {json.dumps(str(model))}\n'
    recipe = read_recipe(write(tmp_path, text))
    digests = set()
    for raw in (b"some", b"other"):
        weights.write_bytes(raw)
        digests.add(resolve(recipe).inputs["weights"])
    assert len(digests) == 2


@pytest.mark.parametrize("text", [DATASTORE, FROZEN])
def test_a_recipe_is_pruned_at_its_end(tmp_path, text):
    source = write(tmp_path, text + 'prune.bytes = "40k"\n')
    resolved = resolve(read_recipe(source))
    built = build(resolved, tmp_path)
    assert built.manifest.bytes <= 40 << 10 < read_manifest(tmp_path / "mine-whole").bytes
    assert not judge_staleness(resolved, tmp_path / "mine").stale
    more = resolve(read_recipe(write(tmp_path, text + "prune.bytes = 50000\n")))
    assert judge_staleness(more, tmp_path / "mine").why == "prune.bytes is 50000, was 40960"


def test_a_finished_recipe_is_up_to_date_until_something_changes(tmp_path):
    recipe = read_recipe(write(tmp_path, FROZEN))
    resolved = resolve(recipe)
    assert judge_staleness(resolved, tmp_path / "mine").why == "missing"
    first = contents(build(resolved, tmp_path).path)
    assert not judge_staleness(resolved, tmp_path / "mine").stale
    for before, after, why in [
        ("followers = 9", "followers = 8", "parameters.followers is 8, was 9"),
        ("limit = 12", "limit = 13", "corpus.limit is 13, was 12"),
        ("limit = 12", 'split = "held-out"', "corpus.files is"),
        ("followers = 9", "eos = false", "parameters.eos is False, was True"),
    ]:
        other = read_recipe(write(tmp_path, FROZEN.replace(before, after)))
        verdict = judge_staleness(resolve(other), tmp_path / "mine")
        assert verdict.stale
        assert why in verdict.why or "corpus" in verdict.why
    other = read_recipe(write(tmp_path, FROZEN.replace("followers = 9", "followers = 8")))
    assert contents(build(resolve(other), tmp_path).path) != first
    assert judge_staleness(resolved, tmp_path / "mine").stale
    assert contents(build(resolved, tmp_path).path) == first


def test_what_a_recipe_did_not_build_is_stale(tmp_path):
    recipe = read_recipe(write(tmp_path, FROZEN))
    resolved = resolve(recipe)
    path = build(resolved, tmp_path).path
    made_of = json.loads((path / "recipe.json").read_text())
    (path / "recipe.json").write_text(json.dumps({**made_of, "build": "0" * 64}))
    assert "built again otherwise" in judge_staleness(resolved, tmp_path / "mine").why
    (path / "recipe.json").unlink()
    assert "not built by this recipe" in judge_staleness(resolved, tmp_path / "mine").why


def test_a_recipe_goes_on_behind_bad_records(tmp_path):
    (tmp_path / "a.csv").write_text("id,text\n1,one\n2\n3,three\n")
    corpus = f'[corpus]\nname = "{tmp_path}/a.csv"\nskip_bad = true\n'
    text = f'kind = "datastore"\n[model]\nid = "demo"\n{corpus}'
    (tmp_path / "r.toml").write_text(text, encoding="utf-8-sig")  # as Notepad does
    recipe = read_recipe(str(tmp_path / "r.toml"))
    built = build(resolve(recipe), tmp_path / "out")
    assert built.manifest.corpus["bad_records"] == 1
    assert not judge_staleness(resolve(recipe), tmp_path / "out" / recipe.name).stale


def test_a_pinned_tokenizer_is_compared(tmp_path):
    text = DATASTORE + f'model.fingerprint = "{"0" * 64}"\n'
    recipe = read_recipe(write(tmp_path, text))
    with pytest.raises(ArtifactError, match="0000"):
        resolve(recipe)


def test_a_destination_is_checked_before_the_build(tmp_path):
    text = DATASTORE.replace("acme/our-recipe", "me/name@v1")
    with pytest.raises(InputError, match="got 'me/name@v1'") as caught:
        read_recipe(write(tmp_path, text))
    assert "USER/NAME" in caught.value.hint


@pytest.mark.parametrize(
    ("change", "said", "hint"),
    [
        ('kinds = "x"', "unknown key kinds", "Did you mean kind?"),
        ("corpus.smaple = 0.1", "unknown key corpus.smaple", "Did you mean corpus.sample?"),
        ("parameters.followers = 3", "unknown key parameters.followers", "known"),
        ('corpus.seed = "0"', "corpus.seed", "whole number"),
        ("corpus.join_turns = 1", "corpus.join_turns", "true or false"),
        ('kind = "history"', "TOML", "Correct"),
        ("prune.size = 3", "unknown key prune.size", "Choose one of: bytes"),
        ('prune.bytes = "much"', "got 'much'", "like 4G"),
    ],
)
def test_keys_that_are_not_known(tmp_path, change, said, hint):
    with pytest.raises(InputError) as caught:
        read_recipe(write(tmp_path, DATASTORE + change + "\n"))
    assert said in str(caught.value)
    assert hint in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize("left_out", ["kind", "model.id", "corpus.name"])
def test_keys_that_are_missing(tmp_path, left_out):
    lines = [line for line in DATASTORE.splitlines() if not line.startswith(left_out)]
    with pytest.raises(InputError, match=f"must have {left_out.split('.')[0]}"):
        read_recipe(write(tmp_path, "\n".join(lines)))


def test_a_misspelt_name_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(recipe_files, "ARTIFACTS", SHIPPED[0].parent)
    assert read_recipe("demo").kind == "datastore"
    with pytest.raises(InputError) as caught:
        read_recipe("demos")
    assert caught.value.hint.startswith("Did you mean demo? Choose one of: ")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_shipped_recipes_are_read(path):
    recipe = read_recipe(str(path))
    assert recipe.destination == f"ngramkit/{path.stem}"
    assert recipe.summary
    assert recipe.kind != "datastore" or "shard_tokens" in recipe.parameters


@pytest.fixture
def pipeline(hub, tmp_path, monkeypatch):
    """Runs `ngramkit build` as a pipeline does: a token, a summary, an empty machine."""
    from huggingface_hub import constants

    url = hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    for name, value in {
        "ENDPOINT": hub.endpoint, "HUGGINGFACE_CO_URL_TEMPLATE": url,
        "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_DISABLE_XET": True,
    }.items():  # fmt: skip
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    monkeypatch.chdir(tmp_path)
    yield lambda *words: run_here(["build", *words, "--json"])
    hub.repositories.pop(("dataset", "acme/our-recipe"), None)


def test_a_pipeline_builds_and_pushes_once(hub, pipeline, tmp_path):
    path = write(tmp_path, FROZEN)
    checked = pipeline(path, "--check")
    assert (checked.code, checked.json["results"][0]["status"]) == (1, "would build")
    assert not (tmp_path / "artifacts").exists()
    built = pipeline(path, "--push")
    assert built.code == 0, built.err
    [row] = built.json["results"]
    assert (row["status"], row["why"]) == ("built", "missing")
    assert row["revision"] == hub.repositories["dataset", "acme/our-recipe"].refs["main"]
    shutil.rmtree(tmp_path / "artifacts")
    again = pipeline(path, "--push")
    assert again.code == 0, again.err
    assert again.json["results"][0]["why"] == "hf://acme/our-recipe"
    assert not (tmp_path / "artifacts").exists()
    assert pipeline(path, "--push", "--check").code == 0
    assert pipeline(path, "--check").code == 1
    write(tmp_path, FROZEN.replace("followers = 9", "followers = 8"))
    assert pipeline(path, "--push", "--check").code == 1
    summary = (tmp_path / "summary.md").read_text()
    assert "| mine | would build | missing |  |  |" in summary
    assert f"acme/our-recipe@{row['revision']} |" in summary


def test_an_older_artifact_is_not_pushed_over_a_newer_one(hub, pipeline, tmp_path):
    path = write(tmp_path, FROZEN)
    assert pipeline(path).code == 0
    shutil.copytree(tmp_path / "artifacts", tmp_path / "older")
    write(tmp_path, FROZEN.replace("followers = 9", "followers = 8"))
    assert pipeline(path, "--push").code == 0
    repository = hub.repositories["dataset", "acme/our-recipe"]
    newer = repository.refs["main"]
    shutil.rmtree(tmp_path / "artifacts")
    (tmp_path / "older").rename(tmp_path / "artifacts")
    again = pipeline(path, "--push")
    assert again.json["results"][0]["why"] == "hf://acme/our-recipe"
    assert repository.refs["main"] == newer


def test_a_damaged_artifact_is_built_again(pipeline, tmp_path):
    path = write(tmp_path, FROZEN)
    assert pipeline(path).code == 0
    made = tmp_path / "artifacts" / "mine"
    whole = contents(made)
    for damage in (whole["table.safetensors"][:-1], b"?" + whole["table.safetensors"][1:]):
        (made / "table.safetensors").write_bytes(damage)
        assert pipeline(path, "--check").code == 1
        built = pipeline(path)
        assert "table.safetensors is damaged" in built.json["results"][0]["why"]
        assert contents(made) == whole
    (made / "table.safetensors").unlink()
    assert pipeline(path).json["results"][0]["status"] == "built"
    assert contents(made) == whole


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (DATASTORE.replace("9000", "1"), "shard_tokens must be at least 2"),
        (FROZEN + "parameters.leader_len = 9", "leader_len must be 1 to 4"),
        (
            'kind = "model-bigram"\nmodel.id = "demo"\nparameters.prefix = "eos"',
            "prefix must be none or bos",
        ),
    ],
)
def test_wrong_parameters_are_reported_before_any_work(pipeline, tmp_path, text, wrong):
    path, sound = write(tmp_path, text, "wrong"), write(tmp_path, FROZEN)
    found = pipeline(sound, path, "--check")
    assert (found.code, wrong in found.json["error"]) == (2, True)
    assert "The recipe is wrong." in found.err
    assert not (tmp_path / "artifacts").exists()


def test_a_recipe_without_a_destination_is_not_pushed(pipeline, tmp_path):
    path = write(tmp_path, FROZEN.replace('destination = "acme/our-recipe"\n', ""))
    result = pipeline(path, "--push")
    assert result.code == 3
    assert "no destination" in result.err


def test_a_corpus_on_the_hub_is_pinned_to_its_commit(hub, ngramkit_cli, tmp_path):
    text = DATASTORE.replace("python-stdlib", "openwebtext").replace("limit = 12", "sample = 0.1")
    path = write(tmp_path, text + 'corpus.revision = "main"\n')
    env = hub.environment(tmp_path / "home")
    built, checked = ngramkit_cli(["build", path], ["build", path, "--check"], env=env)
    assert built.code == 0, built.err
    assert checked.code == 0, checked.err
    commit = hub.repositories["dataset", "Skylion007/openwebtext"].refs["main"]
    made_of = json.loads((tmp_path / "artifacts" / "mine" / "recipe.json").read_text())
    assert made_of["inputs"]["corpus"]["revision"] == commit
