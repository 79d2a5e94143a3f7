"""Refusals of the operating system: limits, closed streams, a home that is no folder."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from command_lines import run_here

import ngramkit
from ngramkit.basics.errors import UsageError
from ngramkit.decode.options import DecodeOptions
from ngramkit.formats.history import History
from ngramkit.formats.tokenizer_record import TokenizerRecord
from ngramkit_cli.errors import exit_code, to_ngramkit_error

from . import tally


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("some text, and some more")
    return tmp_path


REFUSALS = [
    (OSError(errno.EROFS, "x", "/ro/out"), 3, "read-only file system"),
    (OSError(errno.EFBIG, "x", "big"), 3, "big: it would be larger"),
    (OSError(errno.EFBIG, "x"), 3, "a file: it would be larger"),
    (OSError(errno.ENOSPC, "x", "d"), 3, "d: no space left on the disk"),
    (OSError(errno.ENAMETOOLONG, "x", "n"), 3, "too long"),
    (OSError(errno.EMFILE, "x", "n"), 3, "too many files"),
    (OSError(errno.EIO, "Input/output error", "n"), 3, "Input/output error"),
    (PermissionError(errno.EACCES, "x", "n"), 3, "n: no permission"),
    (ConnectionResetError(errno.ECONNRESET, "x"), 4, "cannot connect"),
    (MemoryError(), 3, "out of memory"),
    (OSError(errno.ENOMEM, "Cannot allocate memory", "n"), 3, "out of memory"),
    (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), 3, "out of memory"),
    (RuntimeError("can't start new thread"), 3, "out of memory"),
    (AttributeError("'NoneType' \x1b[2J"), 1, "AttributeError"),
]


@pytest.mark.parametrize(("error", "code", "said"), REFUSALS, ids=range(len(REFUSALS)))
def test_errors_of_the_operating_system(error, code, said):
    known = to_ngramkit_error(error)
    assert (exit_code(known), said in f"{known} {known.hint}") == (code, True)
    assert "\x1b" not in str(known)
    tally("refusals of the system", f"an error, exit {code}")


def child(*words, **settings):
    run = "import sys; from ngramkit_cli.main import run; run()"
    return subprocess.run(
        [sys.executable, "-c", run, *words],
        stderr=subprocess.PIPE, text=True, check=False, **settings,
    )  # fmt: skip


def small_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))


def test_a_limit_on_file_size_is_an_error_of_one_line(folder):
    Path("a.txt").write_text("some text " * 2000)
    done = child("tokenize", "--corpus", "a.txt", "--out", "t", preexec_fn=small_files)
    assert (done.returncode, "larger than the limit" in done.stderr) == (3, True), done.stderr
    tally("refusals of the system", "an error, exit 3")


def close_stdout():
    os.close(1)


def test_a_stdout_that_takes_nothing_is_an_error_of_its_own(folder):
    with Path("/dev/full").open("w") as full:
        done = child("corpora", "--json", stdout=full)
        version = child("--version", stdout=full)
    for each in (done, version):
        assert (each.returncode, "Traceback" in each.stderr) == (1, False), each.stderr
        assert "cannot write to stdout" in each.stderr
    shut = child("corpora", "--json", preexec_fn=close_stdout)
    assert (shut.returncode, "stdout is closed" in shut.stderr) == (1, True), shut.stderr
    reader, writer = os.pipe()
    os.close(reader)
    piped = child("corpora", "--json", stdout=writer)
    os.close(writer)
    assert (piped.returncode, "error" in piped.stderr) == (1, False), piped.stderr
    tally("a closed or full stdout", "exit 1", 3)


def test_a_stderr_that_takes_nothing_ends_no_work():
    run = (
        "import sys; from ngramkit_cli import streams; "
        "streams.make_streams_safe(); print(5, file=sys.stderr)"
    )
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", run], stderr=full, check=False)
    assert done.returncode == 0
    tally("a full stderr", "works")


def test_a_text_that_is_not_utf8_is_refused_by_every_command(folder):
    History.at("h", TokenizerRecord("demo", 4096, "f" * 64, 0))
    for words in (
        ["history", "forget", "h", "--text", "\udce9"],
        ["decode", "--prompt", "x", "--stop", "\udce9"],
        ["decode", "--prompt", "x", "--chat", "--system", "\udce9"],
        ["tokenize", "--corpus", "\udce9", "--out", "t"],
    ):
        done = run_here(words)
        assert (done.code, "UTF-8" in done.err) == (2, True), done.err
    with pytest.raises(UsageError, match="UTF-8"):
        ngramkit.history_forget("h", text="\ud800")
    with pytest.raises(UsageError, match="UTF-8"):
        DecodeOptions(stop=["\ud800"])
    tally("arguments that are not UTF-8", "refused", 6)


URLS = [
    "http://usr:PASS@127.0.0.1:9/x.jsonl?sig=SIGNED",
    "http:/usr:PASS@127.0.0.1:9/x?sig=SIGNED",
    " https://usr:PASS@h/x?sig=SIGNED",
    "simplecache::s3://usr:PA/SS@bucket/x#SIGNED",
]


@pytest.mark.parametrize("url", URLS)
def test_no_command_prints_what_is_secret_of_a_url(folder, url, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for words in (
        ["history", "import", url, "--out", "h", "--model", "demo"],
        ["replay", "--answers", url, "--drafter", "ssd"],
        ["decode", "--prompt-file", url],
        ["tokenize", "--corpus", url, "--out", "t"],
        ["build-datastore", "--corpus", "a.txt", "--model", url, "--out", "t"],
        ["pull", url],
    ):
        done = run_here([*words, "--json"])
        assert done.code, done.out
        assert not any(secret in done.err + done.out for secret in ("PASS", "PA/SS", "SIGNED"))
    tally("secrets in URLs", "not printed", 6)


def test_a_home_that_is_no_folder_and_a_locale_without_letters(folder):
    Path("é.txt").write_text("größer", encoding="utf-8")
    bare = {
        "HOME": "/dev/null", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0",
        "PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }  # fmt: skip
    words = ("tokenize", "--corpus", "é.txt", "--out", "t", "--json")
    done = child(*words, stdout=subprocess.PIPE, env=bare)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["artifact"] == "t"
    words = ("decode", "--prompt-file", "-", "--json")
    with Path(sys.executable).open("rb") as program:
        binary = child(*words, env=bare, stdout=subprocess.PIPE, stdin=program)
    assert (binary.returncode, "stdin must be UTF-8" in binary.stderr) == (3, True), binary.stderr
    tally("a bare environment", "works or an error, exit 3", 2)


def test_a_stdin_that_is_closed_is_an_error_of_its_own(folder):
    shut = child("decode", "--prompt-file", "-", preexec_fn=lambda: os.close(0))
    assert (shut.returncode, "stdin is closed" in shut.stderr) == (3, True), shut.stderr
