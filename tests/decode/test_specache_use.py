"""SpeCache from decode, generate and a conversation; what is refused, and how it is said."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from specache_runs import passes, prompt_of, written
from tiny_models import tiny_model

import ngramkit
from ngramkit.decode.specache.options import SpeCache
from ngramkit.errors import InputError, UsageError


def test_the_model_attends_as_before_when_it_is_over():
    model = tiny_model("llama")
    before = model.config._attn_implementation
    written(model, prompt_of(20), SpeCache(group=8))
    assert model.config._attn_implementation == before


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"bits": 3}, "bits must be 1 or 2, is 3"),
        ({"group": 12}, "group must be a multiple of 8, is 12"),
        ({"top_k": -1}, "top_k must be 0 or more, is -1"),
        ({"residual": -1}, "residual must be 0 or more, is -1"),
        ({"speculative": "luck"}, "speculative must be model or drafter, is 'luck'"),
    ],
)
def test_numbers_that_make_no_sense_are_named(wrong, message):
    with pytest.raises(UsageError, match=message):
        SpeCache(**wrong)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("llama", SpeCache(group=16), "group 16 does not divide 8, the channels"),
        ("llama", SpeCache(group=8, top_k=(4, 4, 4)), "top_k names 3 layers, the model has 2"),
        ("llama", SpeCache(group=8, speculative="drafter"), "no drafter"),
        ("mpt", SpeCache(group=8), "does not attend through transformers"),
        ("gptj", SpeCache(group=8), "does not attend through transformers"),
        ("deepseek_v3", SpeCache(group=8, residual=0, measure=True), "compressed"),
        ("mamba", SpeCache(group=8), "mamba"),
    ],
)
def test_what_does_not_fit_a_model_is_said_before_anything_is_written(name, options, message):
    model = tiny_model(name)
    with pytest.raises((UsageError, InputError), match=message):
        written(model, prompt_of(20), options)
    assert model.config._attn_implementation != "specache"


def test_generate_takes_a_specache_row_by_row():
    model = tiny_model("llama")
    rows = torch.from_numpy(np.stack([prompt_of(24, 1), prompt_of(24, 2)])).long()
    cache = SpeCache(bits=2, group=8, top_k=3, residual=8)
    options = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    found = ngramkit.generate(model, rows, cache=cache, **options)[:, 24:].tolist()
    assert found == [passes(model, prompt_of(24, seed), cache, 8)[0] for seed in (1, 2)]


def test_a_drafter_beside_a_specache_is_refused_where_nothing_is_asked_of_it():
    model = tiny_model("llama")
    with pytest.raises(UsageError, match="drafts are not verified with a SpeCache"):
        ngramkit.generate(model, [1, 2, 3], drafter="context", cache=SpeCache(group=8))


def test_decode_says_that_it_is_not_lossless_and_what_was_held(ngramkit_cli):
    line = ["decode", "--model", "demo", "--prompt", "ab", "--max-new-tokens", "4", "--json"]
    small = ["--kv-group", "8", "--kv-residual", "0", "--kv-top-k", "2", "--kv-bits", "1"]
    guessed = ["--speculative-token", "drafter", "--drafter", "context"]
    done, drafted, *wrong = ngramkit_cli(
        [*line, "--cache", "specache", *small],
        [*line, "--cache", "specache", *small, *guessed],
        [*line, "--cache", "specache", "--drafter", "context"],
        [*line, "--cache", "specache", "--kv-bits", "2,1"],
        [*line, "--cache", "specache", "--kv-group", "48"],
        [*line, "--cache", "specache", "--compare"],
        [*line, "--cache", "all"],
    )  # fmt: skip
    assert done.code == drafted.code == 0, done.err + drafted.err
    assert done.json["lossless"] is False
    assert done.json["cache"] == "specache"
    assert done.json["cache_bytes"]["residual"] > 0
    assert "not lossless" in done.err
    assert [result.code for result in wrong] == [2] * 5
    assert "--speculative-token" in wrong[0].err
    assert all(len(result.err.splitlines()) <= 4 for result in wrong)


def test_a_conversation_does_not_pass_over_the_cache_it_was_asked_for():
    with pytest.raises(UsageError, match="a conversation keeps its full cache"):
        ngramkit.Conversation("demo", template="chatml", cache=SpeCache(group=8))
