"""Places that refuse: a file system mounted read-only, a cache that is somebody else's."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess

import pytest
from test_disk_full import NGRAMKIT, UNSHARE, can_mount

from ngramkit import cache
from ngramkit.formats import artifact

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
    assert "cache folder cannot be used" in (tmp_path / "err3").read_text()
    tally("a disk mounted read-only", "an error, exit 3, or done without a cache", 3)


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
        artifact.remember("0" * 64, {})
    assert artifact.recall("0" * 64) is None
    if folder.is_dir():
        assert not list(folder.iterdir())
    tally("a cache that is not the user's alone", "not used")
