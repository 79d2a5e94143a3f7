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

from ngramkit_cli.error_words import to_ngramkit_error

from . import tally


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("some text, and some more")
    return tmp_path


REFUSALS = [
    (OSError(errno.EROFS, "x", "/ro/out"), 3, "/ro/out is on a read-only file system"),
    (OSError(errno.EFBIG, "x", "big"), 3, "big may not grow so large"),
    (OSError(errno.EFBIG, "x"), 3, "a file may not grow so large"),
    (OSError(errno.ENOSPC, "x", "d"), 3, "no space left on the disk at d"),
    (OSError(errno.ENAMETOOLONG, "x", "n"), 3, "too long"),
    (OSError(errno.EMFILE, "x", "n"), 3, "too many open files"),
    (OSError(errno.EIO, "Input/output error", "n"), 3, "Input/output error"),
    (PermissionError(errno.EACCES, "x", "n"), 3, "no permission for n"),
    (ConnectionResetError(errno.ECONNRESET, "x"), 4, "no connection"),
    (MemoryError(), 3, "out of memory"),
    (AttributeError("'NoneType' \x1b[2J"), 1, "this is a bug"),
]


@pytest.mark.parametrize(("error", "code", "said"), REFUSALS, ids=range(len(REFUSALS)))
def test_errors_of_the_operating_system(error, code, said):
    known = to_ngramkit_error(error)
    assert (known.exit_code, said in f"{known} {known.hint}") == (code, True)
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
    assert (done.returncode, "may not grow so large" in done.stderr) == (3, True), done.stderr
    tally("refusals of the system", "an error, exit 3")


def close_stdout():
    os.close(1)


def test_a_stdout_that_takes_nothing_is_an_error_of_its_own(folder):
    with Path("/dev/full").open("w") as full:
        done = child("corpora", "--json", stdout=full)
    assert (done.returncode, "stdout cannot be written" in done.stderr) == (1, True), done.stderr
    shut = child("corpora", "--json", preexec_fn=close_stdout)
    assert (shut.returncode, "stdout is closed" in shut.stderr) == (1, True), shut.stderr
    reader, writer = os.pipe()
    os.close(reader)
    piped = child("corpora", "--json", stdout=writer)
    os.close(writer)
    assert (piped.returncode, "error" in piped.stderr) == (1, False), piped.stderr
    tally("a closed or full stdout", "exit 1", 3)


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
    assert (binary.returncode, "stdin is not UTF-8" in binary.stderr) == (3, True), binary.stderr
    tally("a bare environment", "works or an error, exit 3", 2)


def test_a_stdin_that_is_closed_is_an_error_of_its_own(folder):
    shut = child("decode", "--prompt-file", "-", preexec_fn=lambda: os.close(0))
    assert (shut.returncode, "error: stdin is closed" in shut.stderr) == (3, True), shut.stderr
