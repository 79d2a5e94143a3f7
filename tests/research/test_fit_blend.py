"""Fitting blend's weights: the loss is the drafter's own probability, and fitting lowers it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.builders.tokens import tokenize
from ngramkit.corpus.open import open_corpus
from ngramkit.drafters.blend import Blend, load_weights
from ngramkit.evaluate.records import Record, Turn
from research import fit_blend
from research.fit_blend import Places, fit, log_loss, observe

VOCABULARY = 20


@pytest.fixture(scope="module")
def texts():
    """Return sentences of eight words of three tokens: [kept, recorded]."""
    random = np.random.default_rng(0)
    words = random.integers(0, VOCABULARY, (8, 3))
    return [
        [words[random.integers(0, 8, 12)].ravel().astype(np.int32) for _ in range(n)]
        for n in (40, 12)
    ]


@pytest.fixture(scope="module")
def datastore(texts, token_store, tmp_path_factory):
    store = token_store(texts[0], VOCABULARY)
    return build_datastore(store, tmp_path_factory.mktemp("fit") / "datastore")


@pytest.fixture(scope="module")
def records(texts):
    return [Record(str(i), "all", [Turn(t[:6], t[6:])]) for i, t in enumerate(texts[1])]


def one(places, i):
    return Places(*(column[i : i + 1] for column in vars(places).values()))


def test_the_loss_is_what_the_drafter_holds_likely(datastore, texts):
    weights, compared = load_weights(), 0
    for text in texts[1]:
        drafter = Blend([datastore], weights=weights)
        drafter.start(text[:8])
        tree = drafter.draft(64)
        roots = np.flatnonzero(tree.parents == -1)
        p = dict(zip(tree.token_ids[roots].tolist(), tree.scores[roots].tolist(), strict=True))
        record = Record("r", "all", [Turn(text[:8], text[8:9])])
        places = observe(Blend([datastore], weights=weights), [record], 1, seed=0)
        if p.get(int(text[8]), 0) > 0.01:
            compared += 1
            loss = log_loss(weights, one(places, 0))
            # The drafter does not correct what is too rare to matter.
            assert loss == pytest.approx(-np.log(p[int(text[8])]), abs=0.05)
    assert compared > 6


def test_fitting_lowers_the_loss_on_other_text(datastore, records, monkeypatch):
    monkeypatch.setattr(fit_blend, "BATCH", 64)
    drafter = Blend([datastore])
    seen = observe(drafter, records[:8], 200, seed=1)
    held_out = observe(drafter, records[8:], 100, seed=2)
    fitted = fit(seen)
    assert log_loss(fitted, held_out) < log_loss(load_weights(), held_out)
    again = fit(seen)
    for left, right in zip(fitted, again, strict=True):
        np.testing.assert_array_equal(left, right)


def test_the_command_fits_on_whatever_artifact_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "corpus.txt").write_text("the cat sat on the mat and the dog sat on the rug\n" * 9)
    store = tokenize(open_corpus(str(tmp_path / "corpus.txt")), "demo", tmp_path / "tokens")
    datastore = build_datastore(store, tmp_path / "datastore")
    frozen = build_frozen(store, tmp_path / "frozen")
    lines = [{"prompt": "the dog", "output": " sat on the mat and the cat sat on the rug"}] * 6
    (tmp_path / "fit.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr(fit_blend, "BATCH", 8)
    out = tmp_path / "weights.safetensors"
    arguments = ["--template", "none", "--places", "40", "--out", str(out)]
    for artifact in (str(datastore.path), str(frozen.path), "-"):
        arguments += ["--on", "demo", artifact, str(tmp_path / "fit.jsonl")]
    monkeypatch.setattr("sys.argv", ["fit_blend", *arguments])
    fit_blend.main()
    assert "log loss where fitted" in capsys.readouterr().out
    load_weights(out)
