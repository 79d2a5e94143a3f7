"""What the Hub shows of an artifact: languages and a table of frequent phrases."""

from __future__ import annotations

import io

import hub_writing
import pyarrow.parquet as pq
import pytest

import ngramkit
from ngramkit.builders.datastore import build_datastore
from ngramkit.formats.card import artifact_card, card_pattern
from ngramkit.formats.manifest import read_manifest
from ngramkit.formats.opening import open_artifact_folder, verify_artifact
from ngramkit.formats.outputs import require_written_by_us
from ngramkit.formats.query import frequent_phrases
from ngramkit.hub.preview import MIN_OCCURRENCES, preview_of

TABLE = "preview/phrases.parquet"


def files_of(hub, name):
    repository = hub.repositories["dataset", name]
    return repository.commits[repository.refs["main"]]


def header_of(hub, name):
    return hub_writing.front_matter(files_of(hub, name)["README.md"].decode())


@pytest.mark.parametrize("kind", ["datastore", "frozen"])
def test_a_pushed_artifact_has_a_preview(hub, shared, artifacts, kind, tmp_path):
    pushed, again, pulled = shared(
        ["push", artifacts[kind], "acme/our-data"],
        ["push", artifacts[kind], "acme/our-data", "--json"],
        ["pull", "acme/our-data", "--out", tmp_path / "back"],
    )
    assert pushed.code == 0, pushed.err
    assert again.json["files"] == 0
    header = header_of(hub, "acme/our-data")
    assert header["task_categories"] == ["text-generation"]
    assert header["library_name"] == "ngramkit"
    assert header["configs"] == [{"config_name": "preview", "data_files": TABLE}]
    assert "viewer" not in header
    assert "language" not in header
    table = pq.read_table(io.BytesIO(files_of(hub, "acme/our-data")[TABLE])).to_pylist()
    assert len(table) > 3
    assert all(MIN_OCCURRENCES <= row["next_count"] <= row["count"] for row in table)
    assert all(row["phrase"] and row["next"] for row in table)
    assert TABLE not in read_manifest(artifacts[kind]).files
    assert pulled.code == 0, pulled.err
    assert not (tmp_path / "back" / "preview").exists()
    assert "card" in list(verify_artifact(tmp_path / "back"))


def test_a_clone_with_the_preview_is_ours_to_replace(hub, shared, artifacts, tmp_path):
    shared(["push", artifacts["frozen"], "acme/our-data"])
    for name, content in files_of(hub, "acme/our-data").items():
        if name != ".gitattributes":
            (tmp_path / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "clone" / name).write_bytes(content)
    assert "card" in list(verify_artifact(tmp_path / "clone"))
    require_written_by_us(tmp_path / "clone")
    (tmp_path / "clone" / "preview" / "mine.parquet").write_bytes(b"")
    with pytest.raises(ngramkit.UsageError, match=r"did not write preview/mine\.parquet"):
        require_written_by_us(tmp_path / "clone")


def test_a_preview_that_is_stale_is_removed(hub, shared, artifacts, tmp_path, token_store):
    record = open_artifact_folder(artifacts["frozen"]).tokenizer
    once = build_datastore(token_store([[1, 2, 3]], record=record), tmp_path / "once")
    assert preview_of(once, str) is None
    shared(["push", artifacts["datastore"], "acme/our-data"])
    [smaller] = shared(["push", once.path, "acme/our-data", "--json"])
    assert smaller.code == 0, smaller.err
    assert TABLE in smaller.json["replaced"]
    assert TABLE not in files_of(hub, "acme/our-data")
    assert header_of(hub, "acme/our-data")["viewer"] is False


def test_no_phrase_is_a_document(artifacts, token_store, tmp_path):
    """A document's tokens occur often, but each continuation has 8 tokens with its phrase."""
    store = build_datastore(token_store([list(range(1, 40))] * 5, 50), tmp_path / "d")
    found = list(frequent_phrases(store, 100, 5, least=3))
    assert found
    assert max(len(e.phrase) for e in found) == 4
    assert max(len(ids) for e in found for ids, _ in e.continuations) == 4
    assert not list(frequent_phrases(store, 100, 5, least=6))


@pytest.mark.parametrize("given", ["en,de", "code"])
def test_a_given_language_is_kept_by_later_pushes(hub, shared, artifacts, given):
    hub.add("dataset", "acme/our-data", {".gitattributes": b""})
    [first] = shared(["push", artifacts["frozen"], "acme/our-data", "--language", given])
    assert first.code == 0, first.err
    header = header_of(hub, "acme/our-data")
    assert header["language"] == given.split(",")
    [again] = shared(["push", artifacts["frozen"], "acme/our-data", "--json"])
    assert (again.code, again.json["files"]) == (0, 0)


def test_an_export_for_transformers_has_no_language(shared, tmp_path, artifacts):
    line = ["export", artifacts["frozen"], "--to", "transformers", "--out", tmp_path / "export"]
    exported, refused = shared(line, ["push", tmp_path / "export", "acme/e", "--language", "en"])
    assert exported.code == 0, exported.err
    assert (refused.code, "cannot use --language" in refused.err) == (2, True)


def test_a_recipes_push_keeps_the_language_that_push_was_given(hub, shared, tmp_path):
    (tmp_path / "c.txt").write_text("def f(self): return self.value\n" * 9)
    recipe = 'destination = "acme/our-recipe"\nkind = "datastore"\n'
    (tmp_path / "x.toml").write_text(recipe + 'model.id = "demo"\ncorpus.name = "c.txt"\n')
    place = tmp_path / "artifacts" / "x"
    first, given, again = shared(
        ["build", "x.toml", "--push"],
        ["push", place, "acme/our-recipe", "--language", "en", "--json"],
        ["build", "x.toml", "--push"],
    )
    assert (first.code, given.code, again.code) == (0, 0, 0), again.err
    assert given.json["files"] == 1  # the card
    assert header_of(hub, "acme/our-recipe")["language"] == ["en"]


@pytest.mark.parametrize(
    ("card_of_source", "expected"),
    [({"language": "en"}, ["en"]), ({"language": ["fr"]}, ["fr"]), ({}, None), (None, None),
     ({"language": ["en", "de"]}, None), ({"language": ["english"]}, None)],
)  # fmt: skip
def test_the_source_datasets_language_is_known_if_it_has_one(
    hub, shared, token_store, tmp_path, artifacts, card_of_source, expected
):
    record = open_artifact_folder(artifacts["frozen"]).tokenizer
    corpus = {"id": "acme/our-source", "dataset": "acme/our-source"}
    store = build_datastore(
        token_store([[5, 6, 7, 8]] * 4, record=record, corpus=corpus), tmp_path / "d"
    )
    if card_of_source is not None:
        hub.add("dataset", "acme/our-source", {"a.txt": b"x"}, card=card_of_source)
    [pushed] = shared(["push", store.path, "acme/our-data"])
    assert pushed.code == 0, pushed.err
    assert header_of(hub, "acme/our-data").get("language") == expected


def test_a_history_has_no_preview_and_no_entries(hub, shared, tmp_path):
    (tmp_path / "log.jsonl").write_text(
        '{"prompt": "a secret a secret", "output": "a secret"}\n' * 9
    )
    made, pushed = shared(
        ["history", "import", "log.jsonl", "--out", "past", "--model", "demo"],
        ["push", "past", "acme/our-past", "--allow-private"],
    )
    assert made.code == 0, made.err
    assert pushed.code == 0, pushed.err
    assert TABLE not in files_of(hub, "acme/our-past")
    assert header_of(hub, "acme/our-past")["viewer"] is False
    assert b"secret" not in files_of(hub, "acme/our-past")["README.md"]


def test_which_cards_are_a_manifests(artifacts):
    manifest = read_manifest(artifacts["frozen"])
    pattern = card_pattern(manifest)
    plain = artifact_card(manifest).rstrip("\n")
    for text in (
        plain,
        artifact_card(manifest, language=["en", "code"], preview=True).rstrip("\n"),
        plain.replace('task_categories: ["text-generation"]\nlibrary_name: "ngramkit"\n', ""),
        plain.replace("USER/NAME", "me/mine"),
    ):
        assert pattern.fullmatch(text)
    for wrong in (
        plain.replace("viewer: false", 'configs: [{"data_files": "../x"}]'),
        plain.replace("task_categories", 'language: ["en"], x: ["a"]\ntask_categories'),
        plain.replace("viewer: false\n", ""),
    ):
        assert wrong != plain
        assert not pattern.fullmatch(wrong)


def test_a_language_must_be_a_code(artifacts):
    with pytest.raises(ngramkit.UsageError, match="language must be a code of ISO 639") as caught:
        ngramkit.push(artifacts["frozen"], "acme/our-data", language="English")
    assert caught.value.option == ("language",)
