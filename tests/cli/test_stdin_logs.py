"""A log through a pipe: `-` in place of a file."""

from __future__ import annotations

import io
import sys

import pytest
from command_lines import run_here

import ngramkit

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
    assert "skipped 1 record, read 1 request" in " ".join(done.err.split())
    assert (done.json["imported"], ngramkit.history_inspect("past").requests) == (1, 1)


def test_forecast_reads_it_too(piped):
    piped(b"")
    done = run_here(["forecast", "-", "--model", "demo"])
    assert (done.code, "stdin: it holds no requests" in done.err) == (3, True)


def test_it_is_read_once(piped):
    piped(LIVE)
    done = run_here(["history", "import", "-", "-", "--out", "past"])
    assert (done.code, "must be given once" in done.err) == (2, True)
