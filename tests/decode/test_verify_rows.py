"""Drafts verified as rows: the same tokens as in a tree, for models that take trees and others."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from lossless import references
from scripted import NoisyOracle, choice_of
from tiny_models import VOCABULARY, tiny_model

from ngramkit.basics.errors import InputError
from ngramkit.decode.loop import decode
from ngramkit.decode.request import Request
from ngramkit.decode.sampling import Sampling
from ngramkit.decode.verifiers import VERIFIERS, choose_verify_mode, open_verifier

ROWS = 20


def run(model, reference, seed, mode, **options):
    drafter = NoisyOracle(reference.answer, VOCABULARY, seed)
    request = Request(reference.prompt, 12, (1, 4, 24)[seed % 3], eos=frozenset({0}), **options)
    # Little room, so that the cache has to grow on the way.
    verifier = open_verifier(model, choose_verify_mode(model, mode), room=len(reference.prompt) + 2)
    return decode(verifier, drafter, request)


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "gpt2", "bloom"])
def test_greedy_text_is_the_models_own(name, tokenizer):
    model = tiny_model(name)
    steps = []
    for seed, reference in enumerate(references(model, tokenizer, count=ROWS)):
        done = run(model, reference, seed, "batch")
        np.testing.assert_array_equal(done.token_ids, reference.answer)
        steps.append(done.tokens_per_step)
    assert np.mean(steps) > 2


def test_rows_and_trees_accept_the_same(tokenizer):
    model = tiny_model("qwen2")
    for seed, reference in enumerate(references(model, tokenizer, count=ROWS)):
        rows, tree = (run(model, reference, seed, mode) for mode in ("batch", "tree"))
        assert rows.token_ids.tolist() == tree.token_ids.tolist()
        assert rows.accepted_per_pass == tree.accepted_per_pass


def test_a_seed_gives_the_same_sampled_text(tokenizer):
    model = tiny_model("llama")
    reference = references(model, tokenizer, count=1)[0]
    for seed in range(8):
        sampling = Sampling(temperature=0.8, top_k=3, seed=seed)
        rows, tree = (
            run(model, reference, seed, mode, choice=choice_of(sampling))
            for mode in ("batch", "tree")
        )
        assert rows.token_ids.tolist() == tree.token_ids.tolist()


def test_a_model_that_takes_trees_is_given_trees():
    model = tiny_model("llama")
    assert choose_verify_mode(model) == "tree"
    assert choose_verify_mode(model, "batch") == "batch"


def test_a_model_that_takes_no_mask_is_given_rows_and_that_is_said(caplog):
    model = tiny_model("bloom")
    assert choose_verify_mode(model, "tree") == "batch"
    assert "bloom cannot verify a draft as a tree" in caplog.text
    assert isinstance(open_verifier(model, choose_verify_mode(model), room=8), VERIFIERS["batch"])


def test_a_model_without_attention_is_refused():
    with pytest.raises(InputError, match="cannot draft for mamba: "):
        choose_verify_mode(tiny_model("mamba"))


def test_out_of_memory_is_not_taken_for_an_answer():
    model = tiny_model("llama")

    def forward(*args, **kwargs):
        raise torch.OutOfMemoryError("out of memory")

    model.forward = forward
    with pytest.raises(torch.OutOfMemoryError):
        choose_verify_mode(model)
