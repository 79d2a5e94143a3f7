"""Mixtures: their documents, order, records and errors."""

import json
from pathlib import Path

import numpy as np
import pytest

import ngramkit
from ngramkit.basics.errors import InputError, UsageError
from ngramkit.builders.tokens import tokenize
from ngramkit.corpus.document import BEGINNING, Position
from ngramkit.corpus.mixing import Mixture, Weighted, parse_weighted
from ngramkit.corpus.open import open_corpus
from ngramkit.formats.manifest import read_manifest
from ngramkit.formats.resumable_writer import ArtifactWriter


@pytest.fixture
def corpora(tmp_path, monkeypatch):
    """a.jsonl and b.jsonl with 40 documents each, c with two files of 15."""
    monkeypatch.chdir(tmp_path)
    for name, numbers in (("a", range(40)), ("b", range(40))):
        lines = [json.dumps({"text": f"{name} {i}", "license": "mit"}) for i in numbers]
        Path(f"{name}.jsonl").write_text("\n".join(lines))
    Path("c").mkdir()
    for part in range(2):
        lines = [json.dumps({"text": f"c {part} {i}"}) for i in range(15)]
        Path("c", f"{part}.jsonl").write_text("\n".join(lines))
    return tmp_path


def texts(corpus, start=BEGINNING):
    return [document.text for document in corpus.documents(start)]


def test_a_weight_keeps_the_documents_of_a_sample_of_the_corpus_alone(corpora):
    both = open_corpus(["a.jsonl", ("b.jsonl", 0.3)])
    alone = texts(open_corpus("b.jsonl", sample=0.3))
    assert 0 < len(alone) < 40
    assert texts(both) == [*texts(open_corpus("a.jsonl")), *alone]
    seeded = open_corpus([("b.jsonl", 0.3)], seed=7)
    assert texts(seeded) == texts(open_corpus("b.jsonl", sample=0.3, seed=7)) != alone
    assert texts(open_corpus([("b.jsonl", 0.6)], sample=0.5)) == alone


def test_corpora_keep_their_order_and_the_limit_counts_all(corpora):
    assert texts(open_corpus(["b.jsonl", "a.jsonl"]))[:2] == ["b 0", "b 1"]
    limited = texts(open_corpus(["a.jsonl", "b.jsonl"], limit=45))
    assert limited[-1] == "b 4"
    assert len(limited) == 45
    assert len(texts(open_corpus(["a.jsonl", "b.jsonl"], limit=40))) == 40


def test_reading_resumes_after_any_document(corpora):
    mixture = open_corpus(["a.jsonl", ("c", 0.5), ("b.jsonl", 0.3)], limit=60)
    documents = list(mixture.documents())
    whole = [document.text for document in documents]
    assert [document.end.kept for document in documents] == list(range(1, len(whole) + 1))
    for at, document in enumerate(documents):
        end = Position(**document.end._asdict())
        assert texts(mixture, end) == whole[at + 1 :]


def test_the_record_names_every_corpus_with_what_pins_it_and_its_weight(corpora):
    mixture = open_corpus(["a.jsonl", ("b.jsonl", 0.3)], seed=3, limit=50)
    record = mixture.record()
    assert record["id"] == "a.jsonl + b.jsonl"
    assert record["limit"] == 50
    first, second = record["mixed"]
    assert (first["id"], first["weight"]) == ("a.jsonl", 1.0)
    assert (second["id"], second["weight"], second["seed"]) == ("b.jsonl", 0.3, 3)
    assert first["sha256"] != second["sha256"]
    assert open_corpus(["b.jsonl", "a.jsonl"]).record() != open_corpus(["a.jsonl", "b.jsonl"])
    assert [place.name for place in mixture.places] == ["a.jsonl", "b.jsonl"]


def test_mixtures_bound_documents_too(corpora):
    Path("b.jsonl").write_text(json.dumps({"text": "x" * 500}))
    mixture = open_corpus(["a.jsonl", "b.jsonl"], max_document=100)
    with pytest.raises(ngramkit.InputError, match="more than 100 bytes"):
        texts(mixture)


@pytest.mark.parametrize("weight", [0, -1, 1.5, float("nan"), float("inf"), "much", True])
def test_weights_out_of_range(corpora, weight):
    with pytest.raises(UsageError, match=r"the weight of .*b.jsonl .*(must be above 0|no number)"):
        open_corpus(["a.jsonl", ("b.jsonl", weight)])


def test_options_that_make_no_sense_for_a_mixture(corpora):
    with pytest.raises(UsageError, match=r"a.jsonl twice"):
        open_corpus(["a.jsonl", ("a.jsonl", 0.5)])
    with pytest.raises(UsageError, match="cannot use split"):
        open_corpus(["a.jsonl", "b.jsonl"], split="train")
    with pytest.raises(UsageError, match="with a limit"):
        open_corpus([open_corpus("a.jsonl", limit=3), "b.jsonl"])
    with pytest.raises(UsageError, match="cannot use sample"):
        open_corpus([open_corpus("a.jsonl"), "b.jsonl"], sample=0.5)
    with pytest.raises(UsageError, match="cannot use max_document"):
        open_corpus([open_corpus("a.jsonl"), "b.jsonl"], max_document=100)
    with pytest.raises(UsageError, match="cannot use sample"):
        ngramkit.tokenize(open_corpus("a.jsonl"), "demo", sample=0.5)
    with pytest.raises(UsageError, match="must name at least one corpus"):
        open_corpus([])


@pytest.mark.parametrize(
    ("typed", "name", "weight"),
    [
        ("b:0.3", "b", 0.3),
        ("b:1", "b", 1.0),
        ("b:.5", "b", 0.5),
        ("b:3e-1", "b", 0.3),
        ("b", "b", 1.0),
        ("hf:me/code", "hf:me/code", 1.0),
        ("hf:me/code:python", "hf:me/code:python", 1.0),
        ("hf:me/code:python:0.25", "hf:me/code:python", 0.25),
        ("hf:me/dumps:2024:1", "hf:me/dumps:2024", 1.0),
        (r"C:\texts\a.txt", r"C:\texts\a.txt", 1.0),
        (r"C:\texts\a.txt:0.5", r"C:\texts\a.txt", 0.5),
        ("https://host:8080/a.jsonl", "https://host:8080/a.jsonl", 1.0),
        ("https://host:8080/a.jsonl:0.5", "https://host:8080/a.jsonl", 0.5),
        ("s3://bucket/*.jsonl", "s3://bucket/*.jsonl", 1.0),
        ("data/*.jsonl:0.1", "data/*.jsonl", 0.1),
    ],
)
def test_names_with_and_without_weights(typed, name, weight):
    assert parse_weighted(typed) == Weighted(name, weight)


def test_a_folder_whose_name_has_a_colon_is_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("odd:0.5").mkdir()
    Path("odd:0.5", "a.txt").write_text("text")
    assert parse_weighted("odd:0.5") == Weighted("odd:0.5", 1.0)
    assert parse_weighted("odd:0.5:0.2") == Weighted("odd:0.5", 0.2)


@pytest.mark.parametrize("said", ["0", "1.5", "nan", "inf", "-0.3", "2024"])
def test_typed_weights_out_of_range(said):
    with pytest.raises(UsageError, match=rf"weight of b must be above 0 and at most 1, got {said}"):
        parse_weighted(f"b:{said}")


def test_a_missing_weight():
    with pytest.raises(UsageError, match="the weight of b must be"):
        parse_weighted("b:")


def test_a_killed_build_of_a_mixture_goes_on(corpora, monkeypatch):
    mixture = open_corpus(["a.jsonl", ("b.jsonl", 0.5), "c"])
    whole = tokenize(mixture, "demo", "whole", shard_tokens=64)
    write, written = ArtifactWriter.write, []

    def killed(self, name, *arrays, **facts):
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(name)
        write(self, name, *arrays, **facts)

    with monkeypatch.context() as patched:
        patched.setattr(ArtifactWriter, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            tokenize(mixture, "demo", "killed", shard_tokens=64)
    assert not Path("killed").exists()
    again = tokenize(mixture, "demo", "killed", shard_tokens=64)
    assert len(whole.shards) > 4
    assert again.manifest.files == whole.manifest.files
    for one, other in zip(whole.shards, again.shards, strict=True):
        assert np.array_equal(one.tokens, other.tokens)


def test_every_builder_takes_a_mixture_and_names_its_artifact_after_all(corpora):
    mixed = ["a.jsonl", ("b.jsonl", 0.5)]
    store = ngramkit.tokenize(mixed, "demo")
    assert store.path.name.startswith("a-b-demo-tokens-")
    assert store.manifest.corpus["licenses"]["mit"] == store.manifest.counts["documents"]
    datastore = ngramkit.build_datastore(mixed, model="demo")
    frozen = ngramkit.build_frozen(mixed, model="demo")
    assert [path.path.name for path in (datastore, frozen)] == [
        "a-b-demo-datastore",
        "a-b-demo-frozen",
    ]
    assert datastore.manifest.corpus == store.manifest.corpus
    assert isinstance(open_corpus(mixed), Mixture)


def test_the_command_line_mixes_and_inspect_and_the_card_say_so(corpora, ngramkit_cli):
    words = ["--corpus", "a.jsonl", "--corpus", "b.jsonl:0.3", "--model", "demo"]
    built, seen, wrong, missing, split = ngramkit_cli(
        ["build-frozen", *words, "--json"],
        ["inspect", "artifacts/a-b-demo-frozen"],
        ["tokenize", "--corpus", "a.jsonl", "--corpus", "b.jsonl:1.5"],
        ["tokenize", "--corpus", "b.jsonl:"],
        ["tokenize", *words, "--split", "train"],
    )
    assert built.code == 0, built.err
    path = Path(built.json["artifact"])
    first, second = read_manifest(path).corpus["mixed"]
    shown = " ".join(seen.out.split())
    assert f"corpus 1 a.jsonl, weight 1.0, sha256 {first['sha256'][:12]}" in shown
    assert f"corpus 2 b.jsonl, weight 0.3, sha256 {second['sha256'][:12]}" in shown
    card = (path / "README.md").read_text()
    assert f"b.jsonl, weight 0.3, sha256 {second['sha256'][:12]}" in card
    assert "ngramkit build-frozen --corpus a.jsonl --corpus b.jsonl:0.3 --model demo" in card
    assert "the weight of b.jsonl must be above 0 and at most 1, got 1.5" in wrong.err
    assert "the weight of b.jsonl must be" in missing.err
    assert "cannot use --split" in split.err


def test_a_mixture_is_told_where_to_give_a_column(corpora):
    Path("two.jsonl").write_text('{"prompt": "a", "answer": "b"}\n')
    with pytest.raises(InputError, match="cannot choose the text") as caught:
        list(open_corpus(["two.jsonl", "a.jsonl"]).documents())
    assert "one of prompt, answer; for a mixture, in a recipe" in caught.value.hint


RECIPE = """kind = "frozen-table"
model.id = "demo"
[[corpus]]
name = "a.jsonl"
sample = 0.5
[[corpus]]
name = "b.jsonl"
weight = 0.25
"""


def test_a_recipe_mixes_corpora_each_with_its_own_options(corpora):
    Path("mine.toml").write_text(RECIPE)
    assert ngramkit.build("mine.toml").status == "built"
    assert ngramkit.build("mine.toml").status == "up to date"
    parts = read_manifest(Path("artifacts/mine")).corpus["mixed"]
    assert [(part["id"], part["weight"]) for part in parts] == [("a.jsonl", 1.0), ("b.jsonl", 0.25)]
    Path("mine.toml").write_text(RECIPE.replace("0.25", "0.75"))
    why = ngramkit.build("mine.toml", check=True).why
    assert why == "corpus.mixed 2.weight is 0.75, was 0.25"
    Path("mine.toml").write_text(RECIPE.replace("0.25", "2.5"))
    with pytest.raises(UsageError, match=r"weight of b.jsonl must be .*, got 2.5"):
        ngramkit.build("mine.toml")


@pytest.mark.parametrize("kind", ["frozen-table", "model-bigram"])
@pytest.mark.parametrize("given", ["[]", '["a.jsonl"]', '"a.jsonl"'])
def test_a_recipe_whose_corpora_are_no_tables(corpora, kind, given):
    Path("mine.toml").write_text(f'corpus = {given}\nkind = "{kind}"\nmodel.id = "demo"\n')
    with pytest.raises(ngramkit.InputError, match=r"mine.toml: corpus must be "):
        ngramkit.build("mine.toml")
