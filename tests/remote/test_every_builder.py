"""Every builder writes its artifact to a URL, or says that it cannot."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from uploads import build, puts, there

import ngramkit
from ngramkit.basics.errors import UsageError

RECIPE = """
kind = "datastore"
model.id = "demo"
corpus.name = "python-stdlib"
corpus.limit = 2
"""


def test_every_builder_writes_to_urls(s3, tokens, cache, tmp_path):
    (tmp_path / "a.txt").write_text("some text, some more text, some text")
    store = ngramkit.tokenize(str(tmp_path / "a.txt"), "demo", "s3://bucket/out/tokens")
    assert store.manifest.counts["documents"] == 1
    table = ngramkit.build_frozen("s3://bucket/out/tokens", "s3://bucket/out/frozen")
    assert table.where == "s3://bucket/out/frozen"
    build(tokens, "s3://bucket/out/a")
    build(tokens, "s3://bucket/out/b", shard_tokens=100)
    merged = ngramkit.merge(["s3://bucket/out/a", "s3://bucket/out/b"], "s3://bucket/out/c")
    assert ngramkit.verify("s3://bucket/out/c").ok
    assert len(merged.shards) == len(ngramkit.open_artifact("s3://bucket/out/c").shards)


def test_a_recipe_is_built_for_a_url_and_judged_there(s3, cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(RECIPE)

    def run(**options):
        s3.requests.clear()
        return ngramkit.build("mine.toml", "s3://bucket/out", **options)

    would = run(check=True)
    assert (would.status, would.why) == ("would build", "missing")
    done = run()
    assert (done.status, done.artifact) == ("built", "s3://bucket/out/mine")
    assert "recipe.json" in there(s3)
    shutil.rmtree(cache)
    again = run()
    assert (again.status, again.why) == ("up to date", "s3://bucket/out/mine")
    assert not [each for each in s3.requests if "shard-" in each]
    s3.storage.rm_file("bucket/out/mine/shard-00000.safetensors")
    assert "does not hold it" in run(check=True).why
    assert run().status == "built"
    assert run().status == "up to date"
    (tmp_path / "mine.toml").write_text(RECIPE.replace("limit = 2", "limit = 3"))
    assert run(check=True).why == "corpus.limit is 3, was 2"
    assert run().status == "built"
    assert ngramkit.verify("s3://bucket/out/mine").ok
    recorded = s3.storage.cat("bucket/out/mine/recipe.json")
    s3.storage.pipe("bucket/out/mine/recipe.json", recorded.replace(b"3", b"4"))
    assert run().status == "built"  # what is there is kept, and its record is mended
    assert s3.storage.cat("bucket/out/mine/recipe.json") == recorded
    assert not puts(s3)


def test_results_made_of_a_fetched_artifact_are_not_written_into_the_cache(
    s3, tokens, cache, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    build(tokens, "s3://bucket/out/phrases")
    staged = sorted(cache.rglob("*"))
    made = ngramkit.export("s3://bucket/out/phrases", "rest-idx")
    assert made.path == Path("artifacts/phrases.idx")
    opened = ngramkit.open_artifact("s3://bucket/out/phrases")
    with pytest.raises(UsageError, match="exists"):
        ngramkit.export(opened, "rest-idx")
    assert ngramkit.prune(opened, "9K").path == Path("artifacts/phrases-9K")
    assert [each for each in sorted(cache.rglob("*")) if each not in staged] == []


def test_storages_that_cannot_be_written_to(tokens, cache, tmp_path):
    for url, hint in (
        ("https://host/x", "s3://, gs://"),
        ("hf://datasets/me/x/y", "ngramkit push"),
        ("hf://me/x", "ngramkit push"),
    ):
        with pytest.raises(UsageError, match="cannot write to") as refused:
            build(tokens, url)
        assert hint in refused.value.hint
    with pytest.raises(UsageError, match="URL"):
        ngramkit.export(build(tokens, tmp_path / "d"), "rest-idx", "s3://bucket/x.idx")


@pytest.mark.parametrize("url", ["s3://bucket/history", "hf://me/history"])
@pytest.mark.parametrize("kind", [str, Path])
def test_a_history_is_a_folder(kind, url):
    with pytest.raises(UsageError, match=f"history must be a folder of this machine, got {url}"):
        ngramkit.PastUse(kind(url))


@pytest.mark.parametrize("kind", [str, Path])
def test_a_history_may_be_a_file_url(kind, tmp_path):
    assert ngramkit.PastUse(kind(f"file://{tmp_path}/p%20a")).path == tmp_path / "p a"
