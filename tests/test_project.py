"""What the project says of itself: one version, dependencies pinned with their hashes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import ngramkit

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ELSEWHERE = {"colorama", "httpx2-jsfetch"}  # needed on other systems only


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [re.match(r"([\w.-]+)==(\S+)", line) for line in lines]
    return {plain(match[1]): match[2] for match in found if match}


def test_the_version_is_written_once():
    assert "version" not in PROJECT["project"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "ngramkit.__version__"}
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert newest[1] == ngramkit.__version__


def test_every_dependency_but_torch_is_pinned_with_its_hashes():
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    blocks = [block for block in re.split(r"\n(?=\S)", text) if not block.startswith("#")]
    assert all("--hash=sha256:" in block for block in blocks)
    hashed, pinned = pins(ROOT / "requirements.txt"), pins(ROOT / "constraints.txt")
    assert len(hashed) == len(blocks)
    declared = [
        *PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"]["dev"],
    ]  # fmt: skip
    names = {plain(re.match(r"[\w.-]+", line)[0]) for line in declared}
    assert names - set(hashed) == {"torch"}, "run: make requirements"
    assert {n: v for n, v in hashed.items() if n not in ELSEWHERE}.items() <= pinned.items()
