"""Places that refuse: a file system mounted read-only, a cache that is somebody else's."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import command_lines
import numpy as np
import pytest
from test_disk_full import NGRAMKIT, UNSHARE, can_mount

from ngramkit.basics import cache
from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.builders.tokens import tokenize
from ngramkit.corpus.open import open_corpus
from ngramkit.formats import proofs
from ngramkit.formats.history import History

from . import tally

SCRIPT = f"""
mount -t tmpfs -o size=8m none disk || exit 99
mount -o remount,ro none disk || exit 98
{NGRAMKIT} tokenize --corpus a.txt --out disk/x --json > out 2> err; echo $? > rc
XDG_CACHE_HOME=$PWD/disk {NGRAMKIT} tokenize --corpus a.txt --out t > out2 2> err2; echo $? > rc2
XDG_CACHE_HOME=$PWD/disk {NGRAMKIT} inspect t > out3 2> err3; echo $? > rc3
"""


@pytest.mark.skipif(not can_mount(), reason="needs user namespaces, to mount a disk")
def test_a_read_only_disk(tmp_path):
    (tmp_path / "a.txt").write_text("some text, and some more")
    (tmp_path / "disk").mkdir()
    subprocess.run([*UNSHARE, SCRIPT], cwd=tmp_path, check=True)
    said = (tmp_path / "err").read_text()
    assert (tmp_path / "rc").read_text().strip() == "3", said
    assert "is on a read-only file system" in said
    assert "this is a bug" not in said
    for number in "23":  # a cache that cannot be written stops nothing
        assert (tmp_path / f"rc{number}").read_text().strip() == "0"
        assert "Traceback" not in (tmp_path / f"err{number}").read_text()
    assert "cannot use the cache folder" in (tmp_path / "err3").read_text()
    tally("a disk mounted read-only", "an error, exit 3, or done without a cache", 3)


MODEL = Path(str(files("ngramkit") / "demo" / "model"))
DECODE = "decode --model demo --prompt x --max-new-tokens 4"
# What is done with artifacts, a history and a model of a disk that cannot be written: its exit code
# and the command. Nothing needs to be written beside what is read.
READ_ONLY = [
    (0, "inspect disk/table"),
    (0, "inspect disk/store --query def"),
    (0, "verify disk/store"),
    (0, "verify disk/history"),
    (0, f"{DECODE} --drafter rest --datastore disk/store"),
    (0, f"{DECODE} --drafter cacheback --frozen-table disk/table"),
    (3, f"{DECODE} --drafter ssd --history disk/history"),
    (0, "decode --model ./disk/model --prompt x --max-new-tokens 4 --drafter context"),
    (0, "export disk/table --to transformers --out exported"),
    (0, "export disk/table --to llama.cpp --out table.bin"),
    (0, "merge disk/table disk/other --out merged"),
    (0, "build-datastore --tokens disk/tokens --out built"),
    (0, "tokenize --corpus disk/a.txt --model ./disk/model --out tokenized"),
    (0, "history merge disk/history disk/again --out both"),
    (3, "history trim disk/history --tokens 1"),
    (3, "export disk/table --to llama.cpp --out disk/table.bin"),
    (3, "build-datastore --tokens disk/tokens --out disk/built"),
    (3, "merge disk/table disk/other --out disk/merged"),
    (0, "build-frozen --tokens disk/tokens --out disk/table --force"),  # it is up to date
]
MOUNTED = f"""
mount -t tmpfs -o size=64m none disk || exit 99
cp -r table other tokens store history a.txt disk; cp -r history disk/again
cp -r {MODEL} disk/model
mount -o remount,ro none disk || exit 98
{sys.executable} {command_lines.__file__} < asked > answers
"""


@pytest.mark.skipif(not can_mount(), reason="needs user namespaces, to mount a disk")
def test_artifacts_of_a_read_only_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("def name(self): return self.value")
    Path("b.txt").write_text("def other(it): return it.other")
    Path("disk").mkdir()
    store = tokenize(open_corpus("a.txt"), "demo", "tokens")
    build_datastore(store, "store")
    build_frozen(store, "table")
    build_frozen(tokenize(open_corpus("b.txt"), "demo", "others"), "other")
    History.at("history", store.tokenizer).append(np.arange(9, dtype=np.int32), 3)
    Path("asked").write_text(json.dumps([line.split() for _, line in READ_ONLY]))
    subprocess.run([*UNSHARE, MOUNTED], check=True)
    answers = json.loads(Path("answers").read_text())
    for (code, line), answer in zip(READ_ONLY, answers, strict=True):
        assert answer["code"] == code, (line, answer)
        assert code == 0 or not answer["out"], (line, answer)  # nothing is lost
        assert (code == 0) == ("is on a read-only file system" not in answer["err"]), line
        outcome = "done" if code == 0 else "an error, exit 3"
        tally("artifacts of a disk mounted read-only", outcome)


@pytest.mark.parametrize("how", ["another owner", "others may write", "a file", "a link"])
def test_a_cache_that_is_not_this_users_alone(tmp_path, monkeypatch, caplog, how):
    """Its proofs are not used, nothing is written there, and one warning says so."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "ngramkit" / "proofs"
    folder.parent.mkdir()
    if how == "a file":
        folder.write_text("")
    elif how == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.mkdir(mode=0o700)
        if how == "others may write":
            folder.chmod(0o777)
        elif os.geteuid() == 0:
            shutil.chown(folder, 65534)
        else:
            pytest.skip("only root can make a folder another user's")
    assert cache.private_folder("proofs") is None
    with caplog.at_level(logging.WARNING, "ngramkit"):
        proofs.write_proof("0" * 64, {})
    assert not proofs.is_proven("0" * 64)
    if folder.is_dir():
        assert not list(folder.iterdir())
    tally("a cache that is not the user's alone", "not used")
