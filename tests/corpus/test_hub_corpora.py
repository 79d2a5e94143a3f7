"""The named corpora and others of the Hub, over the wire, with the real clients."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections import Counter
from pathlib import Path

import datasets
import pytest
from hub_datasets import LICENSES, PAGES, text
from hub_standin import TOKEN, Fault

from ngramkit.basics.errors import InputError
from ngramkit.corpus import arrow_tables
from ngramkit.corpus.hub import dataset_rows
from ngramkit.corpus.rows import ReaderOptions, RowMaker
from ngramkit.corpus.selection import Selection
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.formats.tokens import TokenStore


@pytest.fixture(scope="module")
def demo():
    return load_tokenizer("demo")


def tokenize(corpus, *more):
    return ["tokenize", "--corpus", corpus, "--json", *more]


def stores(folder, results):
    for result in results:
        assert result.code == 0, result.err
    return [TokenStore.open(folder / result.json["artifact"]) for result in results]


def texts(store, demo):
    """Return the documents' texts without their EOS."""
    return [demo.decode(ids[:-1]) for ids in store.documents()]


def test_tokenize_runs_against_the_stand_in(hub, tmp_path, demo):
    command = Path(sys.executable).with_name("ngramkit")
    environment = {**os.environ, **hub.environment(tmp_path / "home")}
    arguments = ["tokenize", "--corpus", "openwebtext", "--sample", "0.01"]
    environment["PYTHONPROFILEIMPORTTIME"] = "1"
    done = subprocess.run(
        [command, *arguments], cwd=tmp_path, env=environment, check=True, stderr=subprocess.PIPE
    )
    imported = {line.rpartition(b"|")[2].strip() for line in done.stderr.splitlines()}
    assert b"datasets" in imported
    assert b"torch" not in imported, "streaming needs none, and it takes seconds"
    (path,) = (tmp_path / "artifacts").glob("openwebtext-*-demo-tokens-*")
    kept = [index for index in range(PAGES) if Selection(sample=0.01).samples(index)]
    assert kept
    assert texts(TokenStore.open(path), demo) == [text(index) for index in kept]


def test_every_layout(hub, ngramkit_cli, tmp_path, demo):
    env = hub.environment(tmp_path / "home", TOKEN)
    web, stack, rust, mit, turns, joined, chats, script, limited = stores(
        tmp_path,
        ngramkit_cli(
            tokenize("openwebtext"),
            tokenize("the-stack"),
            tokenize("the-stack", "--language", "rust", "--out", "rust"),
            tokenize("the-stack", "--licenses", "mit,Apache-2.0", "--out", "mit"),
            tokenize("ultrachat"),
            tokenize("ultrachat", "--join-turns", "--out", "joined"),
            tokenize("ultrachat-200k", "--split", "test_sft"),
            tokenize("hf:acme/scripted:default"),
            tokenize("hf:Skylion007/openwebtext:plain_text", "--limit", "7"),
            env=env,
        ),
    )
    assert texts(web, demo) == [text(index) for index in range(PAGES)]
    revision = hub.repositories["dataset", "Skylion007/openwebtext"].refs["main"]
    assert web.manifest.corpus == {
        "id": "openwebtext",
        "dataset": "Skylion007/openwebtext",
        "dataset_license": ["cc0-1.0"],
        "revision": revision,
        "split": "train",
        "column": "text",
    }

    assert texts(stack, demo) == [f"# python\n{text(n)}\n" for n in range(80)]
    assert texts(rust, demo) == [f"# rust\n{text(n)}\n" for n in range(24)]
    counted = Counter(name for n in range(80) for name in LICENSES[n % 4])
    assert stack.manifest.corpus["licenses"] == counted
    assert mit.manifest.corpus["licenses"] == {"MIT": 20, "Apache-2.0": 20}  # not MIT with GPL

    assert texts(turns, demo)[:3] == [text(0, 12), text(1000, 30), text(1, 12)]
    assert texts(joined, demo)[59] == text(59, 12) + "\n\n" + text(1059, 30)
    assert texts(chats, demo)[:2] == [text(100, 10), text(150)]
    assert texts(script, demo) == [text(n) for n in range(25)]
    assert texts(limited, demo) == [text(n) for n in range(7)]


def test_files_of_other_schemas_are_read_or_named(hub, ngramkit_cli, tmp_path, demo):
    """Other columns, widths of numbers, orders and nulls are read; other types of the text not."""
    env = hub.environment(tmp_path / "home")
    read = ["extra", "width", "order", "large", "null"]
    refused = ["lists", "lacking", "null-first", "lines"]
    lines = [tokenize(f"hf:acme/unlike-{how}", "--out", how) for how in read + refused]
    results = ngramkit_cli(*lines, env=env)
    found = [texts(store, demo) for store in stores(tmp_path, results[: len(read)])]
    assert found == [["a", "b", "a", "b"]] * 4 + [["a", "b", "", ""]]
    for how, result in zip(refused, results[len(read) :], strict=True):
        assert result.code == 3, result.err
        ending = "jsonl" if how == "lines" else "parquet"
        said, todo = result.err.splitlines()[-2:]
        assert said.startswith(f"error: cannot read train-1.{ending} of acme/unlike-{how}: ")
        assert todo.startswith("  -> Report it to the dataset's owner")


def test_bad_requests_say_what_to_do(hub, ngramkit_cli, tmp_path):
    results = ngramkit_cli(
        tokenize("the-stack"),
        tokenize("hf:acme/none"),
        tokenize("hf:acme/empty"),
        tokenize("hf:acme/malformed"),
        tokenize("hf:acme/two-columns"),
        tokenize("openwebtext", "--column", "words"),
        tokenize("openwebtext", "--split", "validation"),
        tokenize("openwebtext", "--revision", "nowhere"),
        tokenize("hf:Skylion007/openwebtext:big"),
        tokenize("ultrachat", "--language", "python"),
        tokenize("openwebtext", "--licenses", "mit"),
        tokenize("python-stdlib", "--model", "acme/no-model"),
        env=hub.environment(tmp_path / "home"),
    )
    expected = [
        (4, "gated", "hf auth login"),
        (3, "the dataset acme/none", "Check the id"),
        (3, "no documents", ""),
        (3, "cannot read", "Report it"),
        (3, "among the columns", "--column, one of question, answer"),
        (3, "unknown column 'words'", "its columns: text"),
        (3, "unknown split 'validation'", "Choose one of: train"),
        (3, "no such revision", "tree/main"),
        (3, "plain_text", "hf:ID:CONFIG"),
        (2, "--language", "Leave it out."),
        (3, "has no documents", "--licenses"),
        (3, "the model acme/no-model", "Check the id"),
    ]
    for result, (code, message, hint) in zip(results, expected, strict=True):
        assert result.code == code, (message, result)
        assert message in result.json["error"]
        assert hint in result.json["hint"]
        assert "Traceback" not in result.err
    assert not list((tmp_path / "artifacts").glob("*"))


def test_a_token_that_was_not_admitted(hub, ngramkit_cli, tmp_path):
    (refused,) = ngramkit_cli(
        tokenize("the-stack"), env=hub.environment(tmp_path / "home", "hf_stranger")
    )
    assert (refused.code, refused.json["error"]) == (
        4,
        "cannot read bigcode/the-stack-dedup: it is gated",
    )


def test_no_network(ngramkit_cli, tmp_path, hub):
    closed = {**hub.environment(tmp_path / "home"), "HF_ENDPOINT": "http://127.0.0.1:9"}
    dataset, model = ngramkit_cli(
        tokenize("openwebtext"), tokenize("python-stdlib", "--model", "acme/model"), env=closed
    )
    assert (dataset.code, model.code) == (4, 4)
    assert "cannot reach the Hub for Skylion007/openwebtext" in dataset.err
    assert "cannot reach the Hub for acme/model" in model.err


@pytest.mark.attack
def test_busy_and_broken_answers_are_asked_for_again(hub, ngramkit_cli, tmp_path):
    hub.faults[:] = [
        Fault("GET .*train-00001", 429, retry_after="0"),
        Fault("GET .*train-00002", 500),
        Fault("GET .*train-00000", 0),
    ]
    try:
        (result,) = ngramkit_cli(tokenize("openwebtext"), env=hub.environment(tmp_path / "home"))
        assert [fault.times for fault in hub.faults] == [0, 0, 0]
    finally:
        hub.faults.clear()
    assert result.json["documents"] == PAGES


def test_a_listing_of_many_pages(hub, ngramkit_cli, tmp_path, demo):
    names = [f"data/part-{n:03d}.jsonl" for n in range(12)]
    files = {name: f'{{"text": "{text(n)}"}}\n'.encode() for n, name in enumerate(names)}
    hub.add("dataset", "acme/many", files)
    results = ngramkit_cli(tokenize("hf:acme/many"), env=hub.environment(tmp_path / "home"))
    (store,) = stores(tmp_path, results)
    assert texts(store, demo) == [text(n) for n in range(12)]
    assert any("cursor=10" in request for request in hub.requests)


def streamed(texts):
    dataset = datasets.Dataset.from_dict({"text": texts})
    return dataset.to_iterable_dataset().with_format("arrow")


def test_a_streamed_row_is_bounded(monkeypatch):
    reading, maker = ReaderOptions(max_document=1000), RowMaker("text", top="text")
    with pytest.raises(InputError, match=r"^cannot read x: a document of more than 1,000 bytes"):
        list(dataset_rows(streamed(["a", "b" * 1001]), "x", maker, reading))
    monkeypatch.setattr(arrow_tables, "MAX_ROW_VALUES", 100)
    with pytest.raises(InputError, match=r"^cannot read x: it holds more than"):
        list(dataset_rows(streamed([["a"], [""] * 101]), "x", maker, reading))


def test_few_streamed_rows_are_in_memory_at_a_time():
    size, count = 1 << 16, 500
    rows = dataset_rows(
        streamed(["a" * size] * count),
        "x",
        RowMaker("text", top="text"),
        ReaderOptions(max_document=4 * size),
    )
    tracemalloc.start()
    try:
        assert sum(len(row.texts[0]) for row in rows) == size * count
        assert tracemalloc.get_traced_memory()[1] < size * count / 4
    finally:
        tracemalloc.stop()
