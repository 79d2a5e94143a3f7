"""The weights of a pass by a model's config, against the parameters that transformers makes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers import AutoConfig, AutoModelForCausalLM

from ngramkit.budget.model_cost import ModelCost
from ngramkit.budget.model_size import ModelSize, gguf_size, model_size
from ngramkit.budget.pass_times import pass_times

SMALL = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 100,
         "num_key_value_heads": 2, "intermediate_size": 96, "pad_token_id": 0}  # fmt: skip
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 48}
CONFIGS = {
    "llama": SMALL,
    "gemma2": {**SMALL, "head_dim": 32},
    "mixtral": {**SMALL, "num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2_moe": {**SMALL, **EXPERTS, "num_experts": 8, "shared_expert_intermediate_size": 80},
    "qwen3_moe": {**SMALL, **EXPERTS, "num_experts": 8, "head_dim": 16, "mlp_only_layers": [1]},
    "olmoe": {**SMALL, "num_experts": 8, "num_experts_per_tok": 3},
    "gpt_oss": {**SMALL, "num_local_experts": 8, "num_experts_per_tok": 2, "head_dim": 16},
    "glm4_moe": {**SMALL, **EXPERTS, "n_routed_experts": 8, "n_shared_experts": 1,
                 "first_k_dense_replace": 1, "head_dim": 16},
    "deepseek_v3": {**SMALL, **EXPERTS, "n_routed_experts": 8, "n_shared_experts": 2,
                    "first_k_dense_replace": 1, "q_lora_rank": 24, "kv_lora_rank": 16,
                    "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
                    "num_key_value_heads": 4},
    "llama4_text": {**SMALL, "num_local_experts": 4, "intermediate_size_mlp": 112,
                    "interleave_moe_layer_step": 2, "head_dim": 16},
    "ernie4_5_moe": {**SMALL, "moe_num_experts": 8, "moe_k": 2, "moe_num_shared_experts": 1,
                     "moe_intermediate_size": 48, "moe_layer_start_index": 1},
}  # fmt: skip


def counted(config):
    """(dense, routed) numbers of parameters, without embeddings and head."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    dense = routed = 0
    for name, parameter in model.named_parameters():
        if ".experts." in name:
            routed += parameter.numel()
        elif "embed" not in name and "lm_head" not in name:
            dense += parameter.numel()
    return dense, routed


@pytest.mark.parametrize("name", CONFIGS)
def test_numbers_of_weights_are_those_of_transformers(name):
    config = AutoConfig.for_model(name, **CONFIGS[name])
    dense, routed = counted(config)
    size = model_size(config)
    assert size.dense == pytest.approx(dense, rel=0.03)  # norms and biases are left out
    assert size.experts * size.expert == pytest.approx(routed, rel=0.03)
    assert size.head == 6400
    assert model_size(json.loads(config.to_json_string())) == size
    assert model_size({"text_config": config.to_dict()}) == size
    assert (size.experts > 1) == (routed > 0)


@pytest.mark.parametrize(
    ("how", "stored"),
    [
        ({"quant_method": "gptq", "bits": 4}, 0.25),
        ({"quant_method": "awq", "w_bit": 4}, 0.25),
        ({"quant_method": "fp8"}, 0.5),
        ({"quant_method": "mxfp4"}, 0.25),
        ({"load_in_8bit": True}, 0.5),
        ({"config_groups": {"group_0": {"weights": {"num_bits": 8}}}}, 0.5),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 0.25),
        ({"quant_method": "unheard of"}, 1.0),
        (None, 1.0),
        ("odd", 1.0),
    ],
)
def test_quantised_weights_are_read_sooner(how, stored):
    size = model_size({**SMALL, "dtype": "bfloat16", "quantization_config": how})
    assert size.stored == stored
    plain = model_size(SMALL)
    one = np.ones(1)
    assert size.read(one) == pytest.approx(size.head + stored * (plain.read(one) - size.head))


def test_a_gguf_header_has_the_same_facts():
    header = {
        "general.architecture": "glm4moe", "glm4moe.embedding_length": 64,
        "glm4moe.block_count": 4, "glm4moe.feed_forward_length": 96,
        "glm4moe.attention.head_count": 4, "glm4moe.attention.head_count_kv": 2,
        "glm4moe.attention.key_length": 16, "glm4moe.expert_count": 8,
        "glm4moe.expert_used_count": 2, "glm4moe.expert_feed_forward_length": 48,
        "glm4moe.expert_shared_count": 1, "glm4moe.leading_dense_block_count": 1,
        "glm4moe.vocab_size": 100,
    }  # fmt: skip
    assert gguf_size(header) == model_size(AutoConfig.for_model("glm4_moe", **CONFIGS["glm4_moe"]))


ODD = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
KEYS = st.sampled_from([*{key for each in CONFIGS.values() for key in each}, "layers_block_type",
                        "hybrid_override_pattern", "quantization_config", "moe_layer_freq",
                        "text_config", "ffn_config", "moe_layers"])  # fmt: skip


@given(st.dictionaries(KEYS, ODD | st.lists(ODD, max_size=3) | st.dictionaries(KEYS, ODD)))
def test_any_config_gives_a_size_or_none(config):
    size = model_size({**SMALL, **config})
    if size is not None:
        times = ModelCost(128, size).times(np.arange(1.0, 9.0), 1, 100.0)
        assert np.isfinite(times).all()
        assert (np.diff(times) >= 0).all()


@settings(max_examples=20)
@given(st.integers(1, 60), st.integers(1, 64), st.integers(1, 64))
def test_distinct_experts_are_what_drawing_them_gives(tokens, experts, chosen):
    chosen = min(chosen, experts)
    found = float(ModelSize(experts=experts, chosen=chosen).distinct(np.array([float(tokens)]))[0])
    assert chosen - 1e-9 <= found <= min(experts, tokens * chosen) + 1e-9
    random = np.random.default_rng(0)
    rounds = [
        len({e for _ in range(tokens) for e in random.permutation(experts)[:chosen].tolist()})
        for _ in range(8)
    ]
    assert abs(np.mean(rounds) - found) <= 3 * np.sqrt(experts / 4 / 8) + 0.2


def test_the_formula_gives_the_costs_that_docs_print_for_glm_4_5_air():
    config = AutoConfig.for_model(
        "glm4_moe", hidden_size=4096, num_hidden_layers=46, num_attention_heads=96,
        num_key_value_heads=8, head_dim=128, vocab_size=151_552, intermediate_size=10_944,
        moe_intermediate_size=1408, n_routed_experts=128, num_experts_per_tok=8,
        n_shared_experts=1, first_k_dense_replace=1,
    )  # fmt: skip
    times = pass_times(None, model_size(config)).times(np.array([1.0, 2, 4, 5, 8]))
    assert (times / times[0]).round(2).tolist() == [1, 1.46, 2.30, 2.68, 3.69]
