"""Which models can verify a draft as a tree: what counts columns is found out, rounding is not."""

from __future__ import annotations

import logging

import pytest
import torch
from tiny_models import ARCHITECTURES, ROWS_ONLY, tiny_model

from ngramkit.decode.probe import FakeCache, agrees, windows
from ngramkit.decode.verify_rows import BatchVerifier
from ngramkit.decode.verify_tree import TreeVerifier

KINDS = (TreeVerifier, BatchVerifier)
# What none of them reaches by reading: the models' own sizes.
LONG = {
    "mistral": {"sliding_window": 4096, "max_position_embeddings": 8192},
    "gemma2": {"sliding_window": 4096, "max_position_embeddings": 8192},
    "gpt_oss": {"sliding_window": 128},
}


def ways(model):
    return [agrees(model, kind) for kind in KINDS]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_models_that_take_trees_are_known(name, dtype):
    assert ways(tiny_model(name).to(getattr(torch, dtype))) == [True, True]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ROWS_ONLY)
def test_models_that_count_columns_are_found_out(name, dtype):
    assert ways(tiny_model(name).to(getattr(torch, dtype))) == [False, True]


@pytest.mark.parametrize("name", LONG)
def test_windows_too_long_to_read_are_looked_beyond(name):
    model = tiny_model(name, **LONG[name])
    assert windows(model) == [LONG[name]["sliding_window"]]
    assert agrees(model, TreeVerifier)


@pytest.mark.parametrize("scale", [0.02, 0.4])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_long_window_that_counts_columns_is_found_out(scale, dtype):
    """GPT-Neo's own: nothing is wrong within its first 256 columns."""
    sizes = {"window_size": 256, "max_position_embeddings": 2048}
    model = tiny_model("gpt_neo", **sizes, initializer_range=scale).to(getattr(torch, dtype))
    assert windows(model) == [256]
    assert not agrees(model, TreeVerifier)
    within = tiny_model("gpt_neo", window_size=1024, initializer_range=scale)
    assert windows(within) == []  # the context is 512
    assert agrees(within, TreeVerifier)


@pytest.mark.parametrize("heads", [4, 32])
def test_weak_alibi_is_found_out_in_16_bits(heads):
    """Weights as small as before training: little attention to tell by."""
    model = tiny_model("mpt", initializer_range=0.02, d_model=64, n_heads=heads).bfloat16()
    assert not agrees(model, TreeVerifier)


def test_a_window_that_is_not_applied_is_found_out():
    model = tiny_model("mistral", sliding_window=300)
    assert agrees(model, TreeVerifier)
    forward = model.forward

    def without(attention_mask=None, **inputs):
        if attention_mask is not None:
            attention_mask = attention_mask.clone()
            length = attention_mask.shape[-1] - attention_mask.shape[-2]
            attention_mask[..., :length] = 0
        return forward(attention_mask=attention_mask, **inputs)

    model.forward = without
    assert not agrees(model, TreeVerifier)


def test_a_model_that_breaks_is_an_answer_and_can_be_asked_why(caplog):
    caplog.set_level(logging.DEBUG, "ngramkit")
    assert not agrees(tiny_model("bloom"), TreeVerifier)
    assert "TreeVerifier: ValueError" in caplog.text


def test_a_fake_cache_keeps_nothing():
    cache = FakeCache(1, length=50, edge=20)
    new = torch.ones(2, 3, 4, 8)
    for _ in range(2):
        keys, values = cache.update(new, new * 2, 0)
        assert keys.shape == values.shape == (2, 3, 54, 8)
        assert cache.get_seq_length() == 50
        assert torch.equal(keys[:, :, 50:54], new)
        assert torch.equal(values[:, :, 50:54], new * 2)
        assert not keys[:, :, 20:50].any()
        assert values[:, :, :20].abs().mean() > 20
