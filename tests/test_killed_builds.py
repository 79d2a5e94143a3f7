"""A build killed at any moment leaves nothing half-written; run again, it gives the same bytes."""

from __future__ import annotations

import hashlib
import json
import random
import time
from pathlib import Path

import pytest
from forks import forks
from killed_build import build_all

from ngramkit.formats.opening import open_artifact_folder, verify_artifact

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "return", "self", "None", "\n"]


def digests(out: Path) -> dict[str, str]:
    return {
        path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }


def run(text: Path, out: Path, kill_after: float | None = None) -> float:
    """Seconds that the build took in a process of its own; SIGKILL after `kill_after` of them."""
    process = forks().Process(target=build_all, args=(text, out))
    started = time.perf_counter()
    process.start()
    process.join(kill_after)
    if process.is_alive():
        process.kill()
    process.join()
    if kill_after is None:
        assert process.exitcode == 0
    return time.perf_counter() - started


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    """One document a line, about 40,000 tokens."""
    chosen = random.Random(0)
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    with path.open("w") as file:
        for _ in range(200):
            words = " ".join(chosen.choices(WORDS, k=chosen.randrange(1, 150)))
            file.write(json.dumps({"text": words}) + "\n")
    return path


@pytest.mark.attack
def test_ten_killed_builds_resume_to_the_same_bytes(tmp_path, text):
    seconds = run(text, tmp_path / "undisturbed")
    expected = digests(tmp_path / "undisturbed")
    moments = random.Random(1)
    for i in range(10):
        out = tmp_path / f"killed-{i}"
        run(text, out, kill_after=moments.uniform(0, seconds))
        for finished in (p for p in out.glob("*") if p.is_dir() and p.suffix != ".partial"):
            list(verify_artifact(finished))
            open_artifact_folder(finished)
        run(text, out)
        assert digests(out) == expected


def test_a_build_killed_again_and_again_still_ends(tmp_path, text):
    seconds = run(text, tmp_path / "undisturbed")
    out = tmp_path / "killed"
    for i in range(1, 4):
        run(text, out, kill_after=seconds * i / 4)
    run(text, out)
    assert digests(out) == digests(tmp_path / "undisturbed")
