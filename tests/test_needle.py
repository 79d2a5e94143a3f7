"""The needle test (benchmarks/needle.py): where needles lie, and what the loss of a cache is."""

from __future__ import annotations

import sys

import matplotlib
import numpy as np
import pytest
import torch

from benchmarks.needle import COLORS, docstrings, main, needles, plot, read_with_each
from ngramkit.basics.errors import InputError
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.decode.load import load_model
from ngramkit.decode.specache.options import SpeCache
from ngramkit.drafters.base import DraftTree

HAY = docstrings(12_000)


@pytest.fixture(scope="module")
def model():
    return load_model("demo")


def test_a_needle_lies_at_its_depth_and_the_text_has_its_length():
    tokenizer = load_tokenizer("demo")
    hidden = list(needles(tokenizer, HAY, [256, 512], depths=3, seeds=2))
    assert [(n.length, n.depth, n.seed) for n in hidden[:4]] == [
        (256, 0.0, 0), (256, 0.0, 1), (256, 0.5, 0), (256, 0.5, 1),
    ]  # fmt: skip
    for needle in hidden:
        text = tokenizer.decode(needle.prompt)
        answer = tokenizer.decode(needle.answer).strip()
        at = text.index(f" is {answer}.") / len(text)
        assert len(needle.prompt) + len(needle.answer) == needle.length
        assert answer.isdecimal()
        assert at == pytest.approx(needle.depth, abs=0.3)
        assert text.count(answer) == 1


def test_a_haystack_that_is_too_short_is_refused():
    with pytest.raises(InputError, match="the haystack has"):
        list(needles(load_tokenizer("demo"), "short", [256], 1, 1))


def test_losses_are_those_of_the_model_read_at_once(model):
    ids = np.random.default_rng(0).integers(1, 4000, 60).astype(np.int32)
    with torch.inference_mode():
        logits = model.model(torch.from_numpy(ids).long()[None]).logits[0]
    expected = torch.nn.functional.cross_entropy(
        logits[39:-1].double(), torch.from_numpy(ids[40:]).long(), reduction="none"
    )
    caches = {"full": None, "everything fetched": SpeCache(bits=1, group=8, top_k=100, residual=0)}
    for reading in read_with_each(model.model, ids[:40], ids[40:], caches).values():
        np.testing.assert_allclose(reading.losses, expected.numpy(), atol=1e-3)


def test_exact_is_what_greedy_decoding_writes(model):
    ids = np.random.default_rng(1).integers(1, 4000, 30).astype(np.int32)
    prompt = torch.from_numpy(ids).long()[None]
    options = {"do_sample": False, "max_new_tokens": 8, "eos_token_id": None, "pad_token_id": 0}
    text = model.model.generate(prompt, **options)[0, 30:].numpy()
    assert read_with_each(model.model, ids, text, {"full": None})["full"].exact
    text[5] += 1
    assert not read_with_each(model.model, ids, text, {"full": None})["full"].exact


def test_a_drafter_that_guesses_right_fetches_more_of_the_true_top_k(model):
    """The speculative row then holds the very token that is read next."""

    class Recorded:
        def __init__(self, text):
            self.text, self.at = text.tolist(), 0

        def start(self, prompt):
            self.at = 0

        def draft(self, budget):
            left = self.text[self.at : self.at + 1]
            n = len(left)
            return DraftTree(
                np.array(left, np.int32),
                np.full(n, -1, np.int32),
                np.ones(n, np.float32),
                np.zeros(n, np.uint8),
            )

        def accept(self, tokens, evidence=None):
            self.at += len(tokens)

        def finish(self):
            pass

    ids = np.random.default_rng(3).integers(1, 4000, 120).astype(np.int32)
    common = {"bits": 1, "group": 8, "top_k": 6, "residual": 0, "measure": True}
    readings = read_with_each(
        model.model,
        ids[:90],
        ids[90:],
        {who: SpeCache(speculative=who, **common) for who in ("model", "drafter")},
        lambda: Recorded(ids[90:]),
    )
    drafter, own = (np.mean(readings[who].hits.top_k_found()) for who in ("drafter", "model"))
    assert drafter > own


def test_the_program_compares_caches_and_draws_them(tmp_path, monkeypatch, capsys):
    line = "needle --lengths 96 --depths 2 --kv-group 8 --kv-residual 8 --plot"
    monkeypatch.setattr(sys, "argv", [*line.split(), str(tmp_path / "n.png")])
    main()
    printed = capsys.readouterr().out.splitlines()
    rows = [row for row in printed if row.startswith(("full", "low", "spec"))]
    assert [row.endswith("not lossless") for row in rows] == [False, True, True]
    assert (tmp_path / "n.png").read_bytes().startswith(b"\x89PNG")


def test_the_picture_has_units_and_colours_that_everybody_tells_apart(tmp_path):
    loss = [{"full": 0.1, "low-bit": 9.0}, {"full": 0.2, "low-bit": 0.1}]
    exact = {"full": 1, "low-bit": 0}
    grid = [
        {"length": 100 * n, "depth": 0.5, "loss": of_cell, "exact": exact}
        for n, of_cell in enumerate(loss, 1)
    ]
    plot(grid, tmp_path / "n.svg")
    drawn = (tmp_path / "n.svg").read_text(encoding="utf-8")
    for text in ("length of the text (tokens)", "loss (nats per token)", "50%", "9.0"):
        assert f">{text}<" in drawn
    light = [sum(matplotlib.colormaps[COLORS](share)[:3]) for share in (0.0, 0.5, 1.0)]
    assert light == sorted(light, reverse=True)  # by lightness alone
