"""--force takes the place of what ngramkit wrote, and of nothing else; every attempt is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.builders.merge import merge
from ngramkit.builders.tokens import tokenize
from ngramkit.corpus.open import open_corpus
from ngramkit.exchange.transformers import export_folder
from ngramkit.formats.history import History
from ngramkit.formats.opening import verify_artifact
from ngramkit.formats.outputs import AUTOMATIC, artifacts_in, default_place, short_name
from ngramkit.formats.replacing import Replacement
from ngramkit.formats.resumable_writer import ArtifactWriter
from ngramkit.formats.tokenizer_record import TokenizerRecord

RECORD = TokenizerRecord("small", 100, "f" * 64, 1)
PLAN = {"kind": "tokens"}


def write(path, plan=PLAN, **options):
    with ArtifactWriter(path, "tokens", plan, **options) as writer:
        tokens = {"tokens": np.arange(9, dtype=np.uint16), "documents": np.array([0, 9], np.uint64)}
        writer.write("shard-00000.safetensors", tokens)
        counts = {"documents": 1, "tokens": 9}
        return writer.commit(RECORD, parameters={}, corpus={"id": "c"}, counts=counts)


def everything(folder: Path) -> dict[str, bytes | str]:
    """Every name below it, links too, with what it holds."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        link = path.is_symlink()
        found[name] = str(path.readlink()) if link else path.read_bytes() if path.is_file() else ""
    return found


@pytest.fixture
def refused(tmp_path):
    """refused(call): it raises UsageError, and everything is as it was."""

    def call(action, *said):
        before = everything(tmp_path)
        with pytest.raises(UsageError) as caught:
            action()
        assert all(word in f"{caught.value} {caught.value.hint}" for word in said), caught.value
        assert "\n" not in str(caught.value)
        assert everything(tmp_path) == before

    return call


def test_a_folder_that_is_no_artifact(tmp_path, refused):
    (tmp_path / "prec").mkdir()
    (tmp_path / "prec" / "thesis.doc").write_text("years")
    refused(lambda: write(tmp_path / "prec", force=True), "thesis.doc")


def test_an_artifact_with_something_else_inside(tmp_path, refused):
    path = write(tmp_path / "x")
    for name in ("thesis.doc", "model-00001-of-00002.safetensors", "sub", ".hidden"):
        stranger = path / name
        stranger.mkdir() if name == "sub" else stranger.write_text("mine")
        refused(lambda: write(path, {"other": 1}, force=True), name)
        stranger.rmdir() if name == "sub" else stranger.unlink()
    write(path, {"other": 1}, force=True)


def test_a_forged_manifest_beside_a_thesis(tmp_path, refused):
    path = write(tmp_path / "forged")
    body = json.loads((path / "manifest.json").read_text())
    body["files"]["thesis.doc"] = body["files"]["shard-00000.safetensors"]
    (path / "manifest.json").write_text(json.dumps(body))
    (path / "thesis.doc").write_text("years")
    refused(lambda: write(path, {"other": 1}, force=True), "thesis.doc")
    (path / "manifest.json").write_text("{")
    refused(lambda: write(path, {"other": 1}, force=True))


def test_links_are_followed_nowhere(tmp_path, refused):
    path = write(tmp_path / "real")
    (tmp_path / "link").symlink_to(path)
    refused(lambda: write(tmp_path / "link", {"other": 1}, force=True), "link")
    (tmp_path / "thesis.safetensors").write_text("years")
    shard = path / "shard-00000.safetensors"
    shard.unlink()
    shard.symlink_to(tmp_path / "thesis.safetensors")
    refused(lambda: write(path, {"other": 1}, force=True), shard.name)
    (tmp_path / "new.partial").symlink_to(path)
    refused(lambda: write(tmp_path / "new"), "link")


def test_a_partial_folder_that_is_somebodys(tmp_path, refused):
    (tmp_path / "x.partial").mkdir()
    (tmp_path / "x.partial" / "thesis.doc").write_text("years")
    refused(lambda: write(tmp_path / "x"), "thesis.doc")
    refused(lambda: write(tmp_path / "x", force=True), "thesis.doc")


def test_what_people_asked_is_not_replaced(tmp_path, refused):
    path = History.at(tmp_path / "past", RECORD).path
    refused(lambda: write(path, force=True), "history")


@pytest.mark.parametrize("out", ["", ".", "..", "/", "sub/..", "../..", "../here", "x" * 250])
def test_names_that_nothing_is_written_to(tmp_path, monkeypatch, refused, out):
    here = tmp_path / "above" / "here"
    (here / "sub").mkdir(parents=True)
    (tmp_path / "above" / "thesis.doc").write_text("years")
    monkeypatch.chdir(here)
    refused(lambda: write(out, force=True))
    refused(lambda: write(out))


def test_an_artifact_above_the_working_directory_stays(tmp_path, monkeypatch, refused):
    path = write(tmp_path / "x")
    monkeypatch.chdir(path)
    refused(lambda: write(Path("..") / "x", {"other": 1}, force=True), "working directory")


def test_a_file_and_what_is_below_one(tmp_path, refused):
    (tmp_path / "file").write_text("mine")
    refused(lambda: write(tmp_path / "file", force=True), "file")
    refused(lambda: write(tmp_path / "file" / "x"), "not a folder")
    refused(lambda: write(tmp_path / "a\0b"), "file name")


def test_an_empty_folder_may_be_used(tmp_path):
    (tmp_path / "x").mkdir()
    with pytest.raises(UsageError):
        write(tmp_path / "x")
    assert list(verify_artifact(write(tmp_path / "x", force=True)))


def test_what_appears_in_the_old_one_while_the_new_one_is_built(tmp_path):
    path = write(tmp_path / "x")
    with ArtifactWriter(path, "tokens", {"other": 1}, force=True) as writer:
        (path / "thesis.doc").write_text("years")
        with pytest.raises(UsageError, match="thesis"):
            writer.commit(RECORD, parameters={}, corpus={"id": "c"}, counts={})
    assert (path / "thesis.doc").read_text() == "years"
    assert list(verify_artifact(path))


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "texts"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("def main(self):\n    return self.name\n" * 30)
    return folder


def test_the_corpus_is_not_written_over(tmp_path, corpus, refused):
    def build(name, out, **options):
        return tokenize(open_corpus(str(name)), "demo", out, **options)

    for out in (corpus, tmp_path, corpus / "sub", corpus / "new", corpus / "a.txt"):
        refused(lambda out=out: build(corpus, out, force=True))
    refused(lambda: build(corpus / "a.txt", corpus / "a.txt", force=True))
    refused(lambda: build(f"{corpus}/*.txt", corpus, force=True), "a.txt")
    (tmp_path / "alias").symlink_to(corpus)
    refused(lambda: build(corpus, tmp_path / "alias", force=True))
    assert build(corpus / "a.txt", corpus / "new").manifest.counts["documents"] == 1


def test_a_corpus_above_its_artifacts_is_not_changed_by_them(tmp_path, corpus, monkeypatch):
    monkeypatch.chdir(corpus)
    store = tokenize(open_corpus("."), "demo", "artifacts/x")
    assert store.manifest.counts["documents"] == 1
    again = tokenize(open_corpus("."), "demo", "artifacts/x")
    assert again.manifest == store.manifest


def test_an_input_is_not_written_over(tmp_path, corpus, refused):
    store = tokenize(open_corpus(str(corpus)), "demo", tmp_path / "tokens")
    frozen = [
        build_frozen(store, tmp_path / f"frozen-{n}", leaders=50 + n, followers=4) for n in (1, 2)
    ]
    refused(lambda: build_datastore(store, store.path, force=True), "input")
    refused(lambda: merge(frozen, frozen[0].path, force=True), "input")
    refused(lambda: export_folder(frozen[0], frozen[0].path, force=True), "input")


def test_an_export_for_transformers_replaces_only_its_like(tmp_path, corpus, refused):
    store = tokenize(open_corpus(str(corpus)), "demo", tmp_path / "tokens")
    table = build_frozen(store, tmp_path / "frozen", leaders=50, followers=4)
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.doc").write_text("years")
    refused(lambda: export_folder(table, out, force=True), "thesis.doc")
    shutil.rmtree(out)
    export_folder(table, out)
    before = everything(out)
    export_folder(table, out, force=True)
    assert everything(out) == before
    (out / "artifact" / "thesis.doc").write_text("years")
    refused(lambda: export_folder(table, out, force=True), "artifact/thesis.doc")
    refused(lambda: write(out, force=True), "thesis.doc")


def test_two_writers_one_waits_for_none(tmp_path):
    with ArtifactWriter(tmp_path / "x", "tokens", PLAN), pytest.raises(InputError, match="another"):
        write(tmp_path / "x")
    write(tmp_path / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


# Where artifacts lie by default, and what they are called.


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("python-stdlib", "python-stdlib"),
        ("notes.txt", "notes"),
        ("chats.jsonl.zst", "chats"),
        ("chat-corpus/train-0000[01]-of-00004.parquet", "chat-corpus"),
        ("/data/chat-corpus/train-0000*.parquet", "chat-corpus"),
        ("/data/llama-tokenizer", "llama-tokenizer"),
        ("../models/my model/", "my-model"),
        ("hf:HuggingFaceH4/ultrachat_200k", "ultrachat_200k"),
        ("hf:me/code:python", "code-python"),
        ("lmsys/vicuna-7b-v1.5", "vicuna-7b-v1.5"),
        ("*.txt", "txt"),
        (".txt", "txt"),
        ("..", ""),
        ("x" * 200, "x" * 60),
        ("data/語料.txt", "語料"),
        ("ü" + "語" * 200, "ü" + "語" * 19),
    ],
)
def test_a_name_is_the_last_part_of_where_it_came_from(text, name):
    assert short_name(text) == name


def test_names_by_hand_and_automatic_ones_are_the_same():
    parts = ("chat-corpus/train-*.parquet", "/data/llama-tokenizer", "datastore")
    by_hand, automatic = default_place(*parts), default_place(*parts, folder=AUTOMATIC)
    assert by_hand == Path("artifacts/chat-corpus-llama-tokenizer-datastore")
    assert automatic.name == by_hand.name
    assert default_place("a", "b", "frozen-table") == default_place("a", "b", "frozen")


def test_artifacts_are_found_and_damaged_ones_named(token_store, tmp_path):
    for name in ("b", "a", "c.partial"):
        token_store([[1, 2]], 10).path.rename(tmp_path / name)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "manifest.json").write_text("{")
    (tmp_path / "nothing").mkdir()
    found = {each.path.name: each for each in artifacts_in(tmp_path)}
    assert list(found) == ["a", "b", "damaged"]
    assert found["a"].manifest.kind == "tokens"
    assert found["damaged"].manifest is None
    assert "not JSON" in found["damaged"].problem
    assert not list(artifacts_in(tmp_path / "nowhere"))


def test_a_race_for_an_output_advises_no_option_that_is_not_there(tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError) as caught, Replacement(tmp_path / "out", forcible=False):
        pass
    assert "force" not in f"{caught.value.hint} {caught.value.option}"
