"""SpeCache against a naive twin: the same tokens, pairs fetched, codes and bytes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as arrays
from specache_runs import passes, prompt_of
from tiny_models import ARCHITECTURES, tiny_model
from twins import specache as naive

from ngramkit.decode.specache.cache import SpeCacheRun
from ngramkit.decode.specache.options import SpeCache
from ngramkit.decode.specache.quantize import KEYS, VALUES, LowBits, quantize
from ngramkit.decode.specache.verify import SpeCacheVerifier
from ngramkit.drafters.base import DraftTree

UNSERVED = {"falcon", "gptj"}  # attend by functions of their own
MODELS = ["llama", "mistral", "qwen2", "gemma2", "gpt_neox", "phi3"]


def require_same_pairs(ours, twins):
    """The heaviest pairs, up to ties: the same weights, and each pair once."""
    for layer, heads in zip(ours, twins, strict=True):
        for head, (positions, weights) in enumerate(heads):
            mine = [] if layer is None else layer[head]
            assert len(set(mine)) == len(positions)
            heaviest = sorted(weights[list(positions)])
            np.testing.assert_allclose(sorted(weights[mine]), heaviest, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("bits", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_tokens_and_fetched_pairs_are_the_twins(name, bits):
    """At prompt lengths around every border of a group and of the residual."""
    model = tiny_model(name).double()
    for residual, lengths in ((8, (7, 15, 16, 17, 24, 41)), (0, (8, 15)), (5, (12, 13, 20))):
        options = SpeCache(bits=bits, group=8, top_k=5, residual=residual)
        for length in lengths:
            prompt = prompt_of(length)
            right, wanted = naive.decode(model, prompt, options, 10)
            tokens, asked = passes(model, prompt, options, 10)
            assert tokens == right
            for ours, twins in zip(asked, wanted[1:], strict=True):
                require_same_pairs(ours, twins)


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in UNSERVED])
@pytest.mark.parametrize(
    "options",
    [
        SpeCache(bits=1, group=8, top_k=1000, residual=0),
        SpeCache(bits=2, group=8, top_k=3, residual=1000),
    ],
    ids=["every pair fetched", "nothing quantised"],
)
def test_with_every_pair_in_full_precision_it_is_the_full_cache(name, options):
    model = tiny_model(name)
    prompt = prompt_of(30)
    ids = torch.from_numpy(prompt).long()[None]
    right = model.generate(
        ids, max_new_tokens=20, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    tokens, _ = passes(model, prompt, options, 20)
    assert tokens == right[0, 30:].tolist()


def test_what_is_mixed_of_fetched_pairs_is_bit_for_bit_the_full_cache():
    model = tiny_model("llama")
    keys = {}
    for top_k, residual in ((1000, 0), (3, 1000)):
        options = SpeCache(bits=1, group=8, top_k=top_k, residual=residual)
        verifier = SpeCacheVerifier(model, options, room=64)
        with torch.inference_mode():
            verifier.prefill(prompt_of(30))
            for token in (5, 6, 7, 8):
                verifier.verify(token, DraftTree.empty())
            rows = torch.zeros(1, 2, 1, 8)
            keys[top_k] = [layer.update(rows, rows)[0].clone() for layer in verifier.run.low_layers]
        verifier.close()
    for fetched, kept in zip(keys[1000], keys[3], strict=True):
        assert torch.equal(fetched, kept)


numbers = arrays.arrays(
    np.float32, st.tuples(st.just(2), st.sampled_from([8, 16, 32]), st.sampled_from([16, 32])),
    elements=st.floats(-1000, 1000, width=32),
)  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(numbers, st.sampled_from([1, 2]), st.sampled_from([8, 16]), st.sampled_from([KEYS, VALUES]))
def test_codes_scales_and_packing_are_the_twins(pairs, bits, group, kind):
    pairs = pairs[:, : pairs.shape[1] // group * group]
    if not pairs.shape[1]:
        return
    low = LowBits(kind, bits, group, room=group)  # grows
    for begin in range(0, pairs.shape[1], group):
        low.append(torch.from_numpy(pairs[:, begin : begin + group]))
    out = torch.empty(pairs.shape)
    low.read_into(out)
    packed = quantize(torch.from_numpy(pairs), kind, bits, group).codes.numpy()
    per_byte = 8 // bits
    for head in range(2):
        read, codes = naive.low_bit(pairs[head], kind, bits, group)
        np.testing.assert_allclose(out[head].numpy(), read, rtol=1e-6, atol=1e-6)
        for channel in range(pairs.shape[2]):
            byte = packed[head, :, channel // per_byte]
            code = byte >> (channel % per_byte * bits) & (2**bits - 1)
            assert np.array_equal(code, codes[:, channel])


@pytest.mark.parametrize(
    ("bits", "group", "share"),
    [(2, 32, 0.1875), (2, 64, 0.15625), (1, 32, 0.125), (1, 64, 0.09375)],
)
def test_the_bytes_of_8192_tokens_are_those_of_the_paper(bits, group, share):
    options = SpeCache(bits=bits, group=group, top_k=64, residual=64)
    run = SpeCacheRun(options, 2, room=8192 + 64)
    keys = torch.randn(1, 3, 8192 + 64, 64).bfloat16()
    for layer in run.low_layers:
        layer.update(keys, keys)
    full = 2 * 2 * 3 * 8192 * 64 * 2  # layers, keys and values, heads, tokens, channels, bytes
    held = run.bytes
    assert held["low_bit"] == pytest.approx(share * full, rel=0.05)
    assert held["residual"] == full * 64 / 8192
    assert held["store"] == full


def test_a_group_is_quantised_once_and_never_again():
    options = SpeCache(bits=2, group=8, top_k=0, residual=4)
    layer = SpeCacheRun(options, 1, room=16).low_layers[0]
    layer.update(*[torch.randn(1, 1, 20, 8)] * 2)
    first = layer.update(*[torch.randn(1, 1, 1, 8)] * 2)[0][0, :, :16].clone()
    for _ in range(40):
        layer.update(*[torch.randn(1, 1, 1, 8)] * 2)
        layer.keep(1)
    assert torch.equal(layer.update(*[torch.randn(1, 1, 1, 8)] * 2)[0][0, :, :16], first)
    assert layer.length == 60
    assert layer.quantised == 56
