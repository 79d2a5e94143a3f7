"""Texts that a program holds are tokenised to the bytes of a file of the same texts."""

from __future__ import annotations

import json
import pickle

import datasets
import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ngramkit
from ngramkit.basics.errors import InputError, UsageError
from ngramkit.basics.progress import Reporter
from ngramkit.corpus.mixing import Mixture
from ngramkit.corpus.open import open_corpus

TEXTS = ["def f(x):\n    return x\n", "", "import os  # ä €", "四"] * 20

CATEGORIES = pa.DictionaryArray.from_arrays(
    pa.array(list(range(4)) * 20), pa.array(TEXTS[:4], pa.string_view())
)


class PolarsLike:
    """A table whose strings are views and that has nothing but the Arrow C stream, as polars'."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


HELD = {
    "list": lambda: TEXTS,
    "generator": lambda: (text for text in TEXTS),
    "numpy": lambda: np.array(TEXTS),
    "dicts": lambda: [{"id": n, "text": text} for n, text in enumerate(TEXTS)],
    "series": lambda: pandas.Series(TEXTS),
    "objects": lambda: pandas.Series(TEXTS, dtype=object),
    "categories": lambda: pandas.Series(TEXTS, dtype="category"),
    "frame": lambda: pandas.DataFrame({"text": TEXTS, "n": 1}),
    "table": lambda: pa.table({"text": TEXTS, "n": range(len(TEXTS))}),
    "reader": lambda: pa.table({"text": TEXTS}).to_reader(max_chunksize=7),
    "batch": lambda: pa.record_batch({"text": TEXTS}),
    "column": lambda: pa.chunked_array([TEXTS[:7], TEXTS[7:]]),
    "array": lambda: pa.array(TEXTS),
    "polars frame": lambda: PolarsLike(pa.table({"text": pa.array(TEXTS, pa.string_view())})),
    "polars series": lambda: PolarsLike(pa.chunked_array([pa.array(TEXTS, pa.string_view())])),
    "polars categories": lambda: PolarsLike(pa.chunked_array([CATEGORIES])),
    "dataset": lambda: datasets.Dataset.from_dict({"text": TEXTS, "n": range(len(TEXTS))}),
    "shuffled": lambda: datasets.Dataset.from_dict({"text": TEXTS[::-1]}).select(
        range(len(TEXTS) - 1, -1, -1)
    ),
    "stream": lambda: datasets.IterableDataset.from_generator(
        lambda: ({"text": text} for text in TEXTS)
    ),
}


def files(artifact):
    return {name: record.sha256 for name, record in artifact.manifest.files.items()}


def documents(held, **options):
    return [document.text for document in open_corpus(held, **options).documents()]


@pytest.fixture(scope="module")
def of_a_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("file")
    lines = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)
    (folder / "texts.jsonl").write_text(lines)
    store = ngramkit.tokenize(folder / "texts.jsonl", "demo", folder / "tokens")
    return store, ngramkit.build_datastore(store, folder / "datastore")


@pytest.mark.parametrize("kind", HELD)
def test_the_bytes_are_those_of_a_file(kind, of_a_file, tmp_path):
    store = ngramkit.tokenize(HELD[kind](), "demo", tmp_path / "tokens")
    assert files(store) == files(of_a_file[0])
    same = open_corpus(TEXTS).record()
    assert store.manifest.corpus == same  # whatever held them
    assert (same["id"], same["texts"]) == ("texts", len(TEXTS))


def test_builders_take_texts_and_call_them_by_their_name(of_a_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    built = ngramkit.build_datastore(iter(TEXTS), model="demo", name="notes")
    assert files(built) == files(of_a_file[1])
    assert str(built.path) == "artifacts/notes-demo-datastore"
    assert built.manifest.corpus["id"] == "notes"
    assert "ngramkit build" not in (built.path / "README.md").read_text()  # no command has them
    table = ngramkit.build_frozen(pandas.Series(TEXTS), "frozen", model="demo")
    assert files(table) == files(ngramkit.build_frozen(of_a_file[0], tmp_path / "again"))


def test_the_same_texts_are_up_to_date_and_others_are_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    class Notes(Reporter):
        def note(self, text):
            notes.append(text)

    notes: list[str] = []
    first = ngramkit.tokenize((text for text in TEXTS), "demo", reporter=Notes())
    again = ngramkit.tokenize(pa.table({"text": TEXTS}), "demo", reporter=Notes())
    other = ngramkit.tokenize([*TEXTS, "more"], "demo", reporter=Notes())
    assert first.path == again.path != other.path
    assert notes == [f"{first.path} is up to date"]


def test_a_column_is_chosen_and_its_licences_count(tmp_path):
    frame = pandas.DataFrame({"a": TEXTS, "b": TEXTS[::-1], "license": ["mit", "gpl"] * 40})
    assert documents(frame, column="b") == TEXTS[::-1]
    assert documents(frame, column="a", licenses=["mit"]) == TEXTS[::2]
    table = ngramkit.tokenize(frame, "demo", tmp_path / "tokens", column="a")
    assert table.manifest.corpus["licenses"] == {"gpl": 40, "mit": 40}


def test_conversations_have_turns():
    turns = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello!"}]
    records = [{"messages": turns, "id": 1}]
    assert documents(records, column="messages") == ["Hi.", "Hello!"]
    assert documents(records, column="messages", join_turns=True) == ["Hi.\n\nHello!"]
    assert documents(pa.Table.from_pylist(records), column="messages") == ["Hi.", "Hello!"]


@pytest.mark.parametrize("dedup", [None, "exact"])
def test_an_endless_generator_is_read_as_far_as_the_limit_needs(dedup):
    asked = []

    def endless():
        while True:
            asked.append(len(asked))
            yield f"text {asked[-1] // 2}"

    corpus = open_corpus(endless(), limit=10, sample=0.5, dedup=dedup)
    read = len(asked)
    texts = [document.text for document in corpus.documents()]
    assert len(texts) == 10
    assert len(set(texts)) == (10 if dedup else len(set(texts)))
    assert len(asked) == read  # once, and not one more than were needed
    assert texts[-1] == f"text {asked[-1] // 2}"


def test_a_generator_can_be_read_from_the_middle_and_by_other_processes():
    corpus = open_corpus(iter(TEXTS))
    whole = list(corpus.documents())
    assert [d.text for d in corpus.documents(whole[30].end)] == TEXTS[31:]
    pieces = [pickle.loads(pickle.dumps(piece)) for piece in corpus.pieces()]  # as tasks get them
    assert [d.text for piece in pieces for d in piece.documents()] == TEXTS


def test_many_batches_are_as_one(monkeypatch):
    monkeypatch.setattr("ngramkit.corpus.texts.BATCH_ROWS", 7)
    corpus = open_corpus(TEXTS)
    assert corpus.source.parts > 10
    assert [d.text for d in corpus.documents()] == TEXTS
    assert [d.text for piece in corpus.pieces() for d in piece.documents()] == TEXTS
    assert [d.end.number - 1 for d in corpus.documents()] == list(range(len(TEXTS)))


def test_texts_are_part_of_a_mixture():
    mixed = open_corpus([open_corpus(TEXTS, name="notes"), ("python-stdlib", 0.01)], limit=81)
    assert isinstance(mixed, Mixture)
    assert [d.text for d in mixed.documents()][:80] == TEXTS


def test_names_in_a_list_stay_a_mixture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("the file")
    (tmp_path / "b.txt").write_text("the other")
    assert documents(["a.txt", "b.txt"]) == ["the file", "the other"]
    assert documents(iter(["a.txt", "b.txt"])) == ["a.txt", "b.txt"]
    assert documents(["a text", "a.b"]) == ["a text", "a.b"]
    with pytest.raises(UsageError, match="Did you mean python-stdlib"):
        open_corpus(["pyton-stdlib", "openwebtext"])
    with pytest.raises(UsageError, match="unknown corpus 'a text'") as failure:
        open_corpus(["a.txt", "a text"])
    assert "iter(texts)" in failure.value.hint


@pytest.mark.parametrize(
    ("held", "said", "hint"),
    [
        (pandas.DataFrame({"a": ["x"], "b": ["y"]}), "among the columns", "column, one of a, b"),
        (
            pandas.DataFrame([["x", "y"]], columns=["text", "text"]),
            "as Arrow: Duplicate column names",
            "column of texts",
        ),
        (
            datasets.DatasetDict(train=datasets.Dataset.from_dict({"t": ["a"]})),
            "got datasets.DatasetDict",
            "'train'",
        ),
        ({"text": ["a"]}, "corpus must be texts or names, got dict", "'text'"),
        ({"a", "b"}, "corpus must be texts or names, got set", "sorted"),
        (b"bytes", "corpus must be texts or names, got bytes", "Decode"),
        (3, "corpus must be texts or names, got int", "a list"),
        (type("LazyFrame", (), {"columns": ["a"], "collect": 0})(), "LazyFrame", "Call collect()"),
        (
            [1, 2],
            "row 0 must be a text or an object, got int",
            "Mend it, or drop it. Give skip_bad",
        ),
        (["a", 5], "row 1: it must be a text, got int", "Mend it, or drop it. Give skip_bad"),
        (
            ["a", b"b"],
            "row 1: it must be a text, got bytes",
            "Decode it, or drop it. Give skip_bad",
        ),
        ([b"a"], "row 0 must be a text or an object, got bytes", "Decode it"),
        ([["a", "b"]], "row 0 must be a text or an object, got list", "skip_bad"),
        (["a", {"text": "b"}], "row 1: it is an object among texts", "skip_bad"),
        ([{"text": "b"}, "a"], "row 1: it must be an object, got str", "skip_bad"),
        ([{"text": "x"}, {"b": "y"}], "row 1: it has no 'text'", "skip_bad"),
        ([{"a": "x"}, {"b": "y"}], "among the columns", "column, one of a, b"),
        (
            [{"a": "x"}, {"a": b"y"}],
            "row 1: it must be a text, got bytes",
            "Decode it, or drop it. Or choose",
        ),
        (["a", "\ud800"], "row 1 as UTF-8: character 0", "skip_bad"),
        (
            pandas.Series(["a", "\ud800"], dtype=object),
            "row 1 as UTF-8: character 0",
            "skip_bad",
        ),
        (pandas.Series([1, 2]), "row 0: it must be a text, got int", "skip_bad"),
        (pandas.Series(["a", 5]), "row 1: it must be a text, got int", "skip_bad"),
        (pandas.DataFrame({"text": ["a", 5]}), "row 1: it must be a text, got int", "skip_bad"),
        (
            pa.array(["a", "b"]).cast(pa.binary()),
            "row 0: it must be a text, got bytes",
            "Decode it",
        ),
        ([], "must name at least one corpus", "Name one"),
        (iter(()), "texts: it has no text", "a new generator"),
        (pandas.Series([], dtype=str), "texts: it has no text", "a new generator"),
        (pa.table({"text": pa.array([], pa.string())}), "texts: it has no text", "new"),
        (pandas.DataFrame(), "among the columns", "with columns"),
    ],
)
def test_errors_say_what_is_wrong_and_what_to_do(held, said, hint):
    with pytest.raises((InputError, UsageError), match=said) as failure:
        open_corpus(held)
    assert hint in failure.value.hint


@pytest.mark.parametrize("held", [["a b"], pandas.Series(["a b"]), pa.array(["a b"])])
def test_what_has_no_columns_takes_none(held):
    with pytest.raises(UsageError, match="has no columns"):
        open_corpus(held, column="text")


def test_names_that_would_lie_are_refused():
    for name in ("python-stdlib", "hf:me/code", " "):
        with pytest.raises(UsageError, match="name must not be"):
            open_corpus(TEXTS, name=name)
    with pytest.raises(UsageError, match="name for python-stdlib"):
        open_corpus("python-stdlib", name="mine")


@pytest.mark.parametrize("held", [list, pandas.Series, pandas.DataFrame])
def test_bad_texts_are_skipped_and_counted(held, tmp_path):
    texts = held(["a b", b"x", "c d", 5])
    store = ngramkit.tokenize(texts, "demo", tmp_path / "t", skip_bad=True)
    assert store.manifest.counts["documents"] == 2
    assert store.manifest.corpus["bad_records"] == 2


def test_the_row_of_a_later_batch_is_counted_from_the_first(tmp_path):
    turns = pa.array([[{"content": "x"}]] * 4 + [[{"content": "x", "tool_calls": 5}]])
    table = pa.table({"turns": pa.chunked_array([turns[:2], turns[2:]])})
    pq.write_table(table, tmp_path / "turns.parquet", row_group_size=2)
    with (
        pa.OSFile(str(tmp_path / "turns.arrow"), "wb") as file,
        pa.ipc.new_stream(file, table.schema) as writer,
    ):
        writer.write_table(table, max_chunksize=2)
    for held in (table, tmp_path / "turns.parquet", tmp_path / "turns.arrow"):
        with pytest.raises(InputError, match="row 4: `tool_calls`"):
            documents(held, column="turns")


NULLS = [None, "def f(x):\n", None, "", "import os"]
WITH_NULLS = {
    "list": lambda: NULLS,
    "NaN": lambda: [float("nan") if text is None else text for text in NULLS],
    "NA": lambda: [pandas.NA if text is None else text for text in NULLS],
    "generator": lambda: (text for text in NULLS),
    "numpy": lambda: np.array(NULLS, object),
    "dicts": lambda: [{"text": text} for text in NULLS],
    "dicts of another name": lambda: [{"body": text} for text in NULLS],
    "records of pandas": lambda: pandas.DataFrame({"text": NULLS}).to_dict("records"),
    "series": lambda: pandas.Series(NULLS),
    "series of objects": lambda: pandas.Series(NULLS, dtype=object),
    "series of objects with NaN": lambda: pandas.Series(NULLS, dtype=object).fillna(float("nan")),
    "series of strings": lambda: pandas.Series(NULLS, dtype="string"),
    "frame": lambda: pandas.DataFrame({"text": NULLS}),
    "array": lambda: pa.array(NULLS),
    "table": lambda: pa.table({"text": NULLS}),
    "polars": lambda: PolarsLike(pa.chunked_array([pa.array(NULLS, pa.string_view())])),
    "dataset": lambda: datasets.Dataset.from_dict({"text": NULLS}),
    "stream": lambda: datasets.IterableDataset.from_generator(
        lambda: ({"text": text} for text in NULLS)
    ),
}


@pytest.mark.parametrize("kind", WITH_NULLS)
def test_a_null_is_an_empty_document_whatever_holds_it(kind, tmp_path):
    store = ngramkit.tokenize(WITH_NULLS[kind](), "demo", tmp_path / "tokens")
    assert store.manifest.corpus == open_corpus([text or "" for text in NULLS]).record()
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps(text) + "\n" for text in NULLS))
    pq.write_table(pa.table({"text": NULLS}), tmp_path / "column.parquet")
    for name in ("lines.jsonl", "column.parquet"):
        of_a_file = ngramkit.tokenize(tmp_path / name, "demo", tmp_path / f"of-{name}")
        assert files(store) == files(of_a_file)


@pytest.mark.parametrize(
    "held",
    [
        lambda: [None, None],
        lambda: [float("nan")],
        lambda: pandas.Series([None, None]),
        lambda: pandas.DataFrame({"text": [None, None]}),
        lambda: pa.nulls(2),
        lambda: pa.table({"text": pa.nulls(2)}),
        lambda: datasets.Dataset.from_dict({"text": [None, None]}),
    ],
)
def test_nulls_alone_are_no_text(held, tmp_path):
    with pytest.raises(InputError, match=r"has no text"):
        ngramkit.tokenize(held(), "demo", tmp_path / "t")
    assert not (tmp_path / "t").exists()
