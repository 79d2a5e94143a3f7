"""Only files of the artifact leave the machine, whatever its folder holds or links to."""

from __future__ import annotations

import json
import shutil

import pytest
from attacks import tally

from ngramkit.formats.resumable_writer import recipe_text

SECRET = "-----BEGIN A KEY-----"
ATTACK = "links and files in a folder that is sent"
pytestmark = pytest.mark.attack


@pytest.fixture
def secret(tmp_path):
    """A file of the user's, JSON with a key in it."""
    path = tmp_path / "key.json"
    path.write_text(json.dumps({"auth": SECRET}))
    return path


@pytest.fixture
def theirs(tmp_path, artifacts):
    """A stranger's artifact, whole in itself."""
    path = tmp_path / "theirs"
    shutil.copytree(artifacts["frozen"], path)
    return path


def everything(hub):
    """Return all bytes that any repository or upload of the stand-in holds."""
    found = list(hub.blobs.values())
    for repository in hub.repositories.values():
        for files in repository.commits.values():
            found += files.values()
    return b"".join(each if isinstance(each, bytes) else str(each).encode() for each in found)


@pytest.mark.parametrize(
    "name", ["recipe.json", "README.md", "notes.txt", "manifest.json", "below/key", "table"]
)
def test_a_link_sends_nothing(hub, shared, theirs, secret, name):
    name = "table.safetensors" if name == "table" else name
    place = theirs / name
    place.parent.mkdir(exist_ok=True)
    target = secret
    if name in ("manifest.json", "table.safetensors"):
        target = secret.with_name(name)
        place.rename(target)
    place.unlink(missing_ok=True)
    place.symlink_to(target)
    [pushed] = shared(["push", theirs, "acme/our-data"])
    assert pushed.code == 3
    assert f"{name}: it is a link to" in pushed.err
    assert ("dataset", "acme/our-data") not in hub.repositories
    tally(ATTACK, "refused, exit 3")


def test_a_file_that_is_not_the_artifacts_stays_here(hub, shared, theirs, secret):
    shutil.copy(secret, theirs / "id_rsa")
    shutil.copy(secret, theirs / "more.safetensors")
    [pushed] = shared(["push", theirs, "acme/our-data", "--json"])
    assert pushed.code == 0, pushed.err
    assert SECRET.encode() not in everything(hub)
    repository = hub.repositories["dataset", "acme/our-data"]
    listed = repository.commits[repository.refs["main"]].keys() - {".gitattributes"}
    assert listed == {
        "manifest.json", "README.md", "table.safetensors", "preview/phrases.parquet"
    }  # fmt: skip
    tally(ATTACK, "left here")


@pytest.mark.parametrize("content", ["another file", "another artifact's", "no JSON"])
def test_a_record_that_is_not_the_artifacts(hub, shared, theirs, secret, content):
    if content == "another file":
        shutil.copy(secret, theirs / "recipe.json")
    elif content == "no JSON":
        (theirs / "recipe.json").write_text(SECRET)
    else:
        (theirs / "recipe.json").write_text(recipe_text("f" * 64, {"key": SECRET}))
    [pushed] = shared(["push", theirs, "acme/our-data"])
    assert pushed.code == 3
    assert "recipe.json" in pushed.err
    assert SECRET.encode() not in everything(hub)
    tally(ATTACK, "refused, exit 3")


RECIPE = """
kind = "frozen-table"
destination = "acme/our-recipe"
model.id = "demo"
corpus.name = "c.txt"
"""


@pytest.mark.parametrize("name", ["recipe.json", "README.md", "notes.txt", "below/key"])
def test_a_recipes_push_sends_no_link(hub, shared, secret, tmp_path, name):
    """Of an artifact that is up to date, whose folder somebody has been at since."""
    (tmp_path / "c.txt").write_text("def f(self): return self.value")
    (tmp_path / "x.toml").write_text(RECIPE)
    [built] = shared(["build", "x.toml"])
    assert built.code == 0, built.err
    place = tmp_path / "artifacts" / "x" / name
    place.parent.mkdir(exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(secret)
    [pushed] = shared(["build", "x.toml", "--push"])
    assert SECRET.encode() not in everything(hub)
    assert secret.read_text() == json.dumps({"auth": SECRET})
    if name == "recipe.json":  # it says nothing, so it is written anew, in place of the link
        assert pushed.code == 0, pushed.err
    else:
        assert pushed.code == 3
        assert ("dataset", "acme/our-recipe") not in hub.repositories
    tally(ATTACK, "left here" if pushed.code == 0 else "refused, exit 3")
    hub.repositories.pop(("dataset", "acme/our-recipe"), None)


def test_its_own_record_goes_along(hub, shared, theirs):
    build = json.loads((theirs / "manifest.json").read_text())["build"]
    (theirs / "recipe.json").write_text(recipe_text(build, {"kind": "frozen-table"}))
    [pushed] = shared(["push", theirs, "acme/our-data", "--json"])
    assert pushed.code == 0, pushed.err
    repository = hub.repositories["dataset", "acme/our-data"]
    files = repository.commits[repository.refs["main"]]
    assert files["recipe.json"] == (theirs / "recipe.json").read_bytes()


def test_an_export_holds_nothing_but_the_artifact(hub, shared, theirs, secret, tmp_path):
    """Neither one made of a stranger's folder, nor one to which a file was added."""
    for name in ("README.md", "recipe.json"):
        (theirs / name).unlink(missing_ok=True)
        (theirs / name).symlink_to(secret)
    [exported] = shared(["export", theirs, "--to", "transformers", "--out", tmp_path / "out"])
    assert exported.code == 0, exported.err
    held = {p.relative_to(tmp_path / "out").as_posix(): p for p in (tmp_path / "out").rglob("*.*")}
    assert "artifact/README.md" in held
    assert not any(SECRET in path.read_text(errors="replace") for path in held.values())
    shutil.copy(secret, tmp_path / "out" / "id_rsa")
    [pushed] = shared(["push", tmp_path / "out", "acme/our-model", "--json"])
    assert pushed.code == 0, pushed.err
    assert "id_rsa is not pushed" in pushed.err
    assert SECRET.encode() not in everything(hub)
    repository = hub.repositories["model", "acme/our-model"]
    files = repository.commits[repository.refs["main"]]
    assert files.keys() - {".gitattributes"} == held.keys()
    (tmp_path / "out" / "artifact" / "more").symlink_to(secret)
    [refused] = shared(["push", tmp_path / "out", "acme/our-other"])
    assert refused.code == 3
    tally(ATTACK, "left here", 2)
    tally(ATTACK, "refused, exit 3")


def test_a_table_that_is_a_link_is_not_exported(shared, theirs, secret, tmp_path):
    """It has other bytes than the manifest lists, and may change after it was opened."""
    (theirs / "table.safetensors").unlink()
    (theirs / "table.safetensors").symlink_to(secret)
    [exported] = shared(["export", theirs, "--to", "transformers", "--out", tmp_path / "out"])
    assert exported.code == 3
    assert not (tmp_path / "out").exists()
    tally(ATTACK, "refused, exit 3")


def test_merged_tables_take_over_no_texts(shared, theirs, artifacts, secret, tmp_path):
    for name in ("README.md", "recipe.json"):
        (theirs / name).unlink(missing_ok=True)
        (theirs / name).symlink_to(secret)
    tokens = artifacts["frozen"].parent / "tokens"
    _, merged = shared(
        ["build-frozen", "--tokens", tokens, "--followers", "9", "--out", tmp_path / "mine"],
        ["merge", theirs, tmp_path / "mine", "--out", tmp_path / "out"],
    )
    assert merged.code == 0, merged.err
    assert not any(SECRET in p.read_text(errors="replace") for p in (tmp_path / "out").iterdir())
    tally(ATTACK, "left here")
