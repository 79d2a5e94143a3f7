"""A log through a pipe: `-` in place of a file."""

from __future__ import annotations

import io
import sys

import pytest
from command_lines import run_here

import ngramkit
from ngramkit.formats.history import History

LIVE = b'{"prompt": "a", "output": "b c d"}\n{"prompt": "a", "outp'


@pytest.fixture
def piped(tmp_path, monkeypatch):
    """piped(bytes): what standard input holds."""
    monkeypatch.chdir(tmp_path)
    return lambda raw: monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))


def test_a_live_log_is_imported_up_to_its_cut_line(piped):
    piped(LIVE)
    done = run_here(["history", "import", "-", "--out", "past", "--model", "demo", "--json"])
    assert done.code == 0, done.err
    said = " ".join(done.err.split())
    assert "skipped 1 record, read 1 request" in said
    assert "log: standard input, " in said
    assert "/stdin" not in said
    assert (done.json["imported"], ngramkit.history_inspect("past").requests) == (1, 1)


def test_forecast_reads_it_too(piped):
    piped(b"")
    done = run_here(["forecast", "-", "--model", "demo"])
    assert (done.code, "read standard input: it holds no requests" in done.err) == (3, True)


def test_it_is_read_once(piped):
    piped(LIVE)
    done = run_here(["history", "import", "-", "-", "--out", "past"])
    assert (done.code, "must be given once" in done.err) == (2, True)


def test_a_wrong_column_is_named_with_the_others(piped):
    piped(b'{"question": "a", "answer": "b"}\n')
    words = ["--columns", "prompt=question,output=nope", "--out", "past", "--model", "demo"]
    done = run_here(["history", "import", "-", *words])
    assert done.code == 3
    said = " ".join(done.err.split())
    assert "the column 'nope' must have a value" in said
    assert "/stdin" not in said
    assert "-> Choose the output among the columns question, answer." in said


def test_a_history_of_another_tokenizer_is_not_to_be_built_again(piped, token_store):
    history = History.at("past", token_store([[1]], 10).tokenizer)
    piped(LIVE)
    done = run_here(["history", "import", "-", "--out", str(history.path), "--model", "demo"])
    assert (done.code, "Name another folder" in done.err) == (3, True)
