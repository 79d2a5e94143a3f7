"""Progress in notebooks: bars below the running cell, nothing in scripts and terminals."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest
from notebooks import Kernel

import ngramkit
from ngramkit.basics import notebook
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import show_downloads


@pytest.fixture
def kernel(monkeypatch):
    monkeypatch.setattr(notebook, "UPDATE_SECONDS", 0)
    shell = Kernel(monkeypatch)
    yield shell
    shell.end_cell()


def work():
    NOTEBOOK_BARS.stage("reading <b>", 4, "documents")
    NOTEBOOK_BARS.advance(1, tokens=2000)
    NOTEBOOK_BARS.note("skipped s3://me:secret@bucket/x")
    NOTEBOOK_BARS.stage("sorting")
    NOTEBOOK_BARS.advance(1.5)


def test_a_cell_has_one_display_with_its_stages_and_notes(kernel):
    work()
    (versions,) = kernel.displays.values()
    first, second = versions[0]["text/html"], versions[1]["text/html"]
    assert '<progress value="0.000">' in first
    assert '<progress value="0.250">' in second
    assert "reading &lt;b&gt; 25%: 1 documents, 2,000 tokens, 0 s" in second
    assert "<progress></progress> sorting: 1.50 tokens" in versions[-1]["text/html"]
    kernel.end_cell()
    whole = versions[-1]
    assert "<progress" not in whole["text/html"]
    lines = whole["text/plain"].splitlines()
    assert [line.partition(":")[0] for line in lines[1:]] == ["reading <b>", "sorting"]
    assert lines[0] == "skipped s3://bucket/x"
    assert not kernel.callbacks


def test_the_next_cell_has_a_display_of_its_own(kernel):
    for _ in range(2):
        work()
        kernel.end_cell()
    assert len(kernel.displays) == 2
    NOTEBOOK_BARS.advance(1)  # after its stage
    kernel.end_cell()
    assert len(kernel.displays) == 2


def test_a_last_stage_without_an_end_has_no_time(kernel):
    NOTEBOOK_BARS.stage("loading")
    kernel.end_cell()
    (versions,) = kernel.displays.values()
    assert versions[-1]["text/plain"] == "loading"


def test_a_failed_cell_shows_where_it_stopped(kernel):
    NOTEBOOK_BARS.stage("reading", 4, "documents")
    kernel.end_cell(success=False)
    (versions,) = kernel.displays.values()
    assert versions[-1]["text/plain"] == "stopped in reading 0%: 0 documents, 0 s"


def test_a_forked_process_shows_nothing(kernel, monkeypatch):
    work()
    (versions,) = kernel.displays.values()
    count = len(versions)
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: -1)
        work()
    assert len(versions) == count


def test_scripts_and_terminals_are_silent(monkeypatch, capsys):
    for module in (None, SimpleNamespace(), SimpleNamespace(get_ipython=lambda: None),
                   SimpleNamespace(get_ipython=lambda: SimpleNamespace())):  # fmt: skip
        monkeypatch.setitem(sys.modules, "IPython", module)
        work()
    found = capsys.readouterr()
    assert (found.out, found.err) == ("", "")


def test_downloads_show_bars_in_notebooks_only(kernel, monkeypatch):
    from huggingface_hub.utils import are_progress_bars_disabled

    show_downloads()
    assert not are_progress_bars_disabled()
    monkeypatch.delitem(sys.modules, "IPython")
    show_downloads()
    assert are_progress_bars_disabled()


def test_functions_show_bars_by_default(kernel, tmp_path):
    ngramkit.tokenize(["one text"], "demo", tmp_path / "one")
    assert len(kernel.displays) == 1
    kernel.end_cell()
    ngramkit.tokenize(["a text"], "demo", tmp_path / "two", reporter=ngramkit.Reporter())
    assert len(kernel.displays) == 1
