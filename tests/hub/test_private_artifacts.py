"""The mark of artifacts made of private texts: what keeps it, and what it forbids."""

from __future__ import annotations

import json
import stat

import numpy as np
import pyarrow.parquet as pq
import pytest
from hub_datasets import TEXT

import ngramkit
from ngramkit.basics.errors import UsageError
from ngramkit.formats.history import History, copy_of
from ngramkit.formats.tokenizer_record import TokenizerRecord
from ngramkit.recipe_files import read_recipe

RECORD = TokenizerRecord("small", 100, "f" * 64, 1)


@pytest.fixture(scope="module")
def private(tmp_path_factory):
    """A private token store, datastore and frozen table, by kind."""
    folder = tmp_path_factory.mktemp("private")
    (folder / "mine.txt").write_text(TEXT * 3)
    store = ngramkit.tokenize(folder / "mine.txt", "demo", folder / "tokens", private=True)
    return {
        "tokens": store,
        "datastore": ngramkit.build_datastore(store, folder / "datastore"),
        "frozen": ngramkit.build_frozen(store, folder / "frozen"),
    }


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_builders_keep_the_mark(private):
    for artifact in private.values():
        assert artifact.manifest.private
        assert mode(artifact.path) == 0o700
        assert {mode(file) for file in artifact.path.iterdir()} == {0o600}
        assert ngramkit.verify(artifact, reporter=ngramkit.Reporter()).ok
        assert "| private | yes" in (artifact.path / "README.md").read_text()
    card = (private["datastore"].path / "README.md").read_text()
    assert "mine.txt --private --model demo" in card


def test_a_frozen_table_of_the_same_tokens_is_not_reused(private, tmp_path):
    text = tmp_path / "mine.txt"
    text.write_text(TEXT * 3)
    out = tmp_path / "frozen"
    public = ngramkit.build_frozen(text, out, model="demo")
    assert not public.manifest.private
    assert public.manifest.build != private["frozen"].manifest.build
    with pytest.raises(UsageError, match="exists"):
        ngramkit.build_frozen(private["tokens"], out)


def test_merging_with_a_public_artifact_and_pruning_keep_the_mark(private, artifacts, tmp_path):
    both = ngramkit.merge([artifacts["datastore"], private["datastore"]], tmp_path / "both")
    assert both.manifest.private
    pruned = ngramkit.prune(both, 35_000, tmp_path / "pruned")
    assert pruned.manifest.private
    assert mode(both.path) == mode(pruned.path) == 0o700
    assert not ngramkit.merge(
        [artifacts["datastore"], ngramkit.prune(artifacts["datastore"], 35_000, tmp_path / "less")],
        tmp_path / "public",
    ).manifest.private


def test_a_mixture_is_private_if_a_part_is(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(f"{name} text")
    mine = ngramkit.open_corpus(tmp_path / "a.txt", private=True)
    store = ngramkit.tokenize([mine, str(tmp_path / "b.txt")], "demo", tmp_path / "tokens")
    assert store.manifest.private
    [first, second] = store.manifest.corpus["mixed"]
    assert (first.get("private"), second.get("private")) == (True, None)


def test_texts_in_memory_can_be_private(tmp_path):
    store = ngramkit.tokenize(iter(["a text"]), "demo", tmp_path / "tokens", private=True)
    assert store.manifest.private


def test_a_push_needs_a_word_and_pull_keeps_the_mark(hub, shared, private, tmp_path):
    path = private["datastore"].path
    refused, tried, pushed, pulled = shared(
        ["push", path, "acme/our-notes"],
        ["push", path, "acme/our-notes", "--public", "--dry-run"],
        ["push", path, "acme/our-notes", "--allow-private", "--json"],
        ["pull", "acme/our-notes", "--out", tmp_path / "back", "--json"],
    )
    for result in (refused, tried):
        assert result.code == 2
        assert f"cannot push {path}: it is private" in result.err
        assert "Give --allow-private if" in result.err
    assert pushed.code == 0, pushed.err
    assert "uploading private texts to acme/our-notes (private)" in pushed.err
    repository = hub.repositories["dataset", "acme/our-notes"]
    assert repository.private
    card = repository.commits[repository.refs["main"]]["README.md"].decode()
    assert "| private | yes" in card
    assert "Most frequent entries" not in card
    assert "preview/phrases.parquet" not in repository.commits[repository.refs["main"]]
    assert pulled.code == 0, pulled.err
    assert ngramkit.open_artifact(tmp_path / "back").manifest.private
    assert mode(tmp_path / "back") == 0o700
    assert mode(tmp_path / "home/hub/datasets--acme--our-notes") == 0o700  # the Hub's cache


def test_public_is_a_second_word(hub, shared, private):
    path = private["frozen"].path
    hub.add("dataset", "acme/our-open", {".gitattributes": b""})
    to_public, pushed = shared(
        ["push", path, "acme/our-open", "--allow-private"],
        ["push", path, "acme/our-table", "--allow-private", "--public"],
    )
    assert to_public.code == 2
    assert "the repository is public" in to_public.err
    assert pushed.code == 0, pushed.err
    assert not hub.repositories["dataset", "acme/our-table"].private
    assert "uploading private texts to acme/our-table (public)" in pushed.err


def test_list_and_inspect_show_it(shared, private, tmp_path):
    path = private["frozen"].path
    shown, as_json, listed, table = shared(
        ["inspect", path],
        ["inspect", path, "--json"],
        ["list", "--folder", path.parent, "--json"],
        ["list", "--folder", path.parent],
    )
    assert "private" in shown.out.split("tokenizer")[0]
    assert as_json.json["private"] is True
    assert {each["name"]: each["private"] for each in listed.json["artifacts"]} == dict.fromkeys(
        ("datastore", "frozen", "tokens"), True
    )
    assert "datastore, private" in table.out


def test_exports_keep_the_mark_or_report_its_loss(shared, private, tmp_path):
    path = private["datastore"].path
    parquet, folder, jsonl = (tmp_path / name for name in ("a.parquet", "folder", "a.jsonl"))
    wrote, copied, text, pushed = shared(
        ["export", path, "--to", "parquet", "--out", parquet, "--json"],
        ["export", path, "--to", "transformers", "--out", folder, "--json"],
        ["export", path, "--to", "jsonl", "--out", jsonl, "--json"],
        ["push", folder, "acme/our-model"],
    )
    assert wrote.json["private"] is copied.json["private"] is text.json["private"] is True
    assert pq.read_schema(parquet).metadata[b"private"] == b"true"
    assert json.loads((folder / "artifact" / "manifest.json").read_text())["corpus"]["private"]
    assert mode(folder) == 0o700
    lost = "holds private texts, and a jsonl file cannot be marked private"
    assert lost in text.err
    assert lost not in wrote.err
    assert pushed.code == 2
    assert "it is private" in pushed.err


@pytest.mark.parametrize(
    ("kind", "to"),
    [("datastore", "parquet"), ("datastore", "jsonl"), ("datastore", "datasets"),
     ("datastore", "rest-idx"), ("datastore", "ik_llama.cpp"), ("frozen", "llama.cpp")],
)  # fmt: skip
def test_exports_are_for_their_owner(private, tmp_path, kind, to):
    written = ngramkit.export(private[kind], to, tmp_path / "file")
    assert mode(written.path) == 0o600


def test_what_is_built_from_an_exported_table_is_private(private, artifacts, tmp_path):
    for name, source in (("mine", private["datastore"]), ("public", artifacts["datastore"])):
        file = tmp_path / f"{name}.parquet"
        ngramkit.export(source, "parquet", file)
        assert ngramkit.open_corpus(file).private == (name == "mine")
        assert ngramkit.open_corpus(file, column="text").private == (name == "mine")


def test_a_recipe_marks_a_corpus_and_is_not_pushed_by_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.txt").write_text(TEXT)
    (tmp_path / "notes.toml").write_text(
        'kind = "frozen-table"\ndestination = "acme/our-notes"\n[model]\nid = "demo"\n'
        f'[corpus]\nname = "{tmp_path}/mine.txt"\nprivate = true\n'
    )
    recipe = read_recipe("notes.toml")
    with pytest.raises(UsageError, match="cannot push notes: it is private"):
        ngramkit.build(recipe, push=True)
    assert not (tmp_path / "artifacts").exists()
    built = ngramkit.build(recipe)
    assert ngramkit.open_artifact(built.artifact).manifest.private


def test_every_history_is_private(tmp_path):
    history = History.at(tmp_path / "grown", RECORD)  # as engines open it
    history.append(np.array([5, 6, 7], np.int32), 1)
    assert history.manifest.private
    assert copy_of(history)[0].private


def test_an_imported_history_is_private(hub, shared, tmp_path):
    (tmp_path / "log.jsonl").write_text('{"prompt": "one", "output": "two three"}\n')
    imported, inspected, refused, pushed, pulled = shared(
        ["history", "import", "log.jsonl", "--out", "past", "--model", "demo", "--json"],
        ["history", "inspect", "past", "--json"],
        ["push", "past", "acme/our-past"],
        ["push", "past", "acme/our-past", "--allow-private", "--json"],
        ["pull", "acme/our-past", "--out", "back"],
    )
    assert imported.code == 0, imported.err
    assert inspected.json["private"] is True
    assert refused.code == 2
    assert "it is private" in refused.err
    assert pushed.code == 0, pushed.err
    assert pulled.code == 0, pulled.err
    assert History.open(tmp_path / "back").manifest.private
