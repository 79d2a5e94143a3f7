"""`ngramkit calibrate`, and what `decode --budget` makes of it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ngramkit.decode import calibrate
from ngramkit_cli.main import app

DECODE = ["decode", "--prompt", "def main(", "--max-new-tokens", "8", "--drafter", "none"]


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("NGRAMKIT_MODEL", raising=False)
    monkeypatch.setattr(calibrate, "MAX_SPREAD", 1e9)  # whatever else this machine does
    few = partial(calibrate.measure_best_rounds, sizes=(0, 4, 16), contexts=(32, 128))
    monkeypatch.setattr(calibrate, "measure_best_rounds", few)
    return lambda *options: CliRunner().invoke(app, [*map(str, options)])


def test_a_calibrated_model_is_decoded_with_auto(run):
    before = run(*DECODE, "--json")
    assert "budget: auto\n" in before.stderr
    done = run("calibrate", "--model", "demo", "--seconds", 0, "--json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout.splitlines()[-1])
    assert set(facts) == {
        "command",
        "artifact",
        "seconds",
        "profile",
        "device",
        "noise",
        "passes",
    }
    assert set(facts["passes"][0]) == {"tree_size", "context_length", "seconds", "spread"}
    assert Path(facts["profile"]).exists()
    assert Path(facts["profile"]).with_suffix(".png").exists()
    after = run(*DECODE, "--json")
    assert f"budget: auto, from {facts['profile']}" in after.stderr
    tokens = [json.loads(result.stdout.splitlines()[-1])["token_ids"] for result in (before, after)]
    assert tokens[0] == tokens[1]
    fixed = run(*DECODE, "--budget", 4)
    assert "budget: auto" not in fixed.stderr
    rows = run(*DECODE, "--verify", "batch")
    assert (rows.exit_code, "budget: auto" in rows.stderr) == (0, True)


def test_bench_takes_what_pays_for_its_time(run):
    bench = ["bench", "--drafter", "context", "--limit", 1, "--max-new-tokens", 8]
    done = run(*bench, "--json")
    assert done.exit_code == 0, done.output
    assert "budget: auto\n" in done.stderr
    told = json.loads(Path("bench/python-stdlib-demo/results.json").read_text())
    assert told["plan"]["budget"] == "auto"
