"""A full disk ends a build with one clear line; with more room the same command goes on."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys

import pytest

UNSHARE = ["unshare", "--user", "--map-root-user", "--mount", "--", "sh", "-c"]
NGRAMKIT = f"{sys.executable} -c 'from ngramkit_cli.main import run; run()'"
SCRIPT = """
mount -t tmpfs -o size={small} none disk || exit 99
{build} > full.out 2> full.err; echo $? > full.rc
ls disk > left
mount -o remount,size=64m none disk
{build} > again.out 2> again.err; echo $? > again.rc
cp -r disk/store again
"""


def can_mount() -> bool:
    probe = [*UNSHARE, "mount -t tmpfs none /mnt"]
    return (
        bool(shutil.which("unshare"))
        and subprocess.run(probe, capture_output=True, check=False).returncode == 0
    )


@pytest.mark.attack
@pytest.mark.skipif(not can_mount(), reason="needs user namespaces, to mount a small disk")
def test_a_full_disk_says_so_and_a_second_run_finishes(tmp_path):
    chosen = random.Random(0)
    words = " ".join(f"name{chosen.randrange(9999)}" for _ in range(100_000))
    (tmp_path / "corpus.txt").write_text(words)
    (tmp_path / "disk").mkdir()
    build = f"{NGRAMKIT} tokenize --corpus corpus.txt --out"
    script = SCRIPT.format(small="128k", build=f"{build} disk/store")
    done = subprocess.run([*UNSHARE, script], cwd=tmp_path, check=False)
    assert done.returncode == 0

    said = (tmp_path / "full.err").read_text()
    assert (tmp_path / "full.rc").read_text().strip() == "3", said
    assert "no space left on the disk" in said
    assert "Traceback" not in said
    assert "store\n" not in (tmp_path / "left").read_text()

    assert (tmp_path / "again.rc").read_text().strip() == "0"
    subprocess.run(["sh", "-c", f"{build} undisturbed"], cwd=tmp_path, check=True)
    for path in (tmp_path / "undisturbed").iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()
