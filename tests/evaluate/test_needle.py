"""Needles are where they are said to be; caches are judged by the loss of what they remember."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.decode.load import load_model
from ngramkit.decode.specache.options import SpeCache, cache_of
from ngramkit.drafters.base import DraftTree
from ngramkit.errors import InputError, UsageError
from ngramkit.evaluate.forced import forced, forced_each
from ngramkit.evaluate.needle import docstrings, needles, search_needles
from ngramkit.evaluate.needle_plot import plot_needles

HAY = docstrings(12_000)
OPTIONS = SpeCache(bits=2, group=8, top_k=4, residual=8, measure=True)


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


def test_the_same_seed_hides_the_same_needle_and_another_another():
    tokenizer = load_tokenizer("demo")
    first, again = (list(needles(tokenizer, HAY, [256], 1, 2)) for _ in range(2))
    assert np.array_equal(first[0].prompt, again[0].prompt)
    assert not np.array_equal(first[0].answer, first[1].answer)


def test_a_haystack_that_is_too_short_is_refused():
    with pytest.raises(InputError, match="the haystack has"):
        list(needles(load_tokenizer("demo"), "short", [256], 1, 1))


def test_losses_are_those_of_the_model_read_at_once(model):
    ids = np.random.default_rng(0).integers(1, 4000, 60).astype(np.int32)
    with torch.inference_mode():
        logits = model.model(torch.from_numpy(ids).long()[None]).logits[0]
    right = torch.nn.functional.cross_entropy(
        logits[39:-1].double(), torch.from_numpy(ids[40:]).long(), reduction="none"
    )
    for cache in (None, SpeCache(bits=1, group=8, top_k=100, residual=0)):
        got = forced(model.model, ids[:40], ids[40:], cache)
        np.testing.assert_allclose(got.losses, right.numpy(), atol=1e-3)


def test_several_caches_after_one_reading_of_the_prompt_are_as_each_alone(model):
    ids = np.random.default_rng(2).integers(1, 4000, 90).astype(np.int32)
    caches = {
        "first": None,
        "specache": SpeCache(bits=2, group=8, top_k=5, residual=8, measure=True),
        "low": SpeCache(bits=1, group=8, top_k=0, residual=0),
        "again": None,
    }
    found = forced_each(model.model, ids[:70], ids[70:], caches)
    for name, cache in caches.items():
        alone = forced(model.model, ids[:70], ids[70:], cache)
        np.testing.assert_allclose(found[name].losses, alone.losses, atol=1e-4)
        assert found[name].exact == alone.exact
        assert found[name].bytes == alone.bytes
    assert (
        found["specache"].hits == forced(model.model, ids[:70], ids[70:], caches["specache"]).hits
    )


def test_a_drafter_that_guesses_right_asks_for_what_the_text_will_want(model):
    """The speculative row then holds the very token that is read next: most of its top-k is hit."""

    class Told:
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
    found = forced_each(
        model.model,
        ids[:90],
        ids[90:],
        {who: SpeCache(speculative=who, **common) for who in ("model", "drafter")},
        lambda: Told(ids[90:]),
    )
    told, guessed = (np.mean(found[who].hits.top_k_found()) for who in ("drafter", "model"))
    assert told > guessed


def test_exact_is_what_greedy_decoding_writes(model):
    ids = np.random.default_rng(1).integers(1, 4000, 30).astype(np.int32)
    prompt = torch.from_numpy(ids).long()[None]
    options = {"do_sample": False, "max_new_tokens": 8, "eos_token_id": None, "pad_token_id": 0}
    text = model.model.generate(prompt, **options)[0, 30:].numpy()
    assert forced(model.model, ids, text, None).exact
    text[5] += 1
    assert not forced(model.model, ids, text, None).exact


def test_every_needle_is_searched_with_every_cache_and_drawn(model, tmp_path):
    hidden = list(needles(model.tokenizer, HAY, [128, 192], depths=2, seeds=1))
    found = list(search_needles(model.model, hidden, ["full", "low-bit", "specache"], OPTIONS))
    assert [r.cache for r in found[:3]] == ["full", "low-bit", "specache"]
    assert len(found) == 12
    special = [r for r in found if r.cache == "specache"]
    assert all(0 < share <= 1 for r in special for share in r.mass_held)
    assert all(r.mass_held is None for r in found if r.cache != "specache")
    assert all(r.bytes["low_bit"] < r.bytes["store"] for r in special)
    assert found[0].to_dict()["cache"] == "full"
    plot_needles(found, tmp_path / "needles.png")
    assert (tmp_path / "needles.png").stat().st_size > 10_000


def test_a_cache_that_is_none_is_refused():
    with pytest.raises(UsageError, match="there is no cache called 'half'"):
        cache_of("half", OPTIONS)


def test_the_command_tests_needles_and_says_what_is_not_lossless(ngramkit_cli):
    line = "bench --task needle --lengths 96 --depths 1 --kv-group 8 --kv-residual 8 --model demo"
    done, wrong, long, bits, group = ngramkit_cli(
        [*line.split(), "--plot", "n.png", "--json"],
        ["bench", "--task", "haystack", "--model", "demo"],
        ["bench", "--task", "needle", "--lengths", "1M", "--model", "demo"],
        ["bench", "--task", "needle", "--kv-bits", "3", "--model", "demo"],
        ["bench", "--task", "needle", "--kv-group", "7", "--model", "demo"],
    )
    assert done.code == 0, done.err
    said = [row for row in done.err.splitlines() if row.startswith(("full", "low-bit", "specache"))]
    assert [row.endswith("not lossless") for row in said] == [False, True, True]
    found = done.json["caches"]
    assert [row["lossless"] for row in found] == [True, False, False]
    assert wrong.code == 2
    assert "questions, needle" in wrong.err
    assert bits.code == group.code == 2
    assert "error: --kv-bits must be 1 or 2, is 3" in bits.err
    assert "error: --kv-group must be a multiple of 8, is 7" in group.err
    assert long.code == 2
    assert "--lengths '1m' is no number of tokens" in long.err
