"""Default places: they hold what selects a part of the corpus, and are checked before the text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ngramkit
from ngramkit.basics.errors import UsageError
from ngramkit.corpus.naming import selection_name, selection_text

BUILDERS = {"datastore": ngramkit.build_datastore, "frozen": ngramkit.build_frozen}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A corpus of ten documents with two columns."""
    monkeypatch.chdir(tmp_path)
    rows = [{"text": f"def f{i}(): return {i}", "answer": f"words of {i}"} for i in range(10)]
    Path("a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


@pytest.fixture
def unread(monkeypatch):
    """Fail if a text is encoded."""

    def encode(*_):
        raise AssertionError("a text was encoded")

    return lambda: monkeypatch.setattr("ngramkit.builders.tokens.encode_documents", encode)


def test_a_name_holds_column_sample_seed_and_limit(here):
    options = {"column": "answer", "sample": 0.5, "seed": 3, "limit": 2}
    for kind, build in BUILDERS.items():
        made = build("a.jsonl", model="demo", **options)
        assert made.path == Path(f"artifacts/a-answer-sample0.5-seed3-limit2-demo-{kind}")
        again = build("a.jsonl", model="demo", **options)
        assert (again.path, again.manifest.build) == (made.path, made.manifest.build)
        assert build("a.jsonl", model="demo").path == Path(f"artifacts/a-demo-{kind}")
    stores = sorted(path.name for path in Path("artifacts").glob("*-tokens-*"))
    assert [name.rpartition("-tokens-")[0] for name in stores] == [
        "a-answer-sample0.5-seed3-limit2-demo", "a-demo",
    ]  # fmt: skip


def test_a_store_has_the_same_default_as_its_text(here):
    store = ngramkit.tokenize("a.jsonl", "demo", limit=3)
    assert ngramkit.build_datastore(store).path == Path("artifacts/a-limit3-demo-datastore")
    planned = ngramkit.build_frozen("a.jsonl", model="demo", limit=3)
    assert planned.path == Path("artifacts/a-limit3-demo-frozen")


def test_a_name_of_an_earlier_version_is_still_found(here, unread):
    store = ngramkit.tokenize("a.jsonl", "demo", "artifacts/old", limit=2)
    plain = store.path.rename(f"artifacts/a-demo-tokens-{store.manifest.build[:8]}")
    for kind, build in BUILDERS.items():
        build(plain, f"artifacts/a-demo-{kind}")
    unread()
    for kind, build in BUILDERS.items():
        assert build("a.jsonl", model="demo", limit=2).path == Path(f"artifacts/a-demo-{kind}")
    assert ngramkit.tokenize("a.jsonl", "demo", limit=2).path == plain


@pytest.mark.parametrize("kind", BUILDERS)
@pytest.mark.parametrize("out", [None, "mine"])
def test_a_place_that_is_taken_is_named_before_the_text_is_read(here, unread, kind, out):
    build = BUILDERS[kind]
    made = build("a.jsonl", out, model="demo", limit=2, licenses=[])
    unread()
    other = {"limit": 3} if out else {"limit": 2, "dedup": "exact"}
    with pytest.raises(UsageError, match="exists") as caught:
        build("a.jsonl", out, model="demo", **other)
    assert caught.value.option == ("out", "force")
    assert ngramkit.open_artifact(made.path).manifest == made.manifest


def test_other_parameters_are_named_before_the_text_is_read(here, unread):
    ngramkit.build_datastore("a.jsonl", model="demo", shard_tokens=50)
    ngramkit.build_frozen("a.jsonl", model="demo")
    for store in Path("artifacts").glob("*-tokens-*"):
        store.rename("gone")
    unread()
    with pytest.raises(UsageError, match="exists"):
        ngramkit.build_datastore("a.jsonl", model="demo", shard_tokens=20)
    with pytest.raises(UsageError, match="exists"):
        ngramkit.build_frozen("a.jsonl", model="demo", followers=2)


@pytest.mark.parametrize("wrong", [{"model": "nope"}, {"dedup": "nope"}, {"out": "a.jsonl"}])
def test_a_wrong_option_is_named_before_a_generator_begins(here, wrong):
    def texts():
        raise AssertionError("a text was read")
        yield ""

    with pytest.raises(UsageError):
        ngramkit.build_datastore(texts(), **{"model": "demo", **wrong})


@pytest.mark.parametrize(
    ("record", "name"),
    [
        ({"id": "a"}, ""),
        ({"id": "a", "column": "text"}, ""),
        ({"id": "me/a", "dataset": "me/a", "column": "messages"}, ""),
        ({"id": "me/a", "dataset": "me/a", "column": "body"}, "body"),
        ({"id": "ultrachat", "dataset": "stingning/ultrachat", "column": "data"}, ""),
        ({"id": "a", "sample": 0.25, "seed": 0}, "sample0.25"),
        ({"id": "a + b", "mixed": [{"id": "a", "sample": 0.5, "seed": 1}, {"id": "b"}],
          "limit": 9}, "sample0.5-seed1-limit9"),
    ],
)  # fmt: skip
def test_what_a_name_holds(record, name):
    assert selection_name(record) == name


def test_a_part_is_seen_in_mixtures_and_merges():
    part = {"id": "a", "sample": 0.5, "seed": 0}
    assert selection_text({"id": "a"}) == ""
    assert selection_text({"id": "m", "mixed": [part, part]}) == "sample 0.5"
    assert selection_text({"id": "m", "merged": [{"id": "b", "limit": 3}, part]}) == (
        "limit 3, sample 0.5"
    )
