"""Probes: models that count columns are recognised, rounding is not; each is probed once."""

from __future__ import annotations

import gc
import logging
import threading

import pytest
import torch
from scripted import NoisyOracle
from tiny_models import ARCHITECTURES, ROWS_ONLY, tiny_model
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

import ngramkit
from ngramkit.decode.probe import (
    PROBE_CACHE,
    FakeCache,
    agrees_with_generate,
    attention_windows,
    is_verifier_exact,
)
from ngramkit.decode.verifiers import choose_verify_mode
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
    return [agrees_with_generate(model, kind) for kind in KINDS]


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
    assert attention_windows(model) == [LONG[name]["sliding_window"]]
    assert agrees_with_generate(model, TreeVerifier)


@pytest.mark.parametrize("scale", [0.02, 0.4])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_long_window_that_counts_columns_is_found_out(scale, dtype):
    """GPT-Neo's own: nothing is wrong within its first 256 columns."""
    sizes = {"window_size": 256, "max_position_embeddings": 2048}
    model = tiny_model("gpt_neo", **sizes, initializer_range=scale).to(getattr(torch, dtype))
    assert attention_windows(model) == [256]
    assert not agrees_with_generate(model, TreeVerifier)
    within = tiny_model("gpt_neo", window_size=1024, initializer_range=scale)
    assert attention_windows(within) == []  # the context is 512
    assert agrees_with_generate(within, TreeVerifier)


@pytest.mark.parametrize("heads", [4, 32])
def test_weak_alibi_is_found_out_in_16_bits(heads):
    """Weights as small as before training: little attention to tell by."""
    model = tiny_model("mpt", initializer_range=0.02, d_model=64, n_heads=heads).bfloat16()
    assert not agrees_with_generate(model, TreeVerifier)


def test_a_window_that_is_not_applied_is_found_out():
    model = tiny_model("mistral", sliding_window=300)
    assert agrees_with_generate(model, TreeVerifier)
    forward = model.forward

    def without(attention_mask=None, **inputs):
        if attention_mask is not None:
            attention_mask = attention_mask.clone()
            length = attention_mask.shape[-1] - attention_mask.shape[-2]
            attention_mask[..., :length] = 0
        return forward(attention_mask=attention_mask, **inputs)

    model.forward = without
    assert not agrees_with_generate(model, TreeVerifier)


def test_a_model_that_breaks_is_an_answer_and_can_be_asked_why(caplog):
    caplog.set_level(logging.DEBUG, "ngramkit")
    assert not agrees_with_generate(tiny_model("bloom"), TreeVerifier)
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


PROMPT = torch.tensor([[5, 17, 3, 44, 9, 17, 3]])
GREEDY = {"do_sample": False}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The folder that answers are remembered in, empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "ngramkit" / PROBE_CACHE.name


@pytest.fixture
def checkpoint(tmp_path):
    """A function that loads the same model anew, as another process would."""
    torch.manual_seed(0)
    model = tiny_model("llama", vocab_size=60, eos_token_id=None, bos_token_id=None)
    model.save_pretrained(tmp_path / "model")

    def load(**options):
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM.from_pretrained(tmp_path / "model", **options).eval()

    return load


def counted(model):
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    return calls


def probes(model):
    """Whether the model has to run, to know that it takes trees."""
    calls = counted(model)
    assert is_verifier_exact(model, TreeVerifier)
    return bool(calls)


def drafter(model, tokens):
    text = model.generate(PROMPT, max_new_tokens=tokens, **GREEDY)[0, PROMPT.shape[1] :]
    return NoisyOracle(text.tolist(), 60, 0)


def test_another_process_does_not_probe_again(checkpoint, cache, caplog):
    caplog.set_level(logging.INFO, "ngramkit")
    texts, spent = [], []
    for _ in range(2):
        model = checkpoint()
        oracle, calls = drafter(model, 40), counted(model)
        call = {"drafter": oracle, "budget": 6, "max_new_tokens": 40}
        texts.append(ngramkit.generate(model, PROMPT, **call, **GREEDY))
        spent.append(len(calls))
    assert torch.equal(*texts)
    assert spent[1] < min(40, spent[0])
    assert "probed TreeVerifier, which fits; cached on disk" in caplog.text
    assert [path.name.partition("-")[0] for path in cache.iterdir()] == ["TreeVerifier"]


def test_only_the_same_model_run_in_the_same_way_is_known(checkpoint, cache):
    assert probes(checkpoint())
    assert not probes(checkpoint())
    assert probes(checkpoint(attn_implementation="eager"))
    assert probes(checkpoint(dtype=torch.bfloat16))
    other = checkpoint()
    other.config.rope_theta = 77.0
    assert probes(other)
    kept = len(list(cache.iterdir()))
    nameless = tiny_model("llama", vocab_size=60)
    assert probes(nameless)
    gc.collect()
    assert len(list(cache.iterdir())) == kept == 4


def test_a_model_that_was_patched_is_probed_anew(checkpoint, caplog):
    choose_verify_mode(checkpoint())
    model = checkpoint()
    forward = model.forward
    model.forward = lambda *args, attention_mask=None, **kwargs: forward(*args, **kwargs)
    assert choose_verify_mode(model) == "batch"
    assert "llama cannot verify a draft as a tree" in caplog.text


def test_a_model_whose_attention_is_replaced_is_probed_anew():
    """As by flash attention, which ignores a tree's mask."""

    def causal(module, query, key, value, attention_mask, scaling=None, **_):
        shared = {"scale": scaling, "enable_gqa": True}
        seen = torch.ones(query.shape[2], key.shape[2]).tril(key.shape[2] - query.shape[2]).bool()
        out = scaled_dot_product_attention(query, key, value, attn_mask=seen, **shared)
        return out.transpose(1, 2).contiguous(), None

    AttentionInterface.register("causal-only", causal)
    AttentionMaskInterface.register("causal-only", lambda *_, **__: None)
    model = tiny_model("llama")
    assert choose_verify_mode(model) == "tree"
    model.set_attn_implementation("causal-only")
    assert choose_verify_mode(model) == "batch"
    model.set_attn_implementation("sdpa")
    assert choose_verify_mode(model) == "tree"


def test_probes_in_several_threads_leave_the_generation_config():
    model = tiny_model("llama")
    own, seen = model.generation_config, []
    model.register_forward_hook(lambda *_: seen.append(model.generation_config is own))
    threads = [threading.Thread(target=choose_verify_mode, args=(model,)) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert all(seen)
    assert model.generation_config is own


def test_a_model_that_takes_no_tree_is_probed_by_each_process(cache):
    model = tiny_model("bloom")
    model.name_or_path = "some/bloom"
    assert choose_verify_mode(model) == "batch"
    assert [path.name.partition("-")[0] for path in cache.iterdir()] == ["BatchVerifier"]


def test_what_others_may_write_is_not_believed(checkpoint, cache):
    choose_verify_mode(checkpoint())
    cache.chmod(0o777)
    assert probes(checkpoint())


def test_the_probe_s_own_tokens_may_be_the_padding_token():
    """With a small vocabulary they are; `generate` would take them for padding."""
    model = tiny_model("gpt2", vocab_size=20)
    assert agrees_with_generate(model, TreeVerifier)
