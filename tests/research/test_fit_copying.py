"""Fitting the offers of copying: the likeliest curve, and what a log of calls offers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from research import fit_copying


def test_the_curve_that_made_the_offers_is_found():
    random = np.random.default_rng(0)
    p = random.uniform(0.02, 0.98, 40_000)
    chance = 1 / (1 + np.exp(-(1.5 + 0.6 * np.log(p / (1 - p)))))
    offers = np.stack([np.zeros_like(p), p, random.random(len(p)) < chance], 1)
    halves = [offers[:20_000], offers[20_000:]]
    assert fit_copying.fit(halves) == pytest.approx([1.5, 0.6], abs=0.1)
    assert fit_copying.fit([offers[:0]]) == pytest.approx([0, 1])  # p itself


def test_copies_of_a_log_are_trusted_more_than_all_else_says(tmp_path, monkeypatch, capsys):
    line = "the cat sat on the mat and the dog lay under a tree by the old stone house"
    texts = [" ".join(np.random.default_rng(i).permutation(line.split())) for i in range(3)] * 4
    lines = [json.dumps({"prompt": text, "output": f" {text}"}) + "\n" for text in texts]
    (tmp_path / "calls.jsonl").write_text("".join(lines))
    monkeypatch.setattr(
        "sys.argv", ["fit_copying", "--model", "demo", str(tmp_path / "calls.jsonl")]
    )
    fit_copying.main()
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 2 * fit_copying.FITTED_TRUST.shape[1]
    trust = {tuple(row.split()[:2]): float(row.split("(")[1].split(",")[0]) for row in rows}
    assert trust["0", "3"] > 0.5  # a match of eight tokens in the prompt
    assert trust["1", "3"] > 0.5  # and in the outputs before
